"""Output of commands: head and tail for the model, all of it in a file."""

import asyncio
import os
import re
import secrets
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from alipes.kernel.errors import ToolError
from alipes.runtime.redaction import mask_cut, split_ready
from alipes.tools.common import common_prefix

HEAD_BYTES, TAIL_BYTES = 8_000, 12_000
"""Bytes shown from the start and the end of a long output."""
FLUSH_BYTES = 256 * 1024
_ESCAPES = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor
    r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|[ -/]*[0-~]?)"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)

if TYPE_CHECKING:
    from alipes.tools.shell.pty import TerminalEmulator
_OVERSTRUCK = r"[^\n\x08]\x08"
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])
RING_BYTES = 64 * 1024
"""Bytes kept in memory after trimming, which happens at twice as many."""
MAX_POLL_CHARS, MAX_LOG_CHARS = 12_000, 24_000
"""Most characters of one poll and of one log result."""
_MAX_LINE_CHARS = 4_000


def clean_output(raw: bytes | bytearray) -> str:
    """`raw` as plain text: without escape sequences, control characters and overwritten progress lines."""
    text = re.compile(_ESCAPES).sub("", raw.decode("utf-8", "replace"))
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return re.compile(_OVERSTRUCK).sub("", text).translate(_CONTROLS)


def clean_piece(raw: bytes | bytearray) -> str:
    """A piece of running output as plain text.

    It starts with a carriage return if its first line overwrites the text before it, and ends with one if the
    next piece overwrites its last line.
    """
    text = re.compile(_ESCAPES).sub("", raw.decode("utf-8", "replace"))
    first, last = text.partition("\n")[0].rstrip("\r"), text.rpartition("\n")[2]
    return ("\r" if "\r" in first else "") + clean_output(raw) + ("\r" if last.endswith("\r") else "")


