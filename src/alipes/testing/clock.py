"""A manual clock: it does not move until a test advances it."""

import asyncio
import heapq
from itertools import count

_YIELDS = 5
"""Loop iterations after each wake-up, so that its effects are visible."""


class Clock:
    """Call it for the time. Pass `clock` and `clock.sleep` to code that takes a clock and a sleep.

    `jumps`: each sleep advances the clock at once.
    """

    def __init__(self, now: float = 1000.0, *, jumps: bool = False) -> None:
        self.now = now
        self.slept: list[float] = []
        """The durations of all sleeps in order."""
        self._jumps = jumps
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._changed = asyncio.Event()

    def __call__(self) -> float:
        return self.now

    @property
    def asleep(self) -> int:
        """Number of current sleepers."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced by this much."""
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
        """Return when at least this many are asleep."""
        while self.asleep < sleepers:
            self._changed.clear()
            await self._changed.wait()

    async def advance(self, seconds: float) -> None:
        """Advance the clock and wake all sleepers that are due, in order."""
        until = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            self.now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                for _ in range(_YIELDS):
                    await asyncio.sleep(0)
        self.now = until
