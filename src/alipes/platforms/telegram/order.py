"""Who waits for whom: in one chat one after the other, the parts of an album together, other chats never."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class _Lane:
    """One chat in which something is being taken in."""

    def __init__(self) -> None:
        self.running = 0
        self.album = ""
        self.waiting: deque[tuple[asyncio.Future[None], str]] = deque()
        self.fetching = asyncio.Lock()


class Order:
    """Whoever asks first for a chat is first there."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}

    @asynccontextmanager
    async def turn(self, chat: int, album: str) -> AsyncIterator[asyncio.Lock]:
        """Inside, it is our turn. Parts of an album are inside together; the lock keeps them in order."""
        lane = self._lanes.setdefault(chat, _Lane())
        if lane.running and (lane.waiting or not album or album != lane.album):
            await self._wait(chat, lane, album)
        else:
            lane.running, lane.album = lane.running + 1, album
        try:
            yield lane.fetching
        finally:
            self._leave(chat, lane)

    async def _wait(self, chat: int, lane: _Lane, album: str) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.waiting.append((place, album))
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it became our turn in the same moment
                self._leave(chat, lane)
            elif (place, album) in lane.waiting:  # else who was before us has passed us over
                lane.waiting.remove((place, album))
            raise

    def _leave(self, chat: int, lane: _Lane) -> None:
        lane.running -= 1
        while lane.waiting and (not lane.running or (lane.album and lane.waiting[0][1] == lane.album)):
            place, album = lane.waiting.popleft()
            if place.done():  # cancelled together with us
                continue
            lane.running, lane.album = lane.running + 1, album
            place.set_result(None)
        if not lane.running:
            self._lanes.pop(chat, None)