class SpillFolder:
    """Folder of files with complete outputs. The oldest are deleted by total size and age."""

    def __init__(
        self,
        folder: Path,
        *,
        mask: Callable[[str], str] = str,
        max_file_bytes: int = 50 << 20,
        max_total_bytes: int = 500 << 20,
        max_days: int = 7,
    ) -> None:
        """`mask` removes secrets from everything that is saved or returned."""
        self.folder, self.mask = folder, mask
        self.max_file_bytes = max_file_bytes
        """Most bytes saved of one output."""
        self._max_total_bytes, self._max_days = max_total_bytes, max_days

    def new(self, kind: str = "terminal", suffix: str = ".txt") -> Path:
        """Delete old files, then create a new one that only we can read."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        path = self.folder / f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}{suffix}"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return path

    def _make_room(self) -> None:
        with os.scandir(self.folder) as entries:
            found = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries]
        room, oldest = self._max_total_bytes - self.max_file_bytes, time.time() - self._max_days * 86400
        for stat, path in sorted(found, key=lambda each: each[0].st_mtime, reverse=True):
            room -= stat.st_size
            if room < 0 or stat.st_mtime < oldest:
                Path(path).unlink(missing_ok=True)


def open_emulator() -> "TerminalEmulator":
    """Imported with the first command that needs a terminal."""
    emulator: TerminalEmulator = import_module("alipes.tools.shell.pty").TerminalEmulator()
    return emulator


class CommandOutput:
    """Collects output of any length in little memory."""

    def __init__(self, spill: SpillFolder) -> None:
        self._mask = spill.mask
        self._file = SpillFile(spill)
        self._head, self._tail = bytearray(), bytearray()
        self._size = self._breaks = 0

    async def feed(self, piece: bytes) -> None:
        fitted = self._size <= HEAD_BYTES + TAIL_BYTES
        self._size += len(piece)
        self._breaks += piece.count(b"\n")
        room = max(HEAD_BYTES - len(self._head), 0)
        self._head += piece[:room]
        self._tail += piece[room:]
        if self._size > HEAD_BYTES + TAIL_BYTES:
            await self._file.add(bytes(self._head + self._tail) if fitted else piece)
        if len(self._tail) > 8 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    async def text(self) -> str:
        """All of it, or head and tail around a note with the path of the complete output."""
        if self._size <= HEAD_BYTES + TAIL_BYTES:
            return self._mask(clean_output(self._head + self._tail))
        await self._file.finish()
        head, tail = self._head, self._tail[-TAIL_BYTES:]
        if b"\n" in head:  # cut at lines: half a secret would not be masked
            head = head[: head.rindex(b"\n") + 1]
        if b"\n" in tail[:-1]:
            tail = tail[tail.index(b"\n") + 1 :]
        left_out = self._size - len(head) - len(tail)
        lines = self._breaks - head.count(b"\n") - tail.count(b"\n")
        note = f"[... {left_out:,} bytes in {lines:,} lines omitted; {self._file.describe_location()} ...]"
        first, last = (mask_cut(self._mask, clean_output(each)) for each in (head, tail))
        return f"{first.rstrip()}\n\n{note}\n\n{last}"

    async def full_text(self) -> str:
        """All of it, as far as it was saved."""
        if self._size <= HEAD_BYTES + TAIL_BYTES:
            return await self.text()
        await self._file.finish()
        return await self._file.read()


class SpillFile:
    """File with the complete output, written in a thread because disks can be slow."""

    def __init__(self, spill: SpillFolder) -> None:
        self._spill, self._mask = spill, spill.mask
        self._path: Path | None = None
        self._pending = bytearray()
        self._room = spill.max_file_bytes
        self._problem = ""

    async def add(self, piece: bytes) -> None:
        taken = piece[: self._room - len(self._pending)] if not self._problem else b""
        self._pending += taken
        if len(taken) < len(piece) and not self._problem:
            self._problem = f"the first {self._spill.max_file_bytes:,} bytes"
        if len(self._pending) >= FLUSH_BYTES:
            # cut at a line, so that no character, escape or secret is split
            await self._write(self._pending.rfind(b"\n") + 1 or len(self._pending))

    async def flush(self) -> None:
        await self._write(self._pending.rfind(b"\n") + 1)

    async def finish(self) -> None:
        await self._write(len(self._pending))

    async def read(self) -> str:
        """The saved text, after `finish`."""
        return "" if self._path is None else await asyncio.to_thread(self._path.read_text, "utf-8")

    def describe_location(self) -> str:
        if self._path is None:
            return f"the full output could not be saved: {self._problem}"
        return f"{self._problem or 'full output'} in {self._path}, see read_file"

    async def _write(self, count: int) -> None:
        block = bytes(self._pending[:count])
        del self._pending[:count]
        self._room -= count
        try:
            await asyncio.to_thread(self._append, block)
        except OSError as error:
            self._problem = self._problem or f"a part ({error.strerror})"
            self._pending.clear()

    def _append(self, block: bytes) -> None:
        if self._path is None:
            self._path = self._spill.new()
        with self._path.open("a", encoding="utf-8") as file:
            file.write(mask_cut(self._mask, clean_output(block)))


class ProcessLog:
    """Output of a background process: the end in memory, all of it in a file once it is long."""

    def __init__(self, spill: SpillFolder, emulator: "TerminalEmulator | None") -> None:
        """`emulator`: the emulator of its terminal, if it has one."""
        self._mask, self._emulator = spill.mask, emulator
        self._file = SpillFile(spill)
        self._spilled = False
        self._writing = asyncio.Lock()
        self._ring = bytearray()
        self._start = 0
        """Bytes, and `_lines` lines, that were trimmed from the ring."""
        self._lines = 0
        self._seen = 0
        self._last_screen = ""
        self._over = False

    async def feed(self, piece: bytes) -> None:
        await self._append(self._emulator.feed(piece) if self._emulator else piece)

    async def finish(self) -> None:
        """The process has ended."""
        if self._emulator:
            await self._append(self._emulator.finish())
        self._over = True
        async with self._writing:
            if self._spilled:
                await self._file.finish()

    def read_new(self) -> str:
        """Output since the last call; of a screen, everything from the first changed line."""
        missed = max(self._start - self._seen, 0)
        raw = bytes(self._ring[max(self._seen - self._start, 0) :])
        if not self._over:
            raw = self._without_open_secret(raw[: _complete_length(raw)])
        self._seen = max(self._seen, self._start) + len(raw)
        text = self._changed_rows(raw.decode(errors="replace")) if self._emulator else clean_output(raw)
        return self._mask(_shorten_poll(text, missed))

    def _without_open_secret(self, raw: bytes) -> bytes:
        """`raw` without an end that may be the first part of a secret: it is read with its rest."""
        rest = split_ready(self._mask, raw[-MAX_POLL_CHARS:].decode(errors="replace"))[1].encode()
        return raw[: -len(rest)] if rest and raw.endswith(rest) else raw

    async def read_lines(self, offset: int, limit: int) -> str:
        """Lines from `offset` (negative: from the end; 0: the last ones), at most `limit`.

        For lines that are no longer in memory the result names the file.
        """
        text = self._mask(clean_output(self._ring) + (self._emulator.screen.text() if self._emulator else ""))
        if not text:
            return "(no output)"
        rows = text.removesuffix("\n").split("\n")
        total = self._lines + len(rows)
        wanted = offset - 1 if offset > 0 else max(total + (offset or -limit), 0)
        if wanted >= total:
            raise ToolError(f"line {offset:,} does not exist; the output has {total:,} lines")
        first = max(wanted, self._lines)
        shown = _fit_rows(rows[first - self._lines :][:limit], from_end=not offset)
        if not offset:
            first = total - len(shown)
        notes = [f"lines {first + 1:,}-{first + len(shown):,} of {total:,}"] if len(shown) < total else []
        if self._lines:
            async with self._writing:
                await self._file.flush()
            notes.append(self._file.describe_location())
        return "\n".join([f"[{'; '.join(notes)}]", *shown] if notes else shown)

    async def _append(self, final: bytes) -> None:
        self._ring += final
        if not self._spilled and len(self._ring) <= RING_BYTES:
            return
        async with self._writing:
            await self._file.add(final if self._spilled else bytes(self._ring))
            self._spilled = True
        if len(self._ring) > 2 * RING_BYTES:
            end = self._ring.find(b"\n", len(self._ring) - RING_BYTES) + 1 or len(self._ring) - RING_BYTES
            self._start += end
            self._lines += self._ring.count(b"\n", 0, end)
            del self._ring[:end]

    def _changed_rows(self, settled: str) -> str:
        """Scrolled rows and the screen, without the rows that are unchanged since the last call."""
        assert self._emulator is not None
        before, self._last_screen = self._last_screen, self._emulator.screen.text()
        rows = (settled + self._last_screen).split("\n")
        return "\n".join(rows[common_prefix(rows, before.split("\n")) :])


def _complete_length(raw: bytes) -> int:
    """Length without an incomplete UTF-8 character at the end."""
    for back in range(1, min(4, len(raw) + 1)):
        byte = raw[-back]
        if byte >= 0xC0:
            return len(raw) - back if back < 2 + (byte >= 0xE0) + (byte >= 0xF0) else len(raw)
        if byte < 0x80:
            break
    return len(raw)


def _shorten_poll(text: str, missed: int) -> str:
    if len(text) <= MAX_POLL_CHARS and not missed:
        return text
    tail = text[-MAX_POLL_CHARS:]
    if len(text) > MAX_POLL_CHARS and "\n" in tail[:-1]:  # cut at a line
        tail = tail[tail.index("\n") + 1 :]
    return f"[... {missed + len(text) - len(tail):,} characters omitted; use action log ...]\n{tail}"


def _fit_rows(rows: list[str], *, from_end: bool) -> list[str]:
    room, shown = MAX_LOG_CHARS, list[str]()
    for row in reversed(rows) if from_end else rows:
        if len(row) > _MAX_LINE_CHARS:
            half, omitted = _MAX_LINE_CHARS // 2, len(row) - _MAX_LINE_CHARS
            row = f"{row[:half]} [... {omitted:,} characters omitted ...] {row[-half:]}"
        room -= len(row) + 1
        if room < 0:
            break
        shown.append(row)
    return shown[::-1] if from_end else shown
