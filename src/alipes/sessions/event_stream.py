"""Everything that happens in a conversation, in order and once, whoever lives it. It shows nothing.

The bus may lose what it carries, and a process that lived a turn may die: what the journal keeps
is made up for.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from alipes.kernel.messages import Message
from alipes.kernel.turns import (
    Envelope,
    Event,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    TurnStarted,
)
from alipes.store.export import TurnFacts
from alipes.store.store import Store

if TYPE_CHECKING:
    from alipes.kernel.conversations import Waiting
    from alipes.sessions.sessions import Lobby
    from alipes.store.store import Store


NAP = 0.05
"""Seconds in which text gathers, so that we do not wake for every token of it."""
Tell = Callable[[str, Event], None]


class _Heard:
    """How much of a turn was told."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.messages = 0
        self.read: list[Message] = []
        """Told from the journal: the bus may be about to bring these again."""


class Watch:
    """Tells the events under one key, each with its turn."""

    def __init__(self, key: str, lobby: "Lobby", store: "Store", tell: Tell) -> None:
        self.key = key
        self._lobby, self._store, self._tell = lobby, store, tell
        self._turns: dict[str, _Heard] = {}

    async def run(self, waits: "Callable[[Waiting], None]") -> None:
        """Serve until cancelled. `waits` is called for each message that waits at the beginning."""
        while True:
            async with self._store.bus.subscribe(self.key) as envelopes:
                # Listen first and read then, so that nothing falls between the two.
                unfinished = await self._store.sessions.unfinished(self.key)
                for turn in unfinished:
                    if turn.begun is None:
                        waits(turn)
                for id in {*self._turns, *(turn.id for turn in unfinished if turn.begun is not None)}:
                    await self._catch_up(id)
                if unfinished:
                    await self._lobby.wake(self.key)
                while batch := await envelopes.take():
                    for envelope in _joined(batch):
                        self._hear(envelope)
                    if isinstance(batch[-1].event, TextDelta | ThinkingDelta):
                        await asyncio.sleep(NAP)

    def _hear(self, envelope: Envelope) -> None:
        turn, event = envelope.turn, envelope.event
        heard = self._turns.get(turn)
        match event:
            case TurnStarted(attempt=attempt):
                if heard is not None:
                    self._go_on(turn, heard, attempt)
                    return
                self._turns[turn] = _Heard(attempt)
            case Said(message) if heard is not None:
                if message in heard.read:
                    heard.read.remove(message)
                    return
                heard.messages += 1
            case TurnEnded():
                self._turns.pop(turn, None)
        self._tell(turn, event)

    def _go_on(self, turn: str, heard: _Heard, attempt: int) -> None:
        """Told already; but if it is lived anew, what was half said before is void."""
        if attempt > heard.attempt:
            heard.attempt = attempt
            self._tell(turn, Retracted("the process that was at work on it ended"))

    async def _catch_up(self, turn: str) -> None:
        facts = await self._store.archive.turn(turn)
        if facts is None:
            if self._turns.pop(turn, None):
                self._tell(turn, TurnEnded(turn, "failed", "its conversation was deleted meanwhile"))
            return
        if turn not in self._turns:
            attempt = facts.attempts
            if facts.ending is None and await self._store.turns.holder(self.key) in (None, self._store.host):
                attempt = max(2, attempt)  # we are about to take it up, or just did
            self._turns[turn] = _Heard(attempt)
            text = "" if facts.inbound.notice else facts.inbound.text
            self._tell(turn, TurnStarted(turn, facts.session, attempt, text))
        heard = self._turns[turn]
        for message in facts.said[heard.messages :]:
            heard.read.append(message)
            self._tell(turn, Said(message))
        heard.messages = len(facts.said)
        if facts.ending is not None:
            del self._turns[turn]
            self._tell(turn, TurnEnded(turn, facts.ending, facts.detail, facts.spent.usage))


def _joined(batch: Iterable[Envelope]) -> Iterator[Envelope]:
    """The same, with pieces of text that follow each other made one."""
    held: Envelope | None = None
    for envelope in batch:
        match held, envelope:
            case Envelope(key, turn, TextDelta(before)), Envelope(_, same, TextDelta(after)) if same == turn:
                held = Envelope(key, turn, TextDelta(before + after))
            case _:
                if held is not None:
                    yield held
                held = envelope
    if held is not None:
        yield held


class Following:
    """Iterate it for the turn's events. The bus may lose some; what the journal keeps is made up for.

    When the process that lived the turn goes away, the session is woken again, so that
    whoever is left (we, if nobody else) goes on with it.
    """

    def __init__(self, key: str, store: Store) -> None:
        self._key, self._store = key, store
        self._stack = AsyncExitStack()
        self._envelopes: AsyncIterator[Envelope]
        self._backlog: deque[Event] = deque()
        self._heard = 0
        self._told: list[Message] = []
        """Said before we came, read from the journal: the bus may be about to bring some of it again."""
        self._ended = False
        self.turn: str | None = None
        """Set by whoever submitted it; None when the message turned out to be a second copy."""

    async def __aenter__(self) -> Self:
        self._envelopes = await self._stack.enter_async_context(self._store.bus.subscribe(self._key))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def join(self, turn: str) -> None:
        """Follow a turn that may be under way; call it once, after entering."""
        self.turn = turn
        facts = await self._read(turn)
        self._told = list(facts.said) if facts is not None else []

    @property
    def behind(self) -> int:
        """How many of the next events were read from the journal: not told just now."""
        return len(self._backlog)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ended or self.turn is None:
            raise StopAsyncIteration
        event = self._backlog.popleft() if self._backlog else await self._next_event(self.turn)
        if isinstance(event, Said):
            self._heard += 1
        self._ended = isinstance(event, TurnEnded)
        return event

    async def _next_event(self, turn: str) -> Event:
        while True:
            async for envelope in self._envelopes:
                if envelope.turn == turn and not self._again(envelope.event):
                    return envelope.event
            await self._catch_up(turn)
            if self._backlog:
                return self._backlog.popleft()

    async def _catch_up(self, turn: str) -> None:
        """The publisher went away: listen anew first, so that nothing is missed, then read the journal."""
        await self._stack.aclose()
        await self.__aenter__()
        facts = await self._read(turn)
        if facts is not None and facts.ending is None:
            await self._store.dispatcher.wake(self._key)

    async def _read(self, turn: str) -> TurnFacts | None:
        """What the journal has and we have not, into the backlog."""
        facts = await self._store.archive.turn(turn)
        if facts is None:
            self._backlog.append(TurnEnded(turn, "failed", "its session was deleted meanwhile"))
            return None
        self._backlog.extend(Said(message) for message in facts.said[self._heard :])
        if facts.ending is not None:
            self._backlog.append(TurnEnded(turn, facts.ending, facts.detail, facts.spent.usage))
        return facts

    def _again(self, event: Event) -> bool:
        if isinstance(event, Said) and event.message in self._told:
            self._told.remove(event.message)
            return True
        return False
