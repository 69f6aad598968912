"""The unread events of one subscriber of the bus."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from alipes.kernel.turns import Envelope

MAX_BACKLOG = 4096
"""Envelopes kept for one subscriber; after that the oldest are dropped, so that the ending always arrives."""


class Subscription:
    """The unread envelopes of one subscriber: an async iterator that ends when the publisher is gone."""

    def __init__(self, backlog: int = MAX_BACKLOG) -> None:
        self._unread: deque[Envelope] = deque(maxlen=backlog)
        self._ready = asyncio.Event()
        self._closed = False
        self.missed = 0
        """How many were dropped because they were not read in time; read the journal again then."""
        self.source = ""
        """The process that published last."""

    def put(self, envelope: Envelope, source: str) -> None:
        if len(self._unread) == self._unread.maxlen:
            self.missed += 1
        self._unread.append(envelope)
        self.source = source
        self._ready.set()

    def close(self) -> None:
        """No more will come; the rest can still be read."""
        self._closed = True
        self._ready.set()

    async def take_all(self) -> list[Envelope]:
        """Wait for at least one envelope and take all there are; empty once closed."""
        while not self._unread and not self._closed:
            self._ready.clear()
            await self._ready.wait()
        taken = list(self._unread)
        self._unread.clear()
        return taken

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        while not self._unread:
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._unread.popleft()


class HomeSubscription(Subscription):
    """Changes of the home. It continues when one of the processes that publish them exits."""

    def close(self) -> None:
        return
