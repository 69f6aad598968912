"""What a background process wrote: the last of it in memory, the whole in a file. It runs nothing."""

import asyncio
from collections.abc import Callable
from itertools import takewhile

from alipes.kernel.errors import ToolError
from alipes.tools.output import Spill, Whole, clean
from alipes.tools.pty_reading import Rendering

RING = 64 * 1024
"""Bytes kept in memory, once there are twice as many."""
NEWS, ROOM = 12_000, 24_000
"""Characters of one poll, and of one look into the log."""
_WIDE = 4_000


class Log:
    """Fed by the process's own task; read by whoever asks, meanwhile."""

    def __init__(self, spill: Spill, mask: Callable[[str], str], rendering: Rendering | None) -> None:
        """`rendering`: it writes to a terminal, and what was meant is what that shows."""
        self._mask, self._rendering = mask, rendering
        self._whole = Whole(spill, mask)
        self._spilled = False
        self._writing = asyncio.Lock()
        self._ring = bytearray()
        self._start = 0
        """How many bytes, and `_lines` how many lines, came before the ring."""
        self._lines = 0
        self._seen = 0
        self._shown = ""
        self._over = False

    async def feed(self, piece: bytes) -> None:
        await self._keep(self._rendering.feed(piece) if self._rendering else piece)

    async def finish(self) -> None:
        """No more will come."""
        if self._rendering:
            await self._keep(self._rendering.finish())
        self._over = True
        async with self._writing:
            if self._spilled:
                await self._whole.finish()

    def news(self) -> str:
        """What was written since this was last asked; of a screen, from its first line that changed."""
        missed = max(self._start - self._seen, 0)
        raw = bytes(self._ring[max(self._seen - self._start, 0) :])
        if not self._over:
            raw = raw[: _characters(raw)]
        self._seen = max(self._seen, self._start) + len(raw)
        text = self._unseen(raw.decode(errors="replace")) if self._rendering else clean(raw)
        return self._mask(_tail(text, missed))

    async def look(self, offset: int, limit: int) -> str:
        """Some lines of it: from the `offset`th, from the end when negative; the last ones when 0.

        Lines that are no longer in memory are in the file, and the answer says where that is.
        """
        text = self._mask(clean(self._ring) + (self._rendering.live() if self._rendering else ""))
        if not text:
            return "(no output)"
        rows = text.removesuffix("\n").split("\n")
        total = self._lines + len(rows)
        wanted = offset - 1 if offset > 0 else max(total + (offset or -limit), 0)
        if wanted >= total:
            raise ToolError(f"there is no line {offset:,}; it wrote {total:,}")
        first = max(wanted, self._lines)
        shown = _fitting(rows[first - self._lines :][:limit], from_end=not offset)
        if not offset:
            first = total - len(shown)
        notes = [f"lines {first + 1:,}-{first + len(shown):,} of {total:,}"] if len(shown) < total else []
        if self._lines:
            notes.append(await self._whereabouts())
        return "\n".join([f"[{'; '.join(notes)}]", *shown] if notes else shown)

    async def _keep(self, final: bytes) -> None:
        self._ring += final
        if not self._spilled and len(self._ring) <= RING:
            return
        async with self._writing:
            await self._whole.add(final if self._spilled else bytes(self._ring))
            self._spilled = True
        if len(self._ring) > 2 * RING:
            end = self._ring.find(b"\n", len(self._ring) - RING) + 1 or len(self._ring) - RING
            self._start += end
            self._lines += self._ring.count(b"\n", 0, end)
            del self._ring[:end]

    def _unseen(self, settled: str) -> str:
        """What scrolled away since the last look was on the screen then, or came after it."""
        assert self._rendering is not None
        before, self._shown = self._shown, self._rendering.live()
        rows = (settled + self._shown).split("\n")
        pairs = zip(rows, before.split("\n"), strict=False)
        return "\n".join(rows[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :])

    async def _whereabouts(self) -> str:
        async with self._writing:
            await self._whole.flush()
        return self._whole.whereabouts()


def _characters(raw: bytes) -> int:
    """How many of the bytes are whole characters: the next piece may bring the rest of the last one."""
    for back in range(1, min(4, len(raw) + 1)):
        byte = raw[-back]
        if byte >= 0xC0:
            return len(raw) - back if back < 2 + (byte >= 0xE0) + (byte >= 0xF0) else len(raw)
        if byte < 0x80:
            break
    return len(raw)


def _tail(text: str, missed: int) -> str:
    if len(text) <= NEWS and not missed:
        return text
    tail = text[-NEWS:]
    if len(text) > NEWS and "\n" in tail[:-1]:  # whole lines read better
        tail = tail[tail.index("\n") + 1 :]
    return f"[... {missed + len(text) - len(tail):,} characters left out, see action log ...]\n{tail}"


def _fitting(rows: list[str], *, from_end: bool) -> list[str]:
    room, shown = ROOM, list[str]()
    for row in reversed(rows) if from_end else rows:
        if len(row) > _WIDE:
            left_out = len(row) - _WIDE
            row = f"{row[: _WIDE // 2]} [... {left_out:,} characters ...] {row[-_WIDE // 2 :]}"
        room -= len(row) + 1
        if room < 0:
            break
        shown.append(row)
    return shown[::-1] if from_end else shown
