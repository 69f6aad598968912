"""One turn seen from outside: its events to the end, whichever process lives it. It changes nothing."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from alipes.kernel.messages import Message
from alipes.kernel.turns import Envelope, Event, Said, TurnEnded
from alipes.store.facts import TurnFacts
from alipes.store.opening import Store


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
