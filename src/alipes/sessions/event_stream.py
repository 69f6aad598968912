"""Follows the events of turns, in order and each once, also if another process runs them.

The bus may lose events and the process that runs a turn may die: the journal fills the gaps.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

from alipes.agent.transcript_repair import count_calls
from alipes.kernel.conversations import PendingTurn
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import (
    Envelope,
    Event,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnParked,
    TurnStarted,
)
from alipes.store.ports.archive import TurnFacts
from alipes.store.sql.store import Store

TEXT_PAUSE = 0.05
"""Seconds in which text accumulates, so that not every token wakes us."""


class TurnProgress:
    """How much of a turn was delivered: fills gaps from the journal and drops repeats."""

    def __init__(self, attempt: int = 0) -> None:
        self.attempt = attempt
        self.parked = False
        """It waits for a limit; its next start is no new attempt."""
        self._messages = 0
        self._from_journal: list[Message] = []
        """Delivered from the journal: the bus may bring these again."""
        self._calls_from_journal: set[str] = set()
        """Calls whose result was in one of them."""

    def is_repeat(self, event: Event) -> bool:
        """True for a message that was delivered from the journal before, or a call of it; others are counted."""
        if isinstance(event, ToolStarted | ToolFinished):
            return event.call.id in self._calls_from_journal
        if isinstance(event, Said):
            if event.message in self._from_journal:
                self._from_journal.remove(event.message)
                return True
            self._messages += 1
        return False

    def catch_up(self, turn: str, facts: TurnFacts | None) -> list[Event]:
        """The journal's events that were not delivered yet."""
        if facts is None:
            return [TurnEnded(turn, "failed", "the conversation was deleted")]
        missed = facts.said[self._messages :]
        self._messages = len(facts.said)
        self._from_journal.extend(missed)
        parts = (part for message in missed for part in message.parts)
        self._calls_from_journal.update(part.call_id for part in parts if isinstance(part, ToolResult))
        events: list[Event] = [Said(message) for message in missed]
        if facts.ending is not None:
            events.append(TurnEnded(turn, facts.ending, facts.detail, facts.spent.usage))
        return events


class TurnFollower:
    """Iterate it for the events of one turn.

    If the process that runs the turn exits, the session is woken again, so that another process
    (ours, if there is no other) continues it.
    """

    def __init__(self, key: str, store: Store) -> None:
        self._key, self._store = key, store
        self._stack = AsyncExitStack()
        self._envelopes: AsyncIterator[Envelope]
        self._backlog: deque[Event] = deque()
        self._progress = TurnProgress()
        self._ended = False
        self.turn: str | None = None
        """None if the message was a second copy."""

    async def __aenter__(self) -> Self:
        self._envelopes = await self._stack.enter_async_context(self._store.bus.subscribe(self._key))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def expect(self, turn: str | None) -> None:
        """Follow a turn that was submitted after entering; None if the message was a second copy."""
        self.turn = turn

    async def join(self, turn: str) -> None:
        """Follow a turn that may be running already; call it once, after entering."""
        self.turn = turn
        await self._read(turn)

    @property
    def behind(self) -> int:
        """How many of the next events come from the journal."""
        return len(self._backlog)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ended or self.turn is None:
            raise StopAsyncIteration
        event = self._backlog.popleft() if self._backlog else await self._next_event(self.turn)
        self._ended = isinstance(event, TurnEnded)
        return event

    async def _next_event(self, turn: str) -> Event:
        while True:
            async for envelope in self._envelopes:
                if envelope.turn == turn and not self._progress.is_repeat(envelope.event):
                    return envelope.event
            await self._resubscribe(turn)
            if self._backlog:
                return self._backlog.popleft()

    async def _resubscribe(self, turn: str) -> None:
        """The publisher exited: subscribe again first, so that nothing is missed, then read the journal."""
        await self._stack.aclose()
        await self.__aenter__()
        facts = await self._read(turn)
        if facts is not None and facts.ending is None:
            await self._store.dispatcher.wake(self._key)

    async def _read(self, turn: str) -> TurnFacts | None:
        facts = await self._store.archive.turn(turn)
        self._backlog.extend(self._progress.catch_up(turn, facts))
        return facts


