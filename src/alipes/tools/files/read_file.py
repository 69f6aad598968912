"""Read a file: text by lines, images as images, folders as lists. Secrets and devices are not read."""

import asyncio
import codecs
import io
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import near
from alipes.kernel.messages import Image, Json, image_type
from alipes.kernel.ports import Act, Output, ToolSpec
from alipes.tools.common import Places

_BINARIES = (
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "a program or library (ELF)"),
    (b"MZ", "a Windows program"),
    (b"PK\x03\x04", "a zip archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"GGUF", "model weights (GGUF)"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"RIFF", "RIFF media"),
    (b"\xca\xfe\xba\xbe", "Java classes or a Mac binary"),
    (b"\0asm", "WebAssembly"),
)


def binary_kind(start: bytes) -> str:
    """A few words for what is neither text nor image."""
    if start[4:8] == b"ftyp":
        return "MP4 or HEIF media"
    return next((kind for magic, kind in _BINARIES if start.startswith(magic)), "binary data")


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


LINES, ROOM = 2_000, 40_000
"""Lines by default, and bytes at most, of one answer."""
LARGEST_IMAGE = 3_750_000
"""Bytes: what fits into five million once it is written in base 64, the least that any provider takes."""
ENTRIES = 200
UNSIZED = 4 << 20
"""Bytes read of a file that does not know its size, as under /proc."""


class ReadFile:
    """The `read_file` tool."""

    spec = ToolSpec(
        name="read_file",
        description="Read a text file, look at an image (png, jpeg, gif, webp), or list a folder.",
        schema={
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "offset": {"type": "integer", "description": "first line, from 1; negative: from the end"},
                "limit": {"type": "integer", "description": "lines, default 2000"},
            },
            "required": ["path"],
        },
        effect="read",
    )

    def __init__(self, places: Places, *, mask: Callable[[str], str] = str) -> None:
        """`mask` takes secrets out of what is shown."""
        self._places, self._mask = places, mask

    async def run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        path = self._places.locate(str(args["path"]), act.workdir)
        offset, limit = _whole(args, "offset", 1), max(1, _whole(args, "limit", LINES))
        try:
            given = await asyncio.to_thread(self._read, path, offset, limit)
        except (OSError, ValueError) as error:
            raise ToolError(_complaint(path, error)) from error
        return self._mask(given) if isinstance(given, str) else given

    def _read(self, path: Path, offset: int, limit: int) -> str | Output:
        self._refuse_secrets(os.path.realpath(path))
        # without O_NONBLOCK the opening of a pipe nobody writes to would never return
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            facts = os.fstat(handle)
            self._refuse_secrets(_opened(handle, path), facts)  # what the links led to when it was opened
            if stat.S_ISDIR(facts.st_mode):
                return _listing(path)
            if not stat.S_ISREG(facts.st_mode):
                raise ToolError(f"{path} is {_special(facts.st_mode)}; only files and folders can be read")
            with open(handle, "rb", closefd=False) as file:
                known = file if facts.st_size else io.BytesIO(file.read(UNSIZED))
                return _show(known, path, offset, limit)
        finally:
            os.close(handle)

    def _refuse_secrets(self, real: str, facts: os.stat_result | None = None) -> None:
        if self._places.secrecy(real) == "ours" or (facts and self._places.is_linked(facts)):
            raise ToolError(f"{real} holds secrets or the state of this program and is not shown")


def _show(file: BinaryIO, path: Path, offset: int, limit: int) -> str | Output:
    start = file.read(65536)
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if kind := image_type(start):
        if size > LARGEST_IMAGE:
            raise ToolError(f"{path} is an image of {size:,} bytes; more than {LARGEST_IMAGE:,} is too large")
        return Output(f"[{kind}, {size:,} bytes]", (Image(kind, file.read()),))
    if not start:
        return "(empty file)"
    encoding = encoding_of(start)
    text = narrow(file, encoding) if encoding else None
    if text is None:
        what = f"{encoding} text of more than {WIDE:,} bytes" if encoding else binary_kind(start)
        return f"[{path} is {what}, {size:,} bytes; use the terminal to look into it]"
    found = cut(text, offset=offset or 1, limit=limit, room=ROOM, encoding=_narrow_name(encoding))
    return _headed(found, encoding)


def _headed(found: Slice, encoding: str) -> str:
    last = found.first + found.count - 1
    total = f" of {found.lines:,}" if found.lines is not None else ""
    if not found.count:
        raise ToolError(f"there is no line {found.first}; the file has {found.lines or 'fewer'}")
    notes = [] if encoding == "utf-8" else [f"from {encoding}"]
    if found.first > 1 or last != found.lines:
        notes.append(f"lines {found.first}-{last}{total}")
    if last != found.lines:
        notes.append(f"go on with offset={last + 1}")
    return f"[{'; '.join(notes)}]\n{found.text}" if notes else found.text


def _narrow_name(encoding: str) -> str:
    return "latin-1" if encoding == "latin-1" else "utf-8"


def _listing(path: Path) -> str:
    with os.scandir(path) as entries:
        names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    more = f"\n[{len(names) - ENTRIES:,} more]" if len(names) > ENTRIES else ""
    return f"[{path} is a folder of {len(names):,}]\n" + "\n".join(names[:ENTRIES]) + more


def _opened(handle: int, path: Path) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return os.path.realpath(path)


def _special(mode: int) -> str:
    names = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a disk"))
    return next((name for test, name in names if test(mode)), "a device")


def _complaint(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"there is no {path}.{_instead(path)}"
    if isinstance(error, OSError) and error.strerror:
        return f"{path} cannot be read: {error.strerror}"
    return f"{path} cannot be read: {error}"


def _instead(path: Path) -> str:
    """What the model probably meant, or what there is."""
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    wanted = path.relative_to(folder).parts[0]
    found = near(wanted, names) or [name for name in names if wanted.lower() in name.lower()][:3]
    if found:
        return f" Did you mean {' or '.join(str(folder / name) for name in found)}?"
    some = ", ".join(sorted(names)[:10])
    return (
        f" {folder} has {some}{' and more' if len(names) > 10 else ''}." if names else f" {folder} is empty."
    )


def _whole(args: Mapping[str, Json], name: str, default: int) -> int:
    given = args.get(name)
    return given if isinstance(given, int) else default
