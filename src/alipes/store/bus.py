"""Events on their way to whoever watches: fast and lossy. The journal is where they are kept."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from alipes.kernel.errors import StoreError
from alipes.kernel.turns import Envelope
from alipes.store.ears import Ears, Spawn
from alipes.store.hosts import Hosts

BACKLOG = 4096
"""Envelopes that wait for one reader; beyond it the oldest are dropped, so the ending always arrives."""


class Subscription:
    """What one reader has still to read: an async iterator that ends when its publisher is gone."""

    def __init__(self, backlog: int = BACKLOG) -> None:
        self._waiting: deque[Envelope] = deque(maxlen=backlog)
        self._ready = asyncio.Event()
        self._over = False
        self.missed = 0
        """How many were dropped because they were not read in time; re-read the journal then."""
        self.source = ""
        """The process that published last."""

    def put(self, envelope: Envelope, source: str) -> None:
        if len(self._waiting) == self._waiting.maxlen:
            self.missed += 1
        self._waiting.append(envelope)
        self.source = source
        self._ready.set()

    def end(self) -> None:
        """No more will come; what waits can still be read."""
        self._over = True
        self._ready.set()

    async def take(self) -> list[Envelope]:
        """All that waits, as soon as there is some; empty once it is over."""
        while not self._waiting and not self._over:
            self._ready.clear()
            await self._ready.wait()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._waiting.popleft()


class LocalBus:
    """`Bus` for the processes of one home. `abandoned(key)`: has it work that nobody living holds?"""

    def __init__(self, hosts: Hosts, spawn: Spawn, abandoned: Callable[[str], Awaitable[bool]]) -> None:
        self._hosts, self._abandoned = hosts, abandoned
        self.ears = Ears(hosts, spawn, self)
        self._here: dict[str, set[Subscription]] = {}
        self._away: dict[str, set[Subscription]] = {}

    def publish(self, envelope: Envelope) -> None:
        for subscription in self._here.get(envelope.key, ()):
            subscription.put(envelope, self._hosts.me)
        for subscription in self._away.get(envelope.key, ()):
            subscription.put(envelope, self._hosts.me)

    def heard(self, key: str) -> bool:
        return bool(self._here.get(key) or self._away.get(key))

    @asynccontextmanager
    async def subscribe(self, key: str, into: Subscription | None = None) -> AsyncIterator[Subscription]:
        """`into`: a reader of one's own, whose `put` is called as soon as something is published."""
        subscription = into or Subscription()
        here = self._here.setdefault(key, set())
        here.add(subscription)  # before we look who lives: who comes after that look asks us (`Hello`)
        try:
            await self.ears.listen(key)
            yield subscription
        finally:
            here.discard(subscription)
            if not here:
                del self._here[key]
                self.ears.ignore(key)

    def hear(self, envelope: Envelope, host: str) -> None:
        """Another process published this."""
        for subscription in self._here.get(envelope.key, ()):
            subscription.put(envelope, host)

    def miss(self, count: int) -> None:
        """Another process dropped `count` for us; whose they were is not known, so everyone is told."""
        for here in self._here.values():
            for subscription in here:
                subscription.missed += count

    async def lose(self, host: str) -> None:
        """We hear nothing more from `host`: end what it would have published."""
        dead = await self._hosts.gone(host)
        for key, here in list(self._here.items()):
            ended = not dead or await self._ended(key)
            for subscription in list(here):
                if ended or subscription.source == host:
                    subscription.end()

    async def _ended(self, key: str) -> bool:
        try:
            return await self._abandoned(key)
        except StoreError:  # the reader asks the store next, and is told
            return True

    def awaited(self) -> list[str]:
        """What is listened for here."""
        return list(self._here)

    def lend(self, key: str, subscription: Subscription) -> None:
        """Put what is published here under `key` also into `subscription`, for a reader elsewhere."""
        self._away.setdefault(key, set()).add(subscription)

    def take_back(self, key: str, subscription: Subscription) -> None:
        away = self._away.get(key, set())
        away.discard(subscription)
        if not away:
            self._away.pop(key, None)

    def end(self) -> None:
        """We stop publishing: every reader here is told."""
        for here in self._here.values():
            for subscription in here:
                subscription.end()
