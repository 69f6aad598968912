"""The sandbox on machines without bubblewrap: Landlock and a system call filter, with own mounts if possible.

Where user namespaces work, commands see the same files as in bubblewrap and have the network of their conversation.
Elsewhere only Landlock is left: `describe_gaps` lists what it does not cover, and there are no sockets.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from alipes.runtime.processes.child import Child, Link
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox import starter as program
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.contained import UNSET, ContainedCommands, RootPlan, try_command
from alipes.runtime.sandbox.git_config import GitGuard
from alipes.runtime.sandbox.limits import count_processes, resource_limits
from alipes.runtime.sandbox.mounts import SYSTEM, find_host_path, find_identities
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import SandboxPolicy, is_inside, real_directory
from alipes.runtime.sandbox.seccomp import build_filter
from alipes.runtime.sandbox.starters import Launch, SparePlan, Starter, View

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

_OWN_DEVICES = ("/dev/ptmx", "/dev/pts")
"""Only with own mounts: otherwise they are the terminals of the user."""


class LandlockSandbox:
    """Runs each command in a process that restricts itself first (see starter.py)."""

    name, contains, kind = "sandbox", True, "landlock"

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
        self._version = program.landlock_version() if version is None else version
        self._isolated: bool | None = None if isolate else False
        self._choosing = asyncio.Lock()
        newer = sum(right for right, since in _NEWER_RIGHTS.items() if since > self._version)
        self._known_rights = _ALL_RIGHTS & ~newer
        self._filters: dict[tuple[bool, ...], bytes] = {}
        self._git = GitGuard()
        self._contained = ContainedCommands(self, make_policy, namespaces, guard)

    async def check(self) -> str:
        if sys.platform != "linux":
            return "Landlock needs Linux"
        if not self._version:
            return "this kernel has no Landlock: it needs Linux 5.13 or later, and `landlock` in its `lsm=` parameter"
        return "" if await self._choose_isolation() else await self._try_alone()

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
        if await self._choose_isolation():
            child_scope = self._contained.open(command, scope, cwd=cwd, env=env, link=link)
        else:
            child_scope = self._open_alone(command, scope, cwd=cwd, env=env, link=link)
        async with child_scope as child:
            yield child

    @asynccontextmanager
    async def _open_alone(
        self, command: str | Sequence[str], scope: CommandScope, *, cwd: str, env: Mapping[str, str], link: Link
    ) -> AsyncIterator[Child]:
        """Without namespaces: the command has the files of this machine, as far as the rules allow."""
        policy = self._make_policy(scope)
        env = {name: value for name, value in env.items() if name not in UNSET} | dict(policy.environment)
        env |= {"TMPDIR": policy.scratch} | ({"HOME": policy.private_home} if policy.private_home else {})
        for path in _git_settings(policy):
            env["GIT_CONFIG_GLOBAL"] = path
        launch = Launch(
            ("/bin/bash", "-c", command) if isinstance(command, str) else tuple(command),
            env,
            real_directory(cwd),
            link,
            resource_limits(policy.limits, other_processes=count_processes()),  # they are counted with ours
        )
        spare = self._plan_spare(policy, scope)
        search = env.get("PATH", os.defpath)
        async with self._namespaces.starters.enter(policy.limits, self._guard) as starter:
            with spare.view.hold():
                child_scope = starter.run(spare, launch, ends_together=False)
                guard = self._git.open(policy.writable, search, (policy.scratch, policy.private_home))
                async with guard as restored, child_scope as child:
                    child.notes = restored
                    yield child
                    if child.returncode and policy.refusal and "git" in str(command):  # git itself cannot say why
                        restored.append(f"git cannot be used in this sandbox: {policy.refusal}")

    async def prepare(self, scope: CommandScope) -> None:
        if await self._choose_isolation():
            await self._contained.prepare(scope)
            return
        policy = self._make_policy(scope)
        async with self._namespaces.starters.enter(policy.limits, self._guard) as starter:
            starter.expect(self._plan_spare(policy, scope))

    def _plan_spare(self, policy: SandboxPolicy, scope: CommandScope) -> SparePlan:
        """Without namespaces."""
        wanted = {"namespaces": 0, "landlock": None, "seccomp": self._filter(policy, isolated=False)}
        return SparePlan(self._find_ruleset(policy, scope), wanted)

    def host_path(self, path: str, scope: CommandScope) -> str:
        return find_host_path(path, self._make_policy(scope)) if self._isolated else path

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        folder = self._make_policy(scope).scratch
        return folder, "/tmp" if self._isolated else folder

    async def _choose_isolation(self) -> bool:
        """Find out once whether namespaces and mounts work."""
        async with self._choosing:
            if self._isolated is None:
                self._isolated = not await self._contained.check()
            return self._isolated

    async def _try_alone(self) -> str:
        """Run a command; the error if it fails."""
        return await try_command(self._open_alone, self._namespaces)

    async def make_root(self, plan: RootPlan, starter: Starter, user: int) -> Sequence[int]:
        wanted = {"make": "root", "namespaces": 1, "system": plan.system, "staged": plan.sources, **plan.to_wire()}
        return await starter.make(wanted, (user,))

    def restrict(self, policy: SandboxPolicy, plan: RootPlan) -> Mapping[str, Any]:
        rules = [("/", _READ), *((place.target, _WRITE) for place in plan.places if place.kind == "bind")]
        rules += [("/run", _WRITE), ("/var/tmp", _WRITE), ("/dev/shm", _WRITE)]
        rules += [(path, _DEVICE) for path in _OWN_DEVICES]
        return {"seccomp": self._filter(policy, isolated=True), **self._landlock(rules, sockets=True)}

    def _find_ruleset(self, policy: SandboxPolicy, scope: CommandScope) -> View:
        """The rules as a descriptor; made again when a path of them leads to something else. Raises OSError."""
        writable = (*policy.writable, policy.scratch, *filter(None, (policy.private_home,)))
        readable = policy.readable if policy.private_home else (*policy.readable, policy.workdir)
        readable = (*readable, *_git_settings(policy))
        rules = [*((path, _READ) for path in readable), *((path, _WRITE) for path in writable)]
        described = self._landlock(rules, sockets=policy.network == "open")
        paths = [path for path, _ in described["rules"]]
        hidden = (*policy.hidden, *filter(None, (policy.refused_git,)))
        divided = {folder for path in hidden for folder in _folders_to(path, paths)}
        changed = tuple((path, os.stat(path).st_ctime_ns) for path in sorted(divided) if os.path.isdir(path))
        made_of = described, hidden, find_identities(iter(paths)), changed
        found = self._namespaces.find_view(scope.session, self.kind, made_of)
        if found is not None:
            return found
        ruleset = program.create_ruleset(described["landlock"])
        made = self._namespaces.add_view(scope.session, self.kind, View((ruleset,), made_of))
        given = {path for path, _ in rules}
        for path, rights in described["rules"]:
            try:
                handle = program.open_path(path)
            except FileNotFoundError:
                continue
            except OSError:
                if path in given:  # what a link of the system leads to has a rule of its own
                    raise
                continue
            _allow(ruleset, handle, path, rights, hidden)
        return made

    def _landlock(self, rules: Sequence[Rule], *, sockets: bool) -> dict[str, Any]:
        system = [*((path, _READ) for path in (*SYSTEM, "/proc")), *((path, _DEVICE) for path in program.DEVICES)]
        known = self._known_rights
        network = _BIND_AND_CONNECT if self._version >= _NETWORK_VERSION and not sockets else 0
        scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if self._version >= _SCOPE_VERSION else 0
        return {
            "landlock": (known, network, scopes),
            "rules": [(path, rights & known) for path, rights in (*system, *rules)],
        }

    def _filter(self, policy: SandboxPolicy, *, isolated: bool) -> bytes:
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


def _git_settings(policy: SandboxPolicy) -> tuple[str, ...]:
    """The file that commands see as the git settings of the user; without mounts it is named by a variable."""
    return tuple(source for seen, source in policy.files if seen == f"{policy.home}/.gitconfig")


def _folders_to(path: str, allowed: Sequence[str]) -> Iterator[str]:
    """The folders from an allowed path to a hidden one below it, which are allowed child by child."""
    folder = os.path.dirname(path)
    while folder != "/":
        if any(is_inside(folder, each) for each in allowed):
            yield folder
        folder = os.path.dirname(folder)


def _allow(ruleset: int, handle: int, path: str, rights: int, exceptions: Sequence[str]) -> None:
    """Allow what is opened and everything below, without the exceptions: if there are some, child by child.

    Closes `handle`.
    """
    try:
        if path in exceptions:
            return
        below = tuple(other for other in exceptions if is_inside(other, path))
        if not below or not stat.S_ISDIR(os.fstat(handle).st_mode):
            program.add_rule(ruleset, handle, rights)
            return
        for name in _list_names(handle):
            try:
                inner = program.open_name(handle, name)
            except OSError:  # a link, or gone
                continue
            _allow(ruleset, inner, os.path.join(path, name), rights, below)
    finally:
        os.close(handle)


def _list_names(folder: int) -> list[str]:
    try:
        reading = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []
    try:
        return os.listdir(reading)
    finally:
        os.close(reading)
