"""Runs while they live: each is followed from its beginning, so that whoever asks later misses nothing.

It lives none itself: that is the lobby's, and goes on whether anybody listens or not.
"""

import asyncio
import os
import re
from collections.abc import Coroutine, Iterable
from typing import TypeVar

from msgspec import Struct

from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Message
from alipes.kernel.turns import (
    Address,
    ApprovalAsked,
    Asked,
    Busy,
    Event,
    Inbound,
    Retracted,
    Said,
    Stop,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from alipes.sessions.event_stream import Following
from alipes.store.api_runs import SqliteRuns
from alipes.store.database import codec
from alipes.web.endpoint import PLATFORM, House
from alipes.web.sse import Tell, frame

END = "end"
"""The number of the last event."""
NO_PIECES = -1
"""The place of one who goes on with the next message, not with its pieces."""
RESTARTED = "the process that lived the run was restarted"
_NUMBER = re.compile(r"(?P<said>[0-9]{1,9})(?:\.(?P<place>[0-9]{1,9})\.(?P<teller>[0-9a-f]{1,16}))?")


class Mark(Struct, frozen=True):
    """How far somebody has listened."""

    said: int = 0
    """Messages they have heard."""
    place: int = 0
    """What they have heard since the last of them."""
    teller: str = ""
    """Who told it."""


def mark(number: str) -> Mark:
    """From `Last-Event-ID`; what is no number of ours counts as the beginning."""
    found = _NUMBER.fullmatch(number.strip())
    if found is None:
        return Mark()
    return Mark(int(found["said"]), int(found["place"] or 0), found["teller"] or "")


def written(event: Event, number: str) -> bytes:
    return frame(codec.encode(event), event=str(event.__struct_config__.tag), id=number)


def from_journal(said: Iterable[Message], ended: TurnEnded, since: Mark) -> bytes:
    """The rest of a run that is over, for who has heard it up to there."""
    numbered = list(enumerate(said, 1))
    heard = since.said if since.said <= len(numbered) else 0
    return b"".join(written(Said(each), str(n)) for n, each in numbered[heard:]) + written(ended, END)


class Chronicle:
    """Of one run, while it lives. Whoever listens reads on from their mark, each at their own pace."""

    def __init__(self) -> None:
        self._teller = os.urandom(4).hex()
        self._said: list[bytes] = []
        self._since: list[bytes] = []
        """Told since the last message: not told again after the next one, which says it whole."""
        self._before: list[bytes] = []
        """The same before the last message, for who listened then and has not read it yet."""
        self._ended = b""
        self._waiting: set[asyncio.Future[None]] = set()
        self._headless = False
        """A message was begun before we came: its pieces would not make a text."""
        self.closed = False
        """Nothing more is told here, whether the run has ended or not."""
        self.listeners = 0

    def join_late(self) -> None:
        """The run may be in the middle of a message."""
        self._headless = True

    def add(self, event: Event, *, old: bool = False) -> None:
        """`old`: it was read from the journal, and did not happen just now."""
        if isinstance(event, TextDelta | ThinkingDelta):
            if self._headless:
                return
        elif not old and isinstance(event, Said | TurnStarted | Retracted | ToolStarted | ToolFinished):
            self._headless = False
        if isinstance(event, Said):
            self._before, self._since = self._since, []
            self._said.append(written(event, str(len(self._said) + 1)))
        elif isinstance(event, TurnEnded):
            self._ended = written(event, END)
            self.closed = True
        else:
            number = f"{len(self._said)}.{len(self._since) + 1}.{self._teller}"
            self._since.append(written(event, number))
        self._wake()

    def close(self) -> None:
        """Listeners are to go; they may ask again."""
        self.closed = True
        self._wake()

    def resumed(self, since: Mark) -> tuple[bytes, Mark]:
        """Where to go on, and what to say first: pieces that another teller began will not be finished."""
        if since.said > len(self._said):  # never told by us
            since = Mark()
        if since.said < len(self._said):
            return b"", Mark(since.said, NO_PIECES)
        if since.place and since.teller != self._teller:
            return written(Retracted(RESTARTED), str(since.said)), Mark(since.said)
        return b"", since

    def after(self, since: Mark) -> tuple[bytes, Mark, bool]:
        """Everything told since then, how far that goes, and whether that is all."""
        unread, place = [], max(since.place, 0)
        if since.said == len(self._said) - 1 and since.place != NO_PIECES:
            unread = self._before[place:]
        pieces = self._since[place:] if since.said == len(self._said) else self._since
        frames = (*unread, *self._said[since.said :], *pieces, self._ended)
        return b"".join(frames), Mark(len(self._said), len(self._since), self._teller), self.closed

    async def news(self) -> None:
        """Wait until something more is told, or nothing will be."""
        if self.closed:
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(told)
        try:
            await told
        finally:
            self._waiting.discard(told)

    def _wake(self) -> None:
        for told in self._waiting:
            if not told.done():
                told.set_result(None)


T = TypeVar("T")
DISCONNECTED = "disconnected"


class Living:
    """A run that is followed."""

    def __init__(self, turn: str, inbound: Inbound) -> None:
        self.turn, self.inbound = turn, inbound
        self.chronicle = Chronicle()

    @property
    def address(self) -> Address:
        return self.inbound.address


class Runs:
    """Those that live. `run` has to serve for them to be followed."""

    def __init__(self, house: House, *, workdir: str = "") -> None:
        """`workdir`: where tools work for them."""
        self._house, self.workdir = house, workdir
        self._living: dict[str, Living] = {}
        self._joining: dict[str, asyncio.Future[Living]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._open = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled. Runs that were taken up again at the start are followed from there on."""
        async with asyncio.TaskGroup() as self._group:
            self._open.set()
            for turn, inbound in await SqliteRuns(self._house.store.database).unfinished(PLATFORM):
                await self.follow(turn, inbound)
            await asyncio.Event().wait()

    def hang_up(self) -> None:
        """Let every listener go: we leave, and they may ask whoever comes after us."""
        for living in self._living.values():
            living.chronicle.close()

    def find(self, turn: str) -> Living | None:
        return self._living.get(turn)

    async def begin(self, inbound: Inbound, busy: Busy | None = None) -> str | None:
        """Submit it, and follow it; its id, or None if it was accepted before. Raises as `submit` does."""
        await self._open.wait()
        begun: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._spawn(self._live(inbound, busy, begun))
        return await begun

    async def follow(self, turn: str, inbound: Inbound) -> Living:
        """One that lives and was begun by somebody else, or before a restart."""
        await self._open.wait()
        if (living := self._living.get(turn)) is not None:
            return living
        if (joining := self._joining.get(turn)) is None:
            joining = self._joining[turn] = asyncio.get_running_loop().create_future()
            self._spawn(self._join(turn, inbound, joining))
        return await asyncio.shield(joining)

    async def tell(self, living: Living, since: Mark, tell: Tell) -> None:
        """Everything from there on, until the run ends or we hang up."""
        chronicle = living.chronicle
        first, since = chronicle.resumed(since)
        chronicle.listeners += 1
        try:
            if first:
                await tell(first)
            all_told = False
            while not all_told:
                frames, since, all_told = chronicle.after(since)
                if frames:
                    await tell(frames)
                elif not all_told:
                    await chronicle.news()
        finally:
            chronicle.listeners -= 1

    async def left(self, living: Living) -> None:
        """A listener went away; what was asked for by the last one alone goes with it."""
        if living.inbound.attended and not living.chronicle.listeners and not living.chronicle.closed:
            stop = Stop(DISCONNECTED, DISCONNECTED, living.turn)
            await self._house.lobby.post(living.address.key, stop)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        self._group.create_task(work)

    async def _live(self, inbound: Inbound, busy: Busy | None, begun: "asyncio.Future[str | None]") -> None:
        try:
            async with self._house.lobby.ask(inbound, busy) as following:
                turn = following.turn
                living = self._keep(turn, inbound) if turn else None
                _settle(begun, turn)
                if living is not None:
                    await self._listen(following, living)
        except AlipesError as error:
            if begun.done():
                raise
            begun.set_exception(error)

    async def _join(self, turn: str, inbound: Inbound, joining: "asyncio.Future[Living]") -> None:
        async with self._house.lobby.follow(inbound.address.key, turn) as following:
            living = self._keep(turn, inbound)
            living.chronicle.join_late()
            for _ in range(following.behind):
                living.chronicle.add(await anext(following), old=True)
            for question in self.questions(living.address.key, turn):
                living.chronicle.add(question)
            del self._joining[turn]
            _settle(joining, living)
            await self._listen(following, living)

    def _keep(self, turn: str, inbound: Inbound) -> Living:
        living = self._living[turn] = Living(turn, inbound)
        return living

    async def _listen(self, following: Following, living: Living) -> None:
        try:
            async for event in following:
                living.chronicle.add(event)
        finally:
            del self._living[living.turn]
            living.chronicle.close()

    def questions(self, key: str, turn: str) -> tuple[ApprovalAsked | Asked, ...]:
        """What the run waits to be told; empty also where another process lives it."""
        approvals, questions = self._house.lobby.approvals, self._house.lobby.questions
        calls = approvals.open(key) if approvals.waits(turn) else ()
        asked = questions.open(key) if questions.waits(turn) else None
        return (*calls, *(() if asked is None else (asked,)))


def _settle(future: "asyncio.Future[T]", outcome: T) -> None:
    if not future.done():  # whoever asked may have gone
        future.set_result(outcome)
