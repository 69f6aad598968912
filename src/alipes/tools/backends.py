"""Chooses where commands run: the configured backend, or the first sandbox that works on this machine."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import msgspec

from alipes.kernel.errors import ConfigError
from alipes.runtime.processes.child import Child, Link
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope
from alipes.runtime.sandbox.policy import SandboxPolicy

SANDBOXES = ("bubblewrap", "landlock")
"""Kinds of the `sandbox` backend, best first."""
INSTALL = "install bubblewrap (apt install bubblewrap)"


_DESCRIPTIONS = {
    "sandbox": "Commands run in a sandbox. They can change the project and /tmp; the rest of the system is"
    " read-only, the user's home is replaced by a private one, and connections are asked about by host.",
    "docker": "Commands run in a container that shares the working directory and has no network.",
    "podman": "Commands run in a container that shares the working directory and has no network.",
    "ssh": "Commands run on another machine. Read and change its files with commands. The folder of a skill is copied"
    " there when a command names it.",
}


class BackendCheck(msgspec.Struct, frozen=True):
    """The result of looking for a sandbox, saved until the next boot."""

    system: str
    """What the result depends on: boot, user, program."""
    kind: str
    """`bubblewrap`, `landlock`, or `host` if no sandbox works."""
    problem: str = ""
    """Why the better ones do not work."""


@runtime_checkable
class _HasGaps(Protocol):
    def describe_gaps(self) -> list[str]: ...


@runtime_checkable
class _HasSessions(Protocol):
    async def session_left(self, session: str) -> None: ...


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
        self.check_result: BackendCheck | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    @property
    def name(self) -> str:
        """Empty until it is chosen."""
        return "" if self._backend is None else self._backend.name

    @property
    def contains(self) -> bool:
        return self._backend is not None and self._backend.contains

    @property
    def warning(self) -> str:
        """What the person must know about the protection; empty if commands are contained."""
        if self._setting == "auto" and self.name == "host":
            problem = self.check_result.problem if self.check_result else ""
            return f"No sandbox: commands run with all your rights. Fix: {INSTALL}. Reason: {problem}"
        if self.gaps:
            return f"The sandbox is incomplete without bubblewrap. Fix: {INSTALL}. See `alipes doctor`."
        return ""

    @property
    def gaps(self) -> list[str]:
        """What the sandbox does not cover on this machine, as sentences."""
        return self._backend.describe_gaps() if isinstance(self._backend, _HasGaps) else []

    @property
    def description(self) -> str:
        """What the model must know about commands; empty on the host, if that was chosen."""
        if self.warning and not self.contains:
            return "Commands run without a sandbox, with all rights of the user."
        return _DESCRIPTIONS.get(self.name, "")

    @property
    def _chosen(self) -> CommandBackend:
        assert self._backend is not None, "choose() first"
        return self._backend

    async def choose(self) -> CommandBackend:
        """Find the backend; once. Raises ConfigError if the configured one does not work here."""
        async with self._lock:
            if self._backend is None:
                self._backend = await self._choose()
            return self._backend

    async def _choose(self) -> CommandBackend:
        if self._setting in ("auto", "sandbox"):
            self.check_result = self._read_result() or await self._look()
            if self._setting == "sandbox" and self.check_result.kind == "host":
                raise ConfigError(f"sandbox.backend = sandbox does not work here: {self.check_result.problem}")
            return self._host if self.check_result.kind == "host" else self._makers[self.check_result.kind]()
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
                return self._save(BackendCheck(_describe_system(), kind, "; ".join(problems)))
            problems.append(f"{kind}: {problem}")
        return BackendCheck(_describe_system(), "host", "; ".join(problems))  # looked for again at the next start

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
                self._saved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._saved.write_bytes(msgspec.json.encode(result))
        return result

    def policy(self, scope: CommandScope) -> tuple[SandboxPolicy, bool]:
        """What commands of a conversation may see and change, and whether they are held to it."""
        assert self._make_policy is not None, "made without a policy"
        return self._make_policy(scope), self.contains

    async def session_left(self, session: str) -> None:
        """Hook: end what the backend keeps for a conversation."""
        if isinstance(self._backend, _HasSessions):
            await self._backend.session_left(session)

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
        async with backend.open(command, scope, cwd=cwd, env=env, link=link) as child:
            yield child

    def host_path(self, path: str, scope: CommandScope) -> str:
        return path if self._backend is None else self._backend.host_path(path, scope)

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        return self._chosen.scratch(scope)


def _describe_system() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    program = shutil.which("bwrap") or ""
    changed = os.stat(program).st_mtime_ns if program else 0
    return f"{boot} {os.getuid()} {program} {changed}"
