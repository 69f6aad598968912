"""What every surface offers to a conversation: a program that is started and killed, and rooms for people.

A new surface is a class with these methods and one line in the table of `conftest.py`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from tests.conformance.scripted_model import ScriptedModel
from tests.e2e.program import Home
from tests.world.environment import LIMIT_S

"""Seconds that a person waits to see something. Only failures take that long."""


class File(Struct, frozen=True):
    """A file of a message."""

    name: str
    mime: str
    data: bytes


class Room(ABC):
    """A chat as its members see it."""

    @abstractmethod
    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        """Someone writes (`who`: not the owner of the room); returns the message's id."""

    @abstractmethod
    async def press(self, label: str, *, who: str = "") -> None:
        """Choose this answer to the open question."""

    @abstractmethod
    def seen(self) -> list[str]:
        """Our messages that are visible now, oldest first, as a person reads them."""

    @abstractmethod
    async def until(self, fact: Callable[[], Any]) -> None:
        """Return when it holds; checked whenever something happens here."""

    async def sees(self, *texts: str) -> None:
        """Return when exactly these messages are visible, in this order, and no more are to come."""
        await self._watched(lambda: self.seen() == list(texts) and self.rests(), texts)

    def rests(self) -> bool:
        """Return when no turn runs here, as far as that is visible."""
        return True

    async def shows(self, text: str) -> None:
        """Return when one of the messages contains this text."""
        await self._watched(lambda: any(text in each for each in self.seen()), [f"… {text} …"])

    async def _watched(self, fact: Callable[[], Any], wanted: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.until(fact)
        except TimeoutError:
            lines = [*(f"  wanted: {each!r}" for each in wanted), *(f"  seen:   {each!r}" for each in self.seen())]
            raise AssertionError("\n".join(["it did not come to be seen", *lines])) from None

    # Only some surfaces can do these; a conversation that needs one names it.

    async def repeat(self, message: str) -> None:
        """The surface delivers the same message again."""
        raise NotImplementedError

    async def change(self, message: str, text: str) -> None:
        """The person edits it."""
        raise NotImplementedError

    async def choose(self, command: str) -> None:
        """Choose a command from the surface's own menu."""
        raise NotImplementedError

    def flood(self, verb: str, times: int = 1) -> None:
        """Reject so many of the next `send` or `edit` calls for now."""
        raise NotImplementedError

    def lose(self, verb: str) -> None:
        """The next call is done, but its confirmation is lost."""
        raise NotImplementedError

    def files(self) -> list[tuple[str, bytes]]:
        """The visible files, by name."""
        raise NotImplementedError

    def answers(self) -> list[str]:
        """For each of our messages the one it replies to, empty if none."""
        raise NotImplementedError


class Surface(ABC):
    """A kind of place, with the real program behind it and a scripted model behind that.

    Its world lives on a loop of its own from the first conversation to the last, so that one program can
    serve many of them. Nothing here moves between two calls of `run`.
    """

    name: ClassVar[str]
    cannot: ClassVar[Mapping[str, str]] = {}
    """Missing features, and why."""
    mention: ClassVar[str] = ""
    """How we are mentioned in a group."""
    remembers: ClassVar[bool] = True
    """True if an uncertain message that is sent again is not seen twice."""
    lasts: ClassVar[bool] = True
    """True if messages stay visible after the program ended."""
    longest: ClassVar[int]
    """Characters of one message; zero: no limit."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.home = folder, Home(folder / "home")
        self.fake_model: ScriptedModel
        self.spoilt = False
        """A conversation failed, so the state of the program is unknown."""
        self._runner = asyncio.Runner(debug=True)
        self._closing: asyncio.Event
        self._hosting: asyncio.Task[None]

    def run(self, work: Coroutine[Any, Any, Any], within: float = 90.0) -> Any:
        async def limited() -> Any:
            async with asyncio.timeout(within):
                return await work

        return self._runner.run(limited())

    def open(self) -> None:
        opened = False
        try:
            self.run(self._open())
            opened = True
        finally:
            if not opened:
                self._runner.close()

    def close(self) -> None:
        try:
            self.run(self._close())
        finally:
            self._runner.close()

    async def _open(self) -> None:
        self._closing, opened = asyncio.Event(), asyncio.Event()
        self._hosting = asyncio.create_task(self._host(opened))
        waiting = asyncio.create_task(opened.wait())
        await asyncio.wait([self._hosting, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not opened.is_set():
            await self._hosting
        await self.start()

    async def _close(self) -> None:
        try:
            await self.end()
        finally:
            self._closing.set()
            await self._hosting

    async def _host(self, opened: asyncio.Event) -> None:
        async with ScriptedModel() as self.fake_model, self.world():
            self.home.path.mkdir(mode=0o700)
            lines = ['model = "test/scripted"', f'workdir = "{self.workdir}"', "[providers.test]"]
            lines += ['api = "openai-chat"', f'base_url = "{self.fake_model.url("openai-chat")}"']
            lines += ["[fetch]", 'allow = ["127.0.0.1"]', *self.settings()]
            (self.home.path / "config.toml").write_text("\n".join(lines) + "\n")
            opened.set()
            await self._closing.wait()

    @property
    def workdir(self) -> Path:
        """Working directory of tools."""
        path = self.folder / "work"
        path.mkdir(exist_ok=True)
        return path

    async def gone(self, pid: str) -> None:
        """Return when the process has ended."""
        with suppress(FileNotFoundError, ProcessLookupError):
            while ") Z " not in Path("/proc", pid, "stat").read_text():
                await asyncio.sleep(0.02)

    # Properties of a surface.

    @abstractmethod
    def world(self) -> AbstractAsyncContextManager[object]:
        """The servers around the program, on loopback."""

    @abstractmethod
    def settings(self) -> list[str]:
        """Lines of `config.toml`, once the servers run."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def leave(self) -> None:
        """Ask it to stop, as an operator does; return when it received that."""

    @abstractmethod
    async def left(self) -> None:
        """Return when it has stopped after `leave`."""

    @abstractmethod
    async def kill(self) -> None:
        """Kill it with SIGKILL."""

    @abstractmethod
    async def knows(self) -> None:
        """Return when all its sends are confirmed: if killed before, it would consider them uncertain."""

    @abstractmethod
    async def end(self) -> None:
        """Stop everything, in whatever state it is."""

    @abstractmethod
    async def room(self) -> Room:
        """A new room for a person with access."""

    def can(self, what: str) -> bool:
        return what not in self.cannot

    async def stranger(self) -> Room:
        """A new room for a person without access."""
        raise NotImplementedError

    async def group(self) -> Room:
        """A room with `ada` and `grace`, who have access, and a `stranger`."""
        raise NotImplementedError

    async def thread(self, group: Room, name: str) -> Room:
        raise NotImplementedError

    def commands(self) -> list[str]:
        """Entries of the surface's own menu."""
        raise NotImplementedError

    # How our own notices look here in the end.

    @abstractmethod
    def stopped(self, partial: str) -> list[str]:
        """An answer after `/stop`, of which `partial` was shown."""

    @abstractmethod
    def superseded(self, partial: str) -> list[str]: ...

    @abstractmethod
    def renewed(self, partial: str) -> list[str]:
        """The same after `/new`."""

    @abstractmethod
    def worked(self, command: str, output: str) -> list[str]:
        """A command that ran for a while and succeeded."""

    @abstractmethod
    def consented(self, command: str, yes: bool) -> list[str]:
        """A question about a command after its answer; the command has no output."""

    @abstractmethod
    def restarted(self, answer: str) -> list[str]:
        """An answer during which the program was stopped and restarted."""

    @abstractmethod
    def resumed(self, words: str, answer: str) -> list[str]:
        """An answer to `words` that was interrupted by a kill."""
