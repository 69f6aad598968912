"""The sandbox on machines without bubblewrap: Landlock and a system call filter, with own mounts if possible.

Where user namespaces work, commands see the same files as in bubblewrap and have the network of their conversation.
Elsewhere only Landlock is left: `describe_gaps` lists what it does not cover, and there are no sockets.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from marshal import dumps
from pathlib import Path
from typing import TypeAlias

from alipes.runtime.processes.child import Child, Link, open_child
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox import launcher
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.bubblewrap import UNSET
from alipes.runtime.sandbox.git_config import GitGuard
from alipes.runtime.sandbox.limits import ControlGroups, count_processes, resource_limits
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import CACHES, SandboxPolicy, is_inside, list_folders_around, real_directory
from alipes.runtime.sandbox.seccomp import build_filter

Mount: TypeAlias = tuple[str, str, str]
"""What the launcher mounts: kind, source, target."""
Rule: TypeAlias = tuple[str, int]
"""A path and the rights to it and everything below."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _DEVICE_REQUESTS = 1 << 13, 1 << 14, 1 << 15
_ALL_RIGHTS = (1 << 16) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY
_WRITE = _ALL_RIGHTS & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE | _DEVICE_REQUESTS)
_DEVICE = _READ_FILE | _READ_DIRECTORY | _WRITE_FILE | _TRUNCATE | _DEVICE_REQUESTS
_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_NEWER_RIGHTS = {_REFER: 2, _TRUNCATE: 3, _DEVICE_REQUESTS: 5}
"""Rights that Landlock version 1 does not know, and the version that brought them."""
_NETWORK_VERSION, _SCOPE_VERSION = 4, 6

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/opt", "/etc", "/nix", "/gnu", "/sys", "/proc"),
)
_SYSTEM_IN_COVERED = ("/run/current-system", "/run/systemd/resolve", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_OWN_DEVICES = ("/dev/ptmx", "/dev/pts")
"""Only with own mounts: otherwise they are the terminals of the user."""
_COVERED = ("/home", "/root", "/run", "/var", "/mnt", "/media", "/srv", "/dev/shm", "/dev/mqueue")
"""Directories with files and sockets of users and services; empty with own mounts."""
_RUN_CODE = "import marshal, sys; exec(marshal.loads(bytes.fromhex(sys.argv.pop(1))))"
_CHECK = CommandScope(session="check", workdir="/usr")


class LandlockSandbox:
    """Runs each command in a process that restricts itself first (see launcher.py)."""

    name, contains = "sandbox", True

    def __init__(
        self,
        make_policy: Callable[[CommandScope], SandboxPolicy],
        namespaces: NetworkNamespaces,
        *,
        guard: OrphanGuard | None = None,
        version: int | None = None,
        isolate: bool = True,
    ) -> None:
        """`version`: use Landlock as in this version or later. `isolate`: use namespaces if possible."""
        self._make_policy, self._namespaces, self._guard = make_policy, namespaces, guard
        self._version = launcher.landlock_version() if version is None else version
        self._isolated: bool | None = None if isolate else False
        self._choosing = asyncio.Lock()
        newer = sum(right for right, since in _NEWER_RIGHTS.items() if since > self._version)
        self._known_rights = _ALL_RIGHTS & ~newer
        self._filters: dict[tuple[bool, ...], bytes] = {}
        self._groups, self._git = ControlGroups(), GitGuard()
        code = compile(Path(launcher.__file__).read_bytes(), launcher.__file__, "exec")  # once, not in each command
        self._launcher = (sys.executable, "-I", "-S", "-c", _RUN_CODE, dumps(code).hex())

    async def check(self) -> str:
        if sys.platform != "linux":
            return "Landlock needs Linux"
        if not self._version:
            return "this kernel has no Landlock: it needs Linux 5.13 or later, and `landlock` in its `lsm=` parameter"
        await self._choose_isolation()
        return await self._try()

    def describe_gaps(self) -> list[str]:
        """What commands can do here, but not in bubblewrap. Call it after `check`."""
        if self._isolated:
            return []
        gaps = [
            "Commands can change git hooks and CI files of the project.",
            "Commands can see whether a file exists, and change permissions and times of this user's files.",
            "Commands can see the names and arguments of other processes.",
            "Commands have no sockets, no /tmp, no /dev/shm and no terminals of their own.",
            "Commands cannot create files in a directory that contains a secret file, such as .env.",
        ]
        if self._version < _SCOPE_VERSION:
            gaps.append("Commands can end other processes of this user; Linux 6.12 or later prevents it.")
        return gaps

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
        isolated = bool(self._isolated) if scope is _CHECK else await self._choose_isolation()
        policy = self._make_policy(scope)
        inner = ("/bin/bash", "-c", command) if isinstance(command, str) else tuple(command)
        env = {name: value for name, value in env.items() if name not in UNSET} | dict(policy.environment)
        if not isolated:
            env |= {"TMPDIR": policy.scratch} | ({"HOME": policy.private_home} if policy.private_home else {})
        others = 0 if isolated else count_processes()  # without a user namespace they are counted with ours
        async with self._enter_network(policy, scope, isolated) as fds:
            with self._groups.open(policy.limits) as groups:
                restrictions = {
                    "groups": groups,
                    "directory": real_directory(cwd),
                    "limits": resource_limits(policy.limits, other_processes=others),
                    "seccomp": self._filter(policy, isolated),
                    **(self._isolation(policy, fds) if isolated else self._rules_without_mounts(policy)),
                }
                argv = (*self._launcher, dumps(restrictions).hex(), *inner)
                child_scope = open_child(argv, cwd="/", env=env, link=link, keeper=self._guard, fds=fds)
                search = env.get("PATH", os.defpath)
                async with self._git.open(policy.writable, search) as restored, child_scope as child:
                    child.notes, child.ends_together = restored, isolated
                    yield child

    def host_path(self, path: str, scope: CommandScope) -> str:
        if not self._isolated:
            return path
        for _, source, target in reversed(list(_list_mounts(self._make_policy(scope)))):
            if source and is_inside(path, target):
                return source + path[len(target) :]
        return path

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        folder = self._make_policy(scope).scratch
        return folder, "/tmp" if self._isolated else folder

    async def _choose_isolation(self) -> bool:
        """Find out once whether namespaces and mounts work."""
        async with self._choosing:
            if self._isolated is None:
                self._isolated = True
                self._isolated = not await self._try()
            return self._isolated

    async def _try(self) -> str:
        """Run a command; the error if it fails."""
        try:
            async with self.open(("true",), _CHECK, cwd="/", env={"PATH": os.defpath}) as child:
                output = b""
                while piece := await child.read():
                    output += piece
                await child.wait()
        except OSError as error:
            return str(error)
        finally:
            await self._namespaces.close(_CHECK.session)
        return output.decode(errors="replace").strip() if child.returncode else ""

    @asynccontextmanager
    async def _enter_network(
        self, policy: SandboxPolicy, scope: CommandScope, isolated: bool
    ) -> AsyncIterator[tuple[int, ...]]:
        """The namespaces to enter: user and network, or only user for the network of this machine."""
        if not isolated:
            yield ()
            return
        async with self._namespaces.enter(scope, connected=policy.network != "none") as namespace:
            yield (namespace.user,) if policy.network == "open" else (namespace.user, namespace.net)

    def _isolation(self, policy: SandboxPolicy, fds: tuple[int, ...]) -> dict[str, object]:
        """Namespaces, mounts, and rules for what is mounted."""
        mounts = list(_list_mounts(policy))
        rules = [(target, _READ if kind == "readonly" else _WRITE) for kind, source, target in mounts if source]
        devices = [(path, _DEVICE) for path in _OWN_DEVICES]
        return {
            "namespaces": fds,
            "mounts": mounts,
            **self._landlock([*rules, *devices, ("/dev/shm", _WRITE)], sockets=True),
        }

    def _rules_without_mounts(self, policy: SandboxPolicy) -> dict[str, object]:
        writable = (*policy.writable, policy.scratch, *filter(None, (policy.private_home,)))
        readable = policy.readable if policy.private_home else (*policy.readable, policy.workdir)
        rules = [*((path, _READ) for path in readable), *((path, _WRITE) for path in writable)]
        return {"except": policy.hidden, **self._landlock(rules, sockets=policy.network == "open")}

    def _landlock(self, rules: Sequence[Rule], *, sockets: bool) -> dict[str, object]:
        system = [*((path, _READ) for path in (*_SYSTEM, *_SYSTEM_IN_COVERED)), *((path, _DEVICE) for path in _DEVICES)]
        known = self._known_rights
        network = _BIND_AND_CONNECT if self._version >= _NETWORK_VERSION and not sockets else 0
        scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if self._version >= _SCOPE_VERSION else 0
        return {
            "landlock": (known, network, scopes),
            "rules": [(path, rights & known) for path, rights in (*system, *rules)],
        }

    def _filter(self, policy: SandboxPolicy, isolated: bool) -> bytes:
        options = (isolated or policy.network == "open", policy.user_namespaces, isolated)
        if options not in self._filters:
            inet, user_namespaces, namespaces = options
            self._filters[options] = build_filter(
                inet=inet,
                user_namespaces=user_namespaces,
                namespaces=namespaces,
                truncate=self._version >= _NEWER_RIGHTS[_TRUNCATE],
            )
        return self._filters[options]


def _list_mounts(policy: SandboxPolicy) -> Iterator[Mount]:
    """The file system of a command, read-only except for these; later ones cover earlier ones."""
    yield from (("hide", "", folder) for folder in _COVERED if folder != policy.home)
    yield from (("readonly", folder, folder) for folder in _SYSTEM_IN_COVERED if os.path.isdir(folder))
    yield "devpts", "", "/dev/pts"
    yield "bind", policy.scratch, "/tmp"
    yield "bind", policy.scratch, policy.scratch
    if policy.private_home:
        yield "bind", policy.private_home, policy.home
        yield from (("bind", policy.caches, f"{policy.home}/{CACHES}"),) if policy.caches else ()
    else:
        yield "readonly", policy.workdir, policy.workdir
    yield from (("readonly", path, path) for path in policy.readable)
    yield from (("bind", path, path) for path in policy.writable)
    yield from (("bind", path, path) for path in list_folders_around(policy))
    yield from (("readonly", path, path) for path in policy.protected)
    yield from (("hide", "", path) for path in policy.hidden)
    yield from (("readonly", source, seen) for seen, source in policy.files)
