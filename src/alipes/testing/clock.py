"""Time by hand: a clock that stands still until a test moves it, and a sleep that obeys it."""

import asyncio
import heapq
from itertools import count

_TURNS = 5
"""How often everyone else is let run after somebody was woken, so that what they do next is seen."""


class Clock:
    """Call it for the time. Give `clock` and `clock.sleep` to whatever takes a clock and a sleep.

    `jumps`: nobody has to move it; whoever sleeps moves it by as much, at once.
    """

    def __init__(self, now: float = 1000.0, *, jumps: bool = False) -> None:
        self.now = now
        self.slept: list[float] = []
        """How long each sleep was asked to be, in order."""
        self._jumps = jumps
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._changed = asyncio.Event()

    def __call__(self) -> float:
        return self.now

    @property
    def asleep(self) -> int:
        """How many sleep now."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was moved by so much."""
        self.slept.append(seconds)
        if self._jumps:
            self.now += max(0.0, seconds)
        if self._jumps or seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), woken))
        self._changed.set()
        await woken

    async def wait_asleep(self, sleepers: int = 1) -> None:
        """Return once at least so many sleep."""
        while self.asleep < sleepers:
            self._changed.clear()
            await self._changed.wait()

    async def advance(self, seconds: float) -> None:
        """Move it on, waking one after the other who is due; who then sleeps again may be due again."""
        until = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            self.now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        self.now = until
