"""Chooses where commands run: the configured backend, or the first sandbox that works on this machine."""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import msgspec
from msgspec import structs

from alipes.config.paths import make_private_tree
from alipes.kernel.errors import AlipesError, ConfigError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.runtime.processes.child import Child, Link
from alipes.runtime.sandbox.backend import CanPrepareCommands, CommandBackend, CommandScope
from alipes.runtime.sandbox.policy import SandboxPolicy
from alipes.runtime.sandbox.running_commands import RunningCommands

log = logging.getLogger(__name__)
SANDBOXES = ("bubblewrap", "landlock")
"""Kinds of the `sandbox` backend, best first."""
INSTALL = "install bubblewrap (apt install bubblewrap)"
REPAIR = "let bubblewrap make namespaces (docs/sandbox.md)"
EXPLICIT_HOST = 'sandbox.backend = "host"'

_DESCRIPTIONS = {
    "sandbox": "Commands run in a sandbox. They can change the project and /tmp; the rest of the system is"
    " read-only, the user's home is replaced by a private one, and connections are asked about by host.",
    "docker": "Commands run in a container that shares the working directory and has no network.",
    "podman": "Commands run in a container that shares the working directory and has no network.",
    "ssh": "Commands run on another machine. Read and change its files with commands. The folder of a skill is copied"
    " there when a command names it.",
}


def advise(problem: str) -> str:
    """What makes bubblewrap work, which has this problem."""
    return REPAIR if "bwrap:" in problem else INSTALL


class BackendCheck(msgspec.Struct, frozen=True):
    """The result of looking for a sandbox, saved until the next boot."""

    system: str
    """What the result depends on: boot, user, program."""
    kind: str
    """`bubblewrap`, `landlock`, or `none` if no sandbox works."""
    problem: str = ""
    """Why the better ones do not work."""


@runtime_checkable
class _HasGaps(Protocol):
    def describe_gaps(self) -> list[str]: ...


@runtime_checkable
class _HasSessions(Protocol):
    async def session_left(self, session: str) -> None: ...


class NoBackend:
    """Refuses every command, because no sandbox works here and nobody has chosen the host."""

    name, contains = "none", True

    def __init__(self, problem: str) -> None:
        self.problem = (
            f"Commands are refused, because no sandbox works here: {problem}. Fix: {advise(problem)}, or set"
            f" {EXPLICIT_HOST} to run commands with all your rights."
        )

    async def check(self) -> str:
        return self.problem

    def open(
        self,
        command: str | Sequence[str],
        scope: CommandScope,
        *,
        cwd: str,
        env: Mapping[str, str],
        link: Link = "output",
    ) -> AbstractAsyncContextManager[Child]:
        raise OSError(self.problem)

    def host_path(self, path: str, scope: CommandScope) -> str:
        return path

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        raise OSError(self.problem)


