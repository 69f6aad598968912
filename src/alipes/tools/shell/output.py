"""What a command wrote: its head and tail for the model, the whole in a file. It runs nothing."""

import asyncio
import os
import re
import secrets
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from alipes.kernel.errors import ToolError
from alipes.tools.shell.pty import Rendering

HEAD, TAIL = 8_000, 12_000
"""Bytes shown of a long output: what was done comes early, what went wrong comes late."""
FLUSH = 256 * 1024
_ESCAPES = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor
    r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|[ -/]*[0-~]?)"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_OVERSTRUCK = r"[^\n\x08]\x08"
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])


def clean(raw: bytes | bytearray) -> str:
    """`raw` as the text a screen would have kept: no escapes, no bells, no progress that was overwritten."""
    text = re.compile(_ESCAPES).sub("", raw.decode("utf-8", "replace"))
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return re.compile(_OVERSTRUCK).sub("", text).translate(_CONTROLS)


class Spill:
    """The folder of whole outputs. The oldest go when there are too many bytes or days of them."""

    def __init__(
        self, folder: Path, *, largest: int = 50 << 20, total: int = 500 << 20, days: int = 7
    ) -> None:
        self.folder = folder
        self.largest = largest
        """Bytes kept of one output."""
        self._total, self._days = total, days

    def new(self) -> Path:
        """Make room, then a new file for our eyes only."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        path = self.folder / f"terminal-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}.txt"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return path

    def _make_room(self) -> None:
        with os.scandir(self.folder) as entries:
            found = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries]
        room, oldest = self._total - self.largest, time.time() - self._days * 86400
        for stat, path in sorted(found, key=lambda each: each[0].st_mtime, reverse=True):
            room -= stat.st_size
            if room < 0 or stat.st_mtime < oldest:
                Path(path).unlink(missing_ok=True)


class Transcript:
    """Takes an output of any length piece by piece and keeps little of it in memory."""

    def __init__(self, spill: Spill, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._whole = Whole(spill, mask)
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0

    async def feed(self, piece: bytes) -> None:
        """Add what was written next."""
        fitted = self._size <= HEAD + TAIL
        self._size += len(piece)
        room = max(HEAD - len(self._head), 0)
        self._head += piece[:room]
        self._tail += piece[room:]
        if self._size > HEAD + TAIL:
            await self._whole.add(bytes(self._head + self._tail) if fitted else piece)
        if len(self._tail) > 8 * TAIL:
            del self._tail[:-TAIL]

    async def text(self) -> str:
        """All of it, or head and tail around a note that says where the whole is."""
        if self._size <= HEAD + TAIL:
            return self._mask(clean(self._head + self._tail))
        await self._whole.finish()
        head, tail = self._head, self._tail[-TAIL:]
        if b"\n" in head:  # whole lines read better, and half a secret is not masked
            head = head[: head.rindex(b"\n") + 1]
        if b"\n" in tail[:-1]:
            tail = tail[tail.index(b"\n") + 1 :]
        left_out = self._size - len(head) - len(tail)
        note = f"[... {left_out:,} bytes left out here; {self._whole.whereabouts()} ...]"
        return f"{self._mask(clean(head)).rstrip()}\n\n{note}\n\n{self._mask(clean(tail))}"

    async def whole(self) -> str:
        """All of it, as far as it is kept."""
        if self._size <= HEAD + TAIL:
            return self._mask(clean(self._head + self._tail))
        await self._whole.finish()
        return await self._whole.read()


class Whole:
    """The file with everything. Written in a thread: a slow disk must not hold up the loop."""

    def __init__(self, spill: Spill, mask: Callable[[str], str]) -> None:
        self._spill, self._mask = spill, mask
        self._path: Path | None = None
        self._waiting = bytearray()
        self._room = spill.largest
        self._trouble = ""

    async def add(self, piece: bytes) -> None:
        taken = piece[: self._room - len(self._waiting)] if not self._trouble else b""
        self._waiting += taken
        if len(taken) < len(piece) and not self._trouble:
            self._trouble = f"the first {self._spill.largest:,} bytes are"
        if len(self._waiting) >= FLUSH:
            # cut where no character, escape or secret is in two halves
            await self._write(self._waiting.rfind(b"\n") + 1 or len(self._waiting))

    async def flush(self) -> None:
        """Write what is surely whole: its lines."""
        await self._write(self._waiting.rfind(b"\n") + 1)

    async def finish(self) -> None:
        await self._write(len(self._waiting))

    async def read(self) -> str:
        """What is kept, once it is finished."""
        return "" if self._path is None else await asyncio.to_thread(self._path.read_text, "utf-8")

    def whereabouts(self) -> str:
        if self._path is None:
            return f"they could not be kept: {self._trouble}"
        return f"{self._trouble or 'the whole is'} in {self._path}, see read_file"

    async def _write(self, count: int) -> None:
        block = bytes(self._waiting[:count])
        del self._waiting[:count]
        self._room -= count
        try:
            await asyncio.to_thread(self._append, block)
        except OSError as error:
            self._trouble = self._trouble or f"({error.strerror}) a part is"
            self._waiting.clear()

    def _append(self, block: bytes) -> None:
        if self._path is None:
            self._path = self._spill.new()
        with self._path.open("a", encoding="utf-8") as file:
            file.write(self._mask(clean(block)))


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
