"""What every surface is to a conversation: a program that is started and killed, and rooms in which people speak.

A new one is a class with these words, and one line in the table of `conftest.py`.
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

"""Seconds that a person waits to see something. Only what is broken takes that long."""


class File(Struct, frozen=True):
    """Something that goes along with a message."""

    name: str
    mime: str
    data: bytes


class Room(ABC):
    """One place to speak in, as those see it who are there."""

    @abstractmethod
    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        """Somebody says it (`who`: not the one whose room it is); its id."""

    @abstractmethod
    async def press(self, label: str, *, who: str = "") -> None:
        """Choose this answer to the question that is asked here."""

    @abstractmethod
    def seen(self) -> list[str]:
        """What our side has standing there now, oldest first, as a person reads it."""

    @abstractmethod
    async def until(self, fact: Callable[[], Any]) -> None:
        """Return when it is so; it is looked at whenever something happens here."""

    async def sees(self, *texts: str) -> None:
        """These runner here at last, in this order, and nothing else; and nothing more is to come."""
        await self._watched(lambda: self.seen() == list(texts) and self.rests(), texts)

    def rests(self) -> bool:
        """Nothing is at work here, as far as that is seen."""
        return True

    async def shows(self, text: str) -> None:
        """Among others, one that has these words."""
        await self._watched(lambda: any(text in each for each in self.seen()), [f"… {text} …"])

    async def _watched(self, fact: Callable[[], Any], wanted: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.until(fact)
        except TimeoutError:
            lines = [
                *(f"  wanted: {each!r}" for each in wanted),
                *(f"  seen:   {each!r}" for each in self.seen()),
            ]
            raise AssertionError("\n".join(["it did not come to be seen", *lines])) from None

    # What only some can do; a conversation that needs it names it.

    async def repeat(self, message: str) -> None:
        """The surface brings the same message once more."""
        raise NotImplementedError

    async def change(self, message: str, text: str) -> None:
        """The person edits it."""
        raise NotImplementedError

    async def choose(self, command: str) -> None:
        """Pick a command from the surface's own menu."""
        raise NotImplementedError

    def flood(self, verb: str, times: int = 1) -> None:
        """So many of the next calls to `send` or `edit` something here are refused for now."""
        raise NotImplementedError

    def lose(self, verb: str) -> None:
        """The next one is done, and we never hear that it was."""
        raise NotImplementedError

    def files(self) -> list[tuple[str, bytes]]:
        """The files that runner here, by name."""
        raise NotImplementedError

    def answers(self) -> list[str]:
        """For each of ours the message that it is shown to answer, empty if none."""
        raise NotImplementedError


class Surface(ABC):
    """A kind of place, with the real program behind it and a scripted model behind that.

    Its world lives on a loop of its own from the first conversation to the last, so that one program can
    serve many of them. Nothing here moves between two calls of `run`.
    """

    name: ClassVar[str]
    cannot: ClassVar[Mapping[str, str]] = {}
    """What there is not, and why."""
    mention: ClassVar[str] = ""
    """How we are called in a group."""
    remembers: ClassVar[bool] = True
    """What is sent a second time, as nobody knew whether it arrived, is not seen twice."""
    lasts: ClassVar[bool] = True
    """What stood there before the program ended stands there after."""
    longest: ClassVar[int]
    """Characters of one message; zero: as many as you like."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.home = folder, Home(folder / "home")
        self.fake_model: ScriptedModel
        self.spoilt = False
        """A conversation went wrong, so that nobody knows in what state it left the program."""
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
            lines += ['api = "openai-chat"', f'base_url = "{self.fake_model.url("openai-chat")}"', *self.settings()]
            (self.home.path / "config.toml").write_text("\n".join(lines) + "\n")
            opened.set()
            await self._closing.wait()

    @property
    def workdir(self) -> Path:
        """Where tools work."""
        path = self.folder / "work"
        path.mkdir(exist_ok=True)
        return path

    async def gone(self, pid: str) -> None:
        """Return when there is no such process any more."""
        with suppress(FileNotFoundError, ProcessLookupError):
            while ") Z " not in Path("/proc", pid, "stat").read_text():
                await asyncio.sleep(0.02)

    # What a surface says of itself.

    @abstractmethod
    def world(self) -> AbstractAsyncContextManager[object]:
        """What is around the program, on loopback."""

    @abstractmethod
    def settings(self) -> list[str]:
        """Lines of `config.toml`, the world being there."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def leave(self) -> None:
        """Tell it to end, as an operator does; return when it knows."""

    @abstractmethod
    async def left(self) -> None:
        """Return when it has, after `leave`."""

    @abstractmethod
    async def kill(self) -> None:
        """With -9."""

    @abstractmethod
    async def knows(self) -> None:
        """Return when it knows that all it sent has arrived: killed before, it would have to doubt that."""

    @abstractmethod
    async def end(self) -> None:
        """Let nothing of it be left, in whatever state it is."""

    @abstractmethod
    async def room(self) -> Room:
        """One where nobody spoke before, for a person who may."""

    def can(self, what: str) -> bool:
        return what not in self.cannot

    async def stranger(self) -> Room:
        """The same for one who may not."""
        raise NotImplementedError

    async def group(self) -> Room:
        """One that `ada` and `grace` share, who may speak, and a `stranger`, who may not."""
        raise NotImplementedError

    async def thread(self, group: Room, name: str) -> Room:
        raise NotImplementedError

    def commands(self) -> list[str]:
        """What stands in the surface's own menu."""
        raise NotImplementedError

    # How the house's own words look here, as a person sees them in the end.

    @abstractmethod
    def stopped(self, partial: str) -> list[str]:
        """An answer after `/stop`, which came as far as `partial`."""

    @abstractmethod
    def superseded(self, partial: str) -> list[str]: ...

    @abstractmethod
    def renewed(self, partial: str) -> list[str]:
        """The same after `/new`."""

    @abstractmethod
    def worked(self, command: str, output: str) -> list[str]:
        """A command that ran for a while and ended well."""

    @abstractmethod
    def consented(self, command: str, yes: bool) -> list[str]:
        """A question about a command after its answer; the command says nothing."""

    @abstractmethod
    def restarted(self, answer: str) -> list[str]:
        """An answer in whose midst the program was told to end, and was started again."""

    @abstractmethod
    def resumed(self, words: str, answer: str) -> list[str]:
        """One to `words` that a kill cut off."""
