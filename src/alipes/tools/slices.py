"""Lines of a file of any size, without holding it whole in memory. It knows no path and no tool."""

import codecs
import io
from typing import BinaryIO

from msgspec import Struct

BLOCK = 1 << 20
COUNTED = 256 << 20
"""The lines of files up to this many bytes are counted."""
FARTHEST = 1 << 30
"""Bytes into a file that a line is looked for."""
WIDE = 32 << 20
"""Files of two or four bytes per character are read up to this size."""
LONGEST_LINE = 4_000
"""Bytes shown of one line."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Slice(Struct, frozen=True):
    text: str
    first: int
    """Number of its first line, from 1."""
    count: int
    lines: int | None
    """Lines of the whole file; None when it is too large to count."""


def encoding_of(sample: bytes) -> str:
    """The encoding that `sample`, the beginning of a file, is probably in; empty when it is no text."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    if b"\0" in sample:
        return _wide(sample)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        odd = sum(byte < 32 and byte not in b"\b\t\n\f\r\x1b" for byte in sample)
        return "" if odd > len(sample) // 50 else "latin-1"
    return "utf-8"


def _wide(sample: bytes) -> str:
    """UTF-16 without its mark: Western text has a zero in every second place."""
    half = len(sample) / 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > 0.7 * half and even < 0.1 * half:
        return "utf-16-le"
    if even > 0.7 * half and odd < 0.1 * half:
        return "utf-16-be"
    return ""


def narrow(file: BinaryIO, encoding: str) -> BinaryIO | None:
    """`file` in an encoding whose lines end with one byte; None when it is too large for that."""
    if not encoding.startswith(("utf-16", "utf-32")):
        return file
    whole = file.read(WIDE + 1)
    return io.BytesIO(whole.decode(encoding, "replace").encode()) if len(whole) <= WIDE else None


def cut(file: BinaryIO, *, offset: int, limit: int, room: int, encoding: str = "utf-8") -> Slice:
    """Up to `limit` lines and about `room` bytes from line `offset`; a negative offset counts from the end.

    The file is left anywhere. Raises ValueError when the line is too far in to be looked for.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    lines = _count(file) if size <= COUNTED else None
    if offset < 0:
        offset = max(1, (lines or 0) + 1 + offset)
    file.seek(0)
    found = _skip(file, offset - 1)
    shown: list[bytes] = []
    while found and len(shown) < limit and room > 0 and (line := _line(file)):
        shown.append(line)
        room -= len(line)
    text = b"".join(shown).decode(encoding, "replace")
    return Slice(text.removeprefix("\ufeff") if offset == 1 else text, offset, len(shown), lines)


def _count(file: BinaryIO) -> int:
    lines, last = 0, b"\n"
    while block := file.read(BLOCK):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last != b"\n")


def _skip(file: BinaryIO, lines: int) -> bool:
    """Go to the beginning of the line after so many; False when the file ends before."""
    at = 0
    while lines:
        block = file.read(BLOCK)
        here = block.count(b"\n")
        if not block:
            return False
        if here >= lines:
            place = -1
            for _ in range(lines):
                place = block.index(b"\n", place + 1)
            file.seek(at + place + 1)
            return True
        lines -= here
        at += len(block)
        if at >= FARTHEST:
            raise ValueError(f"that line lies beyond the first {FARTHEST:,} bytes; use the terminal")
    return True


def _line(file: BinaryIO) -> bytes:
    line = file.readline(LONGEST_LINE)
    if len(line) < LONGEST_LINE or line.endswith(b"\n"):
        return line
    more = 0
    while rest := file.readline(BLOCK):
        more += len(rest)
        if rest.endswith(b"\n"):
            break
        if more > COUNTED:
            file.seek(0, io.SEEK_END)
    if not more:
        return line
    return line + f" [... {more:,} more bytes in this line]\n".encode()