class WakesSessions(Protocol):
    async def wake(self, key: str) -> None: ...


class SessionFollower:
    """Passes the events of all turns under one key to `on_event`, each with its turn."""

    def __init__(self, key: str, sessions: WakesSessions, store: Store, on_event: Callable[[str, Event], None]) -> None:
        self.key = key
        self._sessions, self._store, self._on_event = sessions, store, on_event
        self._turns: dict[str, TurnProgress] = {}
        self._since = time.time()
        """A turn that began later, in this process, is no resumed one."""
        self.subscribed = asyncio.Event()
        """Set once no event can be missed."""
        self.caught_up = asyncio.Event()
        """Set once the turns that were running at the start are announced."""

    async def run(self, on_queued: Callable[[PendingTurn], None]) -> None:
        """Serve until cancelled. `on_queued` is called for each message that is queued at the start."""
        while True:
            async with self._store.bus.subscribe(self.key) as envelopes:
                self.subscribed.set()
                # Subscribe before reading, so that nothing is missed between the two.
                unfinished = await self._store.sessions.unfinished(self.key)
                for turn in unfinished:
                    if turn.started_at is None:
                        on_queued(turn)
                began = {turn.id: turn.started_at for turn in unfinished if turn.started_at is not None}
                for id in {*self._turns, *began}:
                    await self._catch_up(id, is_left=began.get(id, 0.0) < self._since)
                self.caught_up.set()
                if any(not turn.held for turn in unfinished):
                    await self._sessions.wake(self.key)
                while batch := await envelopes.take_all():
                    for envelope in _merge_text(batch):
                        self._deliver(envelope.turn, envelope.event)
                    if isinstance(batch[-1].event, TextDelta | ThinkingDelta):
                        await asyncio.sleep(TEXT_PAUSE)

    def _deliver(self, turn: str, event: Event) -> None:
        progress = self._turns.get(turn)
        match event:
            case TurnParked() if progress is not None:
                progress.parked = True
            case TurnStarted(attempt=attempt) if progress is not None and progress.parked:
                progress.parked, progress.attempt = False, attempt
            case TurnStarted(attempt=attempt):
                if progress is not None:
                    self._restart(turn, progress, attempt)
                    return
                self._turns[turn] = TurnProgress(attempt)
            case TurnEnded():
                self._turns.pop(turn, None)
            case _ if progress is not None and progress.is_repeat(event):
                return
        self._on_event(turn, event)

    def _restart(self, turn: str, progress: TurnProgress, attempt: int) -> None:
        """Already announced; but a new attempt voids the unfinished answer of the last one."""
        if attempt > progress.attempt:
            progress.attempt = attempt
            self._on_event(turn, Retracted("the process that ran it exited"))

    async def _catch_up(self, turn: str, *, is_left: bool) -> None:
        """`is_left`: it began before."""
        facts = await self._store.archive.turn(turn)
        progress = self._turns.get(turn)
        if progress is None:
            if facts is None:
                return
            attempt, is_left = facts.attempts, is_left and facts.ending is None
            if is_left and await self._store.turns.holder(self.key) in (None, self._store.host):
                attempt = max(2, attempt)  # we are about to resume it, or just did
            progress = self._turns[turn] = TurnProgress(attempt)
            text = "" if facts.inbound.notice else facts.inbound.text
            calls, done = count_calls(facts.said, facts.results) if attempt > 1 else (0, 0)
            self._on_event(turn, TurnStarted(turn, facts.session, attempt, text, calls, done))
        for event in progress.catch_up(turn, facts):
            if isinstance(event, TurnEnded):
                del self._turns[turn]
            self._on_event(turn, event)


def _merge_text(batch: Iterable[Envelope]) -> Iterator[Envelope]:
    """The same events, with adjacent pieces of text joined."""
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
