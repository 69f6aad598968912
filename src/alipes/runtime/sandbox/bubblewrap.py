"""The sandbox by bubblewrap: own mounts, processes, IPC and users, and one network namespace per conversation.

bubblewrap makes the root of a conversation once and ends. Commands are put into it by a starter (see starter.py).
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Any

from alipes.runtime.processes.child import Child, Link, open_child
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.contained import ContainedCommands, RootPlan
from alipes.runtime.sandbox.mounts import find_host_path
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import SandboxPolicy
from alipes.runtime.sandbox.seccomp import build_filter
from alipes.runtime.sandbox.starter import STAGE, open_path
from alipes.runtime.sandbox.starters import SpareProcess, Starter

_UNSHARE = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_SAFE = ("--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox")
_FOLDERS = ("--dev", "/dev", "--proc", "/proc", "--dir", "/tmp", "--dir", "/var/tmp", "--dir", "/run")
_WAIT = ("/bin/sh", "-c", "echo; read x")


class BubblewrapSandbox:
    name, contains, kind = "sandbox", True, "bubblewrap"

    def __init__(
        self,
        make_policy: Callable[[CommandScope], SandboxPolicy],
        namespaces: NetworkNamespaces,
        *,
        guard: OrphanGuard | None = None,
    ) -> None:
        self._make_policy, self._bwrap = make_policy, shutil.which("bwrap") or "bwrap"
        self._filters: dict[bool, bytes] = {}
        self._commands = ContainedCommands(self, make_policy, namespaces, guard)

    async def check(self) -> str:
        return "bwrap is not installed" if shutil.which("bwrap") is None else await self._commands.check()

    def open(
        self,
        command: str | Sequence[str],
        scope: CommandScope,
        *,
        cwd: str,
        env: Mapping[str, str],
        link: Link = "output",
    ) -> AbstractAsyncContextManager[Child]:
        return self._commands.open(command, scope, cwd=cwd, env=env, link=link)

    async def prepare(self, scope: CommandScope) -> None:
        await self._commands.prepare(scope)

    def host_path(self, path: str, scope: CommandScope) -> str:
        return find_host_path(path, self._make_policy(scope))

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        return self._make_policy(scope).scratch, "/tmp"

    def restrict(self, policy: SandboxPolicy, plan: RootPlan) -> Mapping[str, Any]:
        allowed = policy.user_namespaces
        if allowed not in self._filters:
            self._filters[allowed] = build_filter(user_namespaces=allowed)
        return {"landlock": None, "seccomp": self._filters[allowed]}

    async def make_root(self, plan: RootPlan, starter: Starter, user: int) -> Sequence[int]:
        with ExitStack() as stack:
            mount, hosts = await self._run_bubblewrap(plan, user, stack)
            await starter.make({"make": "view", "namespaces": 2, **plan.to_wire()}, (user, mount))
            return os.dup(mount), os.dup(hosts)

    async def _run_bubblewrap(self, plan: RootPlan, user: int, stack: ExitStack) -> tuple[int, int]:
        """Its mount and host name namespace; it has ended."""
        status, theirs = os.pipe()
        stack.callback(os.close, status)
        with _open_sources(plan) as (mounts, handles):
            arguments = [*_UNSHARE, *_SAFE, *mounts, *_FOLDERS]
            argv = (self._bwrap, "--userns", str(user), "--json-status-fd", str(theirs), *arguments, "--", *_WAIT)
            fds = (user, theirs, *handles)
            try:
                child_scope = open_child(argv, cwd="/", env={"PATH": os.defpath}, link="pipes", fds=fds)
                async with child_scope as child:
                    text = await child.read()
                    if text != b"\n":  # else the mounts are complete, and the shell runs
                        while piece := await child.read():
                            text += piece
                        raise OSError(text.decode(errors="replace").strip() or "bubblewrap ended")
                    pid = json.loads(os.read(status, 4096).partition(b"\n")[0])["child-pid"]
                    found = []
                    for name in ("mnt", "uts"):
                        found.append(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC))
                        stack.callback(os.close, found[-1])
                    child.input.close()
                    await child.wait()
            finally:
                os.close(theirs)
        SpareProcess(pid).end()  # the first process of its namespace, for which bubblewrap does not wait
        return found[0], found[1]


@contextmanager
def _open_sources(plan: RootPlan) -> Iterator[tuple[list[str], list[int]]]:
    """Arguments of bwrap that mount the system and the sources of places, by descriptors; and these."""
    arguments, handles = list[str](), list[int]()
    sources = [(path, f"{STAGE}/{at}") for at, path in enumerate(plan.sources)]
    try:
        for kind, source, target in plan.system:
            if kind == "link":
                arguments += ["--symlink", source, target]
            else:
                handles.append(open_path(source))
                arguments += ["--ro-bind", f"/proc/self/fd/{handles[-1]}", target]
        for source, target in sources:
            handles.append(open_path(source))
            arguments += ["--bind", f"/proc/self/fd/{handles[-1]}", target]
        yield arguments, handles
    finally:
        for handle in handles:
            os.close(handle)
