"""Reads the log file and its rotated copies: backwards from the end, or forwards from a place. It blocks."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from alipes.runtime.log_file import KEPT_FILES, LogLine

CHUNK_BYTES = 64 * 1024
MAX_SCANNED_BYTES = 24 << 20
"""How much is searched for lines that match."""
_decoder = msgspec.json.Decoder(LogLine)


class LogPlace(Struct, frozen=True):
    """A place in the log that stays the same when the file is rotated."""

    file: int
    """The inode of the file, which a rotation keeps."""
    offset: int

    def __str__(self) -> str:
        return f"{self.file:x}-{self.offset:x}"


NOWHERE = LogPlace(0, 0)
"""The end of a log that has no file yet."""


def parse_place(text: str) -> LogPlace | None:
    """The place that `str` made; None if it is something else."""
    file, dash, offset = text.partition("-")
    try:
        return LogPlace(int(file, 16), int(offset, 16)) if dash and len(text) <= 40 else None
    except ValueError:
        return None


class LogEntry(Struct, frozen=True):
    """One line of the log, where it starts, and where the next one does."""

    place: LogPlace
    after: LogPlace
    line: LogLine


class LogReader:
    """The log at `path`."""

    def __init__(self, path: Path, *, kept: int = KEPT_FILES) -> None:
        self.path, self._kept = path, kept

    def read_before(
        self, place: LogPlace | None, limit: int, matches: Callable[[LogLine], bool]
    ) -> tuple[list[LogEntry], bool]:
        """The last `limit` lines before `place` that match, latest first, and whether there are more. None: the end."""
        found: list[LogEntry] = []
        for entry in self._scan_back(place):
            if matches(entry.line):
                if len(found) == limit:
                    return found, True
                found.append(entry)
        return found, False

    def read_after(self, place: LogPlace) -> tuple[list[LogEntry], LogPlace | None]:
        """Some of the lines after `place`, oldest first, and the place after them; None if the file is gone."""
        with self._open_files() as files:
            numbers = [number for number, _ in files]
            if place == NOWHERE:
                if not files:
                    return [], place
                place = LogPlace(numbers[-1], 0)
            if place.file not in numbers:
                return [], None
            at = numbers.index(place.file)
            entries, after = _read_lines(place, files[at][1])
            if not entries and at > 0:  # this file is complete: continue with the next newer one
                entries, after = _read_lines(LogPlace(numbers[at - 1], 0), files[at - 1][1])
            return entries, after

    def end(self) -> LogPlace:
        """The place after the last line."""
        with self._open_files() as files:
            if not files:
                return NOWHERE
            number, file = files[0]
            return LogPlace(number, _complete_size(file))

    def _scan_back(self, place: LogPlace | None) -> Iterator[LogEntry]:
        scanned = 0
        with self._open_files() as files:
            numbers = [number for number, _ in files]
            if place is not None and place.file not in numbers:
                return
            for number, file in files[numbers.index(place.file) if place is not None else 0 :]:
                size = _complete_size(file)
                end = min(place.offset, size) if place is not None and number == place.file else size
                for offset, raw in _lines_back(file, end):
                    scanned += len(raw) + 1
                    if scanned > MAX_SCANNED_BYTES:
                        return
                    yield _make_entry(number, offset, raw)

    @contextmanager
    def _open_files(self) -> Iterator[list[tuple[int, BinaryIO]]]:
        """The file and its older copies, newest first, each with its inode."""
        with ExitStack() as stack:
            found: dict[int, BinaryIO] = {}
            for number in range(self._kept + 1):
                path = self.path if number == 0 else Path(f"{self.path}.{number}")
                try:
                    file = stack.enter_context(path.open("rb"))
                except OSError:
                    continue
                found.setdefault(os.fstat(file.fileno()).st_ino, file)  # twice, if it is rotated just now
            yield list(found.items())


def _complete_size(file: BinaryIO) -> int:
    """The size up to the last line that is complete."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _lines_back(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines before `end`, the last one first, each with its offset."""
    rest, start = b"", end
    while start > 0:
        size = min(CHUNK_BYTES, start)
        start -= size
        file.seek(start)
        pieces = (file.read(size) + rest).split(b"\n")
        rest, lines = pieces[0], pieces[1:]
        offset = start + len(rest) + 1
        offsets = []
        for line in lines:
            offsets.append(offset)
            offset += len(line) + 1
        yield from ((at, line) for at, line in zip(reversed(offsets), reversed(lines), strict=True) if line)
    if rest:
        yield 0, rest


def _read_lines(place: LogPlace, file: BinaryIO) -> tuple[list[LogEntry], LogPlace]:
    """Complete lines from `place` on, of about one chunk."""
    file.seek(place.offset)
    data = file.read(CHUNK_BYTES)
    while data and b"\n" not in data and (more := file.read(CHUNK_BYTES)):  # a line that is longer
        data += more
    complete, newline, _ = data.rpartition(b"\n")
    entries, offset = [], place.offset
    for raw in complete.split(b"\n") if newline else ():
        if raw:
            entries.append(_make_entry(place.file, offset, raw))
        offset += len(raw) + 1
    return entries, LogPlace(place.file, offset)


def _make_entry(file: int, offset: int, raw: bytes) -> LogEntry:
    return LogEntry(LogPlace(file, offset), LogPlace(file, offset + len(raw) + 1), _parse_line(raw))


def _parse_line(raw: bytes) -> LogLine:
    """The line; one that was damaged as its text."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LogLine("", "", "", raw.decode("utf-8", "backslashreplace"))
