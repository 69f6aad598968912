"""Backends `docker` and `podman`: one container for each conversation and project, one `exec` for each command.

A container lives as long as the input of its client, which is a child of this process: it ends with it, also if this
process is killed. Commands see the project at its path, a private home, a private /tmp, and the image; no network.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias
from uuid import uuid4

import msgspec
from msgspec import Struct

from alipes.runtime.processes.child import Child, Link, open_child
from alipes.runtime.processes.process_tree import OrphanGuard, scratch_directory
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.git_config import GitGuard
from alipes.runtime.sandbox.policy import CACHES, SandboxPolicy, is_inside, list_folders_around, real_directory
from alipes.runtime.sandbox.remote_commands import READY, CommandMarks, end_argv, hold_argv, run_argv

log = logging.getLogger(__name__)
ContainerProgram: TypeAlias = Literal["docker", "podman"]
LABEL = "alipes"
NOT_PASSED = frozenset(
    {"PATH", "HOME", "TMPDIR", "PWD", "OLDPWD", "SHELL", "USER", "LOGNAME", "MAIL", "SSH_AUTH_SOCK", "VIRTUAL_ENV"}
)
"""Variables that describe this machine; the container has its own."""
NOT_PASSED_PREFIXES = ("XDG_", "DBUS_", "DOCKER_", "CONTAINER_", "CONTAINERS_", "ALIPES_")
CHECK_TIMEOUT_S, START_TIMEOUT_S, STOP_TIMEOUT_S = 20.0, 60.0, 10.0
PODMAN_FILTERS = (Path("/etc/containers/seccomp.json"), Path("/usr/share/containers/seccomp.json"))
_AF_VSOCK = 40
_POLL_S = 0.02


class ContainerSettings(Struct, frozen=True):
    program: ContainerProgram
    image: str
    environment: Mapping[str, str]
    """Variables of the client program itself, which finds the daemon and its configuration by them."""
    network: str = "none"
    """`none`, or a network of the container program."""
    arguments: tuple[str, ...] = ()
    """Further arguments of `run`."""


class _ClientResult(NamedTuple):
    code: int
    output: str


class _Mount(NamedTuple):
    inside: str
    outside: str
    writable: bool


class _Container:
    """A running container: its name, and the client whose input keeps it alive."""

    def __init__(self, name: str, client: Child) -> None:
        self.name, self.client = name, client

    @property
    def is_running(self) -> bool:
        return self.client.returncode is None


class ContainerBackend:
    """Enter it before the first command; leaving it ends every container."""

    contains = True

    def __init__(
        self,
        settings: ContainerSettings,
        make_policy: Callable[[CommandScope], SandboxPolicy],
        guard: OrphanGuard | None = None,
    ) -> None:
        self.name = settings.program
        self._settings, self._make_policy, self._guard = settings, make_policy, guard
        self._marks, self._git = CommandMarks(), GitGuard()
        self._others = f"unlimited|{self._marks.pattern}"
        self._starting = asyncio.Lock()
        self._containers: dict[tuple[str, SandboxPolicy], tuple[_Container, AsyncExitStack]] = {}
        self._pruned = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._close(list(self._containers))

    async def session_left(self, session: str) -> None:
        """Hook: end the containers of a session that has ended."""
        await self._close([key for key in self._containers if key[0] == session])

    async def check(self) -> str:
        program, image = self.name, self._settings.image
        if shutil.which(program, path=self._settings.environment.get("PATH", os.defpath)) is None:
            return f"{program} is not installed. Install it, or choose another `sandbox.backend`."
        if not image:
            return f"no image for {program} is set. Set `sandbox.image`, for example to debian:stable."
        found = await self._run("info")
        if found.code:
            return f"{program} does not work here: {_last_line(found.output)}. `{program} info` must succeed."
        if (await self._run("image", "inspect", image)).code:
            return f"{program} has no image {image}. Run `{program} pull {image}`, or change `sandbox.image`."
        return ""

    def open(
        self,
        command: str | Sequence[str],
        scope: CommandScope,
        *,
        cwd: str,
        env: Mapping[str, str],
        link: Link = "output",
    ) -> AbstractAsyncContextManager[Child]:
        return self._exec(command, scope, real_directory(cwd), env, link)

    def host_path(self, path: str, scope: CommandScope) -> str:
        """Empty for a path of the image."""
        for mount in _mounts(self._make_policy(scope)):
            if is_inside(path, mount.inside):
                return os.path.normpath(mount.outside + path[len(mount.inside) :])
        return ""

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        return self._make_policy(scope).scratch, "/tmp"

    @asynccontextmanager
    async def _exec(
        self, command: str | Sequence[str], scope: CommandScope, cwd: str, env: Mapping[str, str], link: Link
    ) -> AsyncIterator[Child]:
        policy = self._make_policy(scope)
        container = await self._container(scope.session, policy)
        mark = self._marks.next()
        given = {name: value for name, value in env.items() if _is_passed(name)} | dict(policy.environment)
        home = given.pop("HOME", policy.home)  # by value: the client has another one
        options = {"output": (), "pipes": ("-i",), "streams": ("-i",), "terminal": ("-i", "-t")}[link]
        names = [part for name in given for part in ("-e", name)]
        argv = [self.name, "exec", *options, "-e", f"HOME={home}", *names, container.name]
        opened = open_child(
            [*argv, *run_argv(command, mark, cwd, self._others)],
            cwd="/",
            env={**self._settings.environment, **given},
            link=link,
            keeper=self._guard,
        )
        search = self._settings.environment.get("PATH", os.defpath)
        async with self._git.open(policy.writable, search) as child_notes, opened as child:
            child.notes = child_notes
            try:
                yield child
            finally:
                if child.returncode is None:
                    await self._end_command(container, mark)
                else:
                    await _wait_for_helpers(child)

    async def _end_command(self, container: _Container, mark: int) -> None:
        ended = await self._run("exec", container.name, *end_argv(mark, self._others), timeout_s=STOP_TIMEOUT_S)
        if ended.code and container.is_running:  # it has no process left, or one that cannot be killed
            log.warning("ending container %s: a command in it could not be ended: %s", container.name, ended.output)
            await self._close([key for key, (known, _) in self._containers.items() if known is container])

    async def _container(self, session: str, policy: SandboxPolicy) -> _Container:
        key = session, policy
        async with self._starting:
            known = self._containers.get(key)
            if known is not None and known[0].is_running:
                return known[0]
            await self._close([key])
            await self._prune()
            async with AsyncExitStack() as stack:
                container = await stack.enter_async_context(self._open_container(policy))
                self._containers[key] = container, stack.pop_all()
            return container

    async def _prune(self) -> None:
        """Remove containers that were not removed because the program that started them was killed."""
        if not self._pruned:
            self._pruned = True
            await self._run("container", "prune", "-f", "--filter", f"label={LABEL}", "--filter", "until=60s")

    @asynccontextmanager
    async def _open_container(self, policy: SandboxPolicy) -> AsyncIterator[_Container]:
        name = f"alipes-{uuid4().hex[:12]}"
        argv = [self.name, "run", "-i", "--rm", "--name", name, *self._run_options(policy)]
        environment = self._settings.environment
        with scratch_directory(self._guard) as folder:
            argv += self._filter_options(folder)
            argv += [*self._settings.arguments, self._settings.image, *hold_argv()]
            async with open_child(argv, cwd="/", env=environment, link="pipes", keeper=self._guard) as client:
                try:
                    await _wait_until_ready(client, self.name)
                    yield _Container(name, client)
                finally:
                    await self._stop(name, client)

    def _filter_options(self, folder: Path) -> list[str]:
        """Podman's own system call filter without vsock, which it allows; Docker's refuses it already."""
        found = [path for path in PODMAN_FILTERS if path.is_file()]
        if self.name != "podman" or not found:
            return []
        profile = msgspec.json.decode(found[0].read_bytes(), type=dict[str, Any])
        calls = [call for call in profile["syscalls"] if "socket" not in call["names"]]
        other_family = {"index": 0, "value": _AF_VSOCK, "op": "SCMP_CMP_NE"}
        calls.append({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [other_family]})
        file = folder / "seccomp.json"
        file.write_bytes(msgspec.json.encode({**profile, "syscalls": calls}))
        return ["--security-opt", f"seccomp={file}"]

    async def _stop(self, name: str, client: Child) -> None:
        client.input.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await client.wait()
        except TimeoutError:
            await self._run("rm", "-f", name)
        await _wait_for_helpers(client)

    def _run_options(self, policy: SandboxPolicy) -> list[str]:
        options = ["--label", LABEL, "--network", self._settings.network, "--cap-drop", "ALL", "--read-only"]
        options += ["--security-opt", "no-new-privileges", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]
        options += ["--user", f"{os.getuid()}:{os.getgid()}"]
        if self.name == "podman" and os.getuid():
            options += ["--userns", "keep-id"]
        mounts = _mounts(policy)
        for mount in reversed(mounts):
            options += ["--volume", f"{mount.outside}:{mount.inside}{'' if mount.writable else ':ro'}"]
        tracked = dict(policy.tracked)
        for path in (*policy.hidden, *policy.sockets):
            if any(is_inside(path, mount.inside) for mount in mounts):
                shown = f"{tracked.get(path, policy.empty)}:{path}:ro"
                options += ["--tmpfs", path] if os.path.isdir(path) else ["--volume", shown]
        limits = policy.limits
        if limits.memory_bytes:
            options += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
        if limits.processes:
            options += ["--pids-limit", str(limits.processes)]
        if limits.file_bytes:
            options += ["--ulimit", f"fsize={limits.file_bytes}:{limits.file_bytes}"]
        if limits.cpu_seconds:
            options += ["--ulimit", f"cpu={limits.cpu_seconds}:{limits.cpu_seconds}"]
        return options

    async def _run(self, *arguments: str, timeout_s: float = CHECK_TIMEOUT_S) -> _ClientResult:
        """Run the client program and return its exit code and output."""
        output = bytearray()
        argv, environment = [self.name, *arguments], self._settings.environment
        try:
            async with open_child(argv, cwd="/", env=environment, keeper=self._guard) as child:
                async with asyncio.timeout(timeout_s):
                    while piece := await child.read():
                        output += piece
                    code = await child.wait()
                    await _wait_for_helpers(child)
        except TimeoutError:
            return _ClientResult(1, f"no answer within {timeout_s:.0f} seconds")
        return _ClientResult(code, output.decode(errors="replace").strip())

    async def _close(self, keys: Sequence[tuple[str, SandboxPolicy]]) -> None:
        for key in keys:
            if key in self._containers:
                _, stack = self._containers.pop(key)
                await stack.aclose()


def _mounts(policy: SandboxPolicy) -> list[_Mount]:
    """The most specific first."""
    mounts = [_Mount("/tmp", policy.scratch, True)]
    if policy.private_home:
        mounts.append(_Mount(policy.home, policy.private_home, True))
        mounts += [_Mount(f"{policy.home}/{CACHES}", policy.caches, True)] if policy.caches else []
    else:
        mounts.append(_Mount(policy.workdir, policy.workdir, False))
    mounts += [_Mount(path, path, False) for path in policy.readable]
    mounts += [_Mount(path, path, True) for path in policy.writable]
    mounts += [_Mount(path, path, True) for path in list_folders_around(policy)]
    mounts += [_Mount(path, path, False) for path in policy.protected]
    mounts += [_Mount(inside, outside, False) for inside, outside in policy.files]
    last = {mount.inside: mount for mount in mounts}
    return sorted(last.values(), key=lambda mount: -mount.inside.rstrip("/").count("/"))


def _is_passed(name: str) -> bool:
    return name not in NOT_PASSED and not name.startswith(NOT_PASSED_PREFIXES)


async def _wait_until_ready(client: Child, program: str) -> None:
    """Raises OSError with the output of the client if the container does not start."""
    output = b""
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while READY not in output:
                piece = await client.read()
                if not piece:
                    raise OSError(f"{program} could not start a container: {_last_line(output.decode())}")
                output += piece
    except TimeoutError:
        raise OSError(f"{program} did not start a container within {START_TIMEOUT_S:.0f} seconds") from None


async def _wait_for_helpers(client: Child) -> None:
    """Let processes that the exited client started finish: podman's remove the container."""
    for _ in range(int(STOP_TIMEOUT_S / _POLL_S)):
        if not client.tree.living():
            return
        await asyncio.sleep(_POLL_S)


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no output"])[-1].strip().rstrip(".")