class ChosenBackend:
    """The backend of the settings, found when a turn or a command needs it."""

    def __init__(
        self,
        setting: str,
        makers: Mapping[str, Callable[[], CommandBackend]],
        *,
        saved: Path | None = None,
        make_policy: Callable[[CommandScope], SandboxPolicy] | None = None,
    ) -> None:
        """`setting`: `sandbox.backend`. `makers`: by name, and by kind of sandbox. `saved`: file for the result."""
        self._make_policy = make_policy
        self._setting, self._makers, self._saved = setting, makers, saved
        self._lock, self._stack = asyncio.Lock(), AsyncExitStack()
        self._backend: CommandBackend | None = None
        self._host = makers["host"]()
        self._opened: dict[str, tuple[str, tuple[str, ...]]] = {}
        """By conversation: the latest call with approved paths, and these."""
        self.check_result: BackendCheck | None = None
        self._running = RunningCommands()
        self._group, self._preparing = asyncio.TaskGroup(), dict[str, asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        for task in self._preparing.values():
            task.cancel()
        # only a cancellation is passed on: the group would wrap other errors of the body
        cancelled = isinstance(error[1], asyncio.CancelledError)
        try:
            await self._group.__aexit__(*(error if cancelled else (None, None, None)))
        finally:
            await self._stack.aclose()

    @property
    def name(self) -> str:
        """Empty until it is chosen."""
        return "" if self._backend is None else self._backend.name

    @property
    def contains(self) -> bool:
        return self._backend is not None and self._backend.contains

    @property
    def protects(self) -> bool:
        """True if commands cannot change hooks, CI files and settings of the project, unless they are opened."""
        return self.name in ("sandbox", "docker", "podman")

    def open_paths(self, call: ToolCall, turn: Turn, paths: tuple[str, ...]) -> None:
        """Let the command of this call change these paths."""
        self._opened[turn.session] = call.id, paths

    @property
    def warning(self) -> str:
        """What the person must know about the protection; empty if commands are contained."""
        if isinstance(self._backend, NoBackend):
            return self._backend.problem
        problem = self.check_result.problem if self.check_result else ""
        if self._setting == "auto" and self.name == "host":
            return f"No sandbox: commands run with all your rights. Fix: {self.advice}. Reason: {problem}"
        if problem:
            less = ", which protects less (see `alipes doctor`)" if self.gaps else ""
            why = "" if "is not installed" in problem else f" Reason: {problem}"
            return f"Commands run in Landlock instead of bubblewrap{less}. Fix: {self.advice}.{why}"
        return ""

    @property
    def advice(self) -> str:
        """What makes the better sandbox work."""
        return advise(self.check_result.problem if self.check_result else "")

    @property
    def gaps(self) -> list[str]:
        """What the sandbox does not cover on this machine, as sentences."""
        return self._backend.describe_gaps() if isinstance(self._backend, _HasGaps) else []

    @property
    def description(self) -> str:
        """What the model must know about commands; empty on the host, if that was chosen."""
        if isinstance(self._backend, NoBackend):
            return "Commands are refused, because no sandbox works here. The user knows how to fix it."
        if self.warning and not self.contains:
            return "Commands run without a sandbox, with all rights of the user."
        weaker = " It is Landlock alone, which protects less than bubblewrap." if self.gaps else ""
        return _DESCRIPTIONS.get(self.name, "") + weaker

    @property
    def _chosen(self) -> CommandBackend:
        assert self._backend is not None, "choose() first"
        return self._backend

    def report_to(self, running: RunningCommands) -> None:
        """Add the commands that are started from now on to `running`."""
        self._running = running

    async def choose(self) -> CommandBackend:
        """Find the backend; once, unless none works. Raises ConfigError if the configured one does not work here."""
        async with self._lock:
            if self._backend is None or isinstance(self._backend, NoBackend):
                self._backend = await self._choose()
            return self._backend

    async def _choose(self) -> CommandBackend:
        if self._setting in ("auto", "sandbox"):
            self.check_result = self._read_result() or await self._look()
            kind, problem = self.check_result.kind, self.check_result.problem
            if kind != "none":
                return self._makers[kind]()
            if self._setting == "sandbox":
                raise ConfigError(f"sandbox.backend = sandbox does not work here: {problem}")
            return NoBackend(problem) if has_sandboxes() else self._host
        backend = self._host if self._setting == "host" else self._makers[self._setting]()
        if isinstance(backend, AbstractAsyncContextManager):
            await self._stack.enter_async_context(backend)
        if problem := await backend.check():
            raise ConfigError(f"sandbox.backend = {self._setting} does not work here: {problem}")
        return backend

    async def _look(self) -> BackendCheck:
        problems = list[str]()
        for kind in filter(self._makers.__contains__, SANDBOXES):
            problem = await self._makers[kind]().check()
            if not problem:
                found = BackendCheck(_describe_system(), kind, "; ".join(problems))
                # a better one that is installed may work next time
                return found if problems and shutil.which("bwrap") else self._save(found)
            problems.append(f"{kind}: {problem}")
        return BackendCheck(_describe_system(), "none", "; ".join(problems))  # looked for again with the next command

    def _read_result(self) -> BackendCheck | None:
        try:
            saved = self._saved.read_bytes() if self._saved is not None else b""
            found = msgspec.json.decode(saved, type=BackendCheck)
        except (OSError, msgspec.DecodeError):
            return None
        return found if found.kind in SANDBOXES and found.system == _describe_system() else None

    def _save(self, result: BackendCheck) -> BackendCheck:
        if self._saved is not None:
            with suppress(OSError):  # a read-only home: it is found out again next time
                make_private_tree(self._saved.parent)
                self._saved.write_bytes(msgspec.json.encode(result))
        return result

    def policy(self, scope: CommandScope) -> tuple[SandboxPolicy, bool]:
        """What commands of a conversation may see and change, and whether they are held to it."""
        assert self._make_policy is not None, "made without a policy"
        return self._make_policy(scope), self.contains

    async def session_left(self, session: str) -> None:
        """Hook: end what the backend keeps for a conversation."""
        if preparing := self._preparing.get(session):
            preparing.cancel()
            await asyncio.wait({preparing})
        self._opened.pop(session, None)
        if isinstance(self._backend, _HasSessions):
            await self._backend.session_left(session)

    def expect(self, scope: CommandScope) -> None:
        if isinstance(self._backend, CanPrepareCommands) and scope.session not in self._preparing:
            task = self._group.create_task(_prepare(self._backend, scope), name="prepare commands")
            self._preparing[scope.session] = task
            task.add_done_callback(lambda _: self._preparing.pop(scope.session, None))

    async def check(self) -> str:
        return await (await self.choose()).check()

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
        backend = self._host if scope.outside else await self.choose()
        opened_for, paths = self._opened.get(scope.session, ("", ()))
        if scope.call and opened_for == scope.call:
            del self._opened[scope.session]
            scope = structs.replace(scope, write=(*scope.write, *paths))
        if not scope.outside and (preparing := self._preparing.get(scope.session)):
            await asyncio.wait({preparing})
        async with backend.open(command, scope, cwd=cwd, env=env, link=link) as child:
            with self._running.add(scope, command, child) if not scope.outside else nullcontext():
                yield child

    def host_path(self, path: str, scope: CommandScope) -> str:
        return path if self._backend is None else self._backend.host_path(path, scope)

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        return self._chosen.scratch(scope)


async def _prepare(backend: CanPrepareCommands, scope: CommandScope) -> None:
    try:
        await backend.prepare(scope)
    except (OSError, AlipesError) as error:
        log.debug("commands cannot be prepared: %s", error)  # the command says why


def has_sandboxes() -> bool:
    """Whether there is a sandbox for this operating system at all."""
    return bool(SANDBOXES) and sys.platform == "linux"


def _describe_system() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    program = shutil.which("bwrap") or ""
    changed = os.stat(program).st_mtime_ns if program else 0
    return f"{boot} {os.getuid()} {program} {changed}"
