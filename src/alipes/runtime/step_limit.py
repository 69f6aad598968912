"""Spreads what starts at the same moment over several steps of the event loop."""

import asyncio
from collections import deque


class StepLimit:
    """Lets at most `count` callers continue in one step of the event loop, in the order in which they came.

    Between two steps the loop does everything else, so a burst of work does not delay the rest.
    """

    def __init__(self, count: int) -> None:
        self._count = self._left = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return at once, or in a later step."""
        loop = asyncio.get_running_loop()
        if self._left == self._count:
            loop.call_soon(self._begin_step)
        if self._left:
            self._left -= 1
            return
        self._waiting.append(mine := loop.create_future())
        await mine

    def _begin_step(self) -> None:
        self._left = self._count
        while self._waiting and self._left:
            if not (first := self._waiting.popleft()).done():  # else it was cancelled
                first.set_result(None)
                self._left -= 1
        if self._left < self._count:
            asyncio.get_running_loop().call_soon(self._begin_step)
