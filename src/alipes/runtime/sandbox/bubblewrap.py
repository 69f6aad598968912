"""The sandbox by bubblewrap: own mounts, processes, IPC and users, and one network namespace per conversation."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from alipes.runtime.processes.child import Child, Link, open_child
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.git_config import GitGuard
from alipes.runtime.sandbox.limits import ControlGroups, join_arguments, limit_arguments, limit_command
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import CACHES, SandboxPolicy, is_inside, list_folders_around, real_directory
from alipes.runtime.sandbox.seccomp import build_filter

_UNSHARE = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_SAFE = ("--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox")
KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""Files that root may write without any capability."""
UNSET = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables that name sockets, which do not exist in the sandbox."""


class BubblewrapSandbox:
    name, contains = "sandbox", True

    def __init__(
        self,
        make_policy: Callable[[CommandScope], SandboxPolicy],
        namespaces: NetworkNamespaces,
        *,
        guard: OrphanGuard | None = None,
    ) -> None:
        self._make_policy, self._namespaces, self._guard = make_policy, namespaces, guard
        self._bwrap, self._nsenter = shutil.which("bwrap") or "bwrap", shutil.which("nsenter") or "nsenter"
        self._filters: dict[bool, bytes] = {}
        self._groups, self._git = ControlGroups(), GitGuard()

    async def check(self) -> str:
        for program in ("bwrap", "nsenter"):
            if shutil.which(program) is None:
                return f"{program} is not installed"
        scope = CommandScope(session="check", workdir="/usr")
        try:
            async with self.open(("true",), scope, cwd="/", env={"PATH": os.defpath}) as child:
                output = b""
                while piece := await child.read():
                    output += piece
                await child.wait()
        except OSError as error:
            return str(error)
        finally:
            await self._namespaces.close("check")
        return output.decode(errors="replace").strip() if child.returncode else ""

    @asynccontextmanager
    async def open(
        self,
        command: str | Sequence[str],
        scope: CommandScope,
        *,
        cwd: str,
        env: Mapping[str, str],
        link: Link = "output",
    ) -> AsyncIterator[Child]:
        policy = self._make_policy(scope)
        if isinstance(command, str):
            inner: tuple[str, ...] = ("/bin/bash", "-c", limit_command(policy.limits) + command)
        else:
            inner = (*limit_arguments(policy.limits), *command)
        env = {name: value for name, value in env.items() if name not in UNSET} | dict(policy.environment)
        async with self._enter_network(policy, scope) as (enter, fds):
            with self._groups.open(policy.limits) as groups, self._open_filter(policy) as seccomp:
                argv = (
                    *join_arguments(groups),
                    *enter,
                    *(self._bwrap, *_UNSHARE, *_SAFE, "--seccomp", str(seccomp)),
                    *mount_arguments(policy),
                    *("--chdir", real_directory(cwd), "--", *inner),
                )
                child_scope = open_child(argv, cwd="/", env=env, link=link, keeper=self._guard, fds=(*fds, seccomp))
                search = env.get("PATH", os.defpath)
                async with self._git.open(policy.writable, search) as restored, child_scope as child:
                    child.notes, child.ends_together = restored, True
                    child.is_waiting = partial(self._namespaces.is_asking, scope.session)
                    yield child
                    restored += self._namespaces.take_refusals(scope.session)

    @asynccontextmanager
    async def _enter_network(
        self, policy: SandboxPolicy, scope: CommandScope
    ) -> AsyncIterator[tuple[Sequence[str], tuple[int, ...]]]:
        """The arguments that enter the network of the command, and the descriptors they name."""
        if policy.network == "open":
            yield (), ()
            return
        async with self._namespaces.enter(scope, connected=policy.network != "none") as namespace:
            user, net = f"--user=/proc/self/fd/{namespace.user}", f"--net=/proc/self/fd/{namespace.net}"
            yield (self._nsenter, user, net, "--preserve-credentials", "--"), (namespace.user, namespace.net)

    @contextmanager
    def _open_filter(self, policy: SandboxPolicy) -> Iterator[int]:
        allowed = policy.user_namespaces
        if allowed not in self._filters:
            self._filters[allowed] = build_filter(user_namespaces=allowed)
        reading = os.memfd_create("seccomp")
        try:
            os.write(reading, self._filters[allowed])
            os.lseek(reading, 0, os.SEEK_SET)
            yield reading
        finally:
            os.close(reading)

    def host_path(self, path: str, scope: CommandScope) -> str:
        if not is_inside(path, "/tmp"):
            return path
        policy = self._make_policy(scope)
        visible = (policy.workdir, policy.scratch, *policy.writable, *policy.readable)
        return path if any(is_inside(path, each) for each in visible) else policy.scratch + path[len("/tmp") :]

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        return self._make_policy(scope).scratch, "/tmp"


def mount_arguments(policy: SandboxPolicy) -> list[str]:
    """The file system of a command, as arguments of bwrap; later ones cover earlier ones."""
    arguments = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
    if os.getuid() == 0:
        arguments += _each("--ro-bind", [path for path in KERNEL_SETTINGS if os.path.exists(path)])
    homes = [folder for folder in ("/home", "/root") if folder != policy.home and os.access(folder, os.X_OK)]
    arguments += [word for folder in homes for word in ("--tmpfs", folder)]
    arguments += ["--bind", policy.scratch, "/tmp", "--tmpfs", "/var/tmp", "--bind", policy.scratch, policy.scratch]
    if policy.private_home:
        arguments += ["--bind", policy.private_home, policy.home]
        arguments += ["--bind", policy.caches, f"{policy.home}/{CACHES}"] if policy.caches else []
    else:
        arguments += ["--ro-bind", policy.workdir, policy.workdir]
    arguments += _each("--ro-bind", policy.readable)
    arguments += _each("--bind", policy.writable)
    arguments += _each("--bind", [*list_folders_around(policy)])
    arguments += _each("--ro-bind", policy.protected)
    for path in policy.hidden:
        arguments += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", policy.empty, path]
    for seen, source in policy.files:
        arguments += ["--ro-bind", source, seen]
    return arguments


def _each(option: str, paths: Sequence[str]) -> list[str]:
    return [word for path in paths for word in (option, path, path)]
