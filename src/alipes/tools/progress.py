"""New output shown to whoever watches: now and then, and never more than a glimpse. The model sees none."""

import asyncio
from collections.abc import Awaitable, Callable

from alipes.kernel.ports import Act
from alipes.tools.output import clean

TICK = 0.2
"""Seconds between two words of progress; what is quicker shows its result at once."""
GLIMPSE = 2_000
"""Bytes of output that one word of progress shows at most."""


class Progress:
    """Reads for somebody, and shows what comes."""

    def __init__(self, act: Act, mask: Callable[[str], str]) -> None:
        self._act, self._mask = act, mask
        self._clock = asyncio.get_running_loop().time
        self._due = self._clock() + TICK
        self._new = bytearray()

    async def reading(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """The next piece that `read` gives, after having shown what is due meanwhile."""
        while True:
            try:
                async with asyncio.timeout_at(self._due if self._new else None) as tick:
                    piece = await read()
            except TimeoutError:
                if not tick.expired():
                    raise
                await self._show()
                continue
            self._new = (self._new + piece)[-2 * GLIMPSE :]
            if self._new and self._clock() >= self._due:
                await self._show()
            return piece

    async def _show(self) -> None:
        glimpse = self._new[-GLIMPSE:]
        if len(self._new) > GLIMPSE and b"\n" in glimpse:
            glimpse = glimpse[glimpse.index(b"\n") + 1 :]
        self._new.clear()
        self._due = self._clock() + TICK
        if text := self._mask(clean(bytes(glimpse))):
            await self._act.progress(text)
