"""`read_file`: text by lines, documents as text, images as images, directories as lists."""

import asyncio
import io
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import closest_matches
from alipes.kernel.messages import Image, Json, image_type
from alipes.kernel.ports import ToolContext, ToolOutput
from alipes.tools.boundary import FileBoundary, OpenedPath, reading
from alipes.tools.common import describe_file_type, int_argument
from alipes.tools.documents.documents import DocumentConverter, DocumentText, describe_ole, document_kind, text_format
from alipes.tools.file_specs import READ_FILE
from alipes.tools.files.text_file import binary_kind, detect_encoding, error_reason

BLOCK_BYTES = 1 << 20
MAX_COUNTED_BYTES = 256 << 20
"""Lines are counted in files up to this size."""
MAX_SEEK_BYTES = 1 << 30
"""How far into a file a line is searched."""
MAX_WIDE_BYTES = 32 << 20
"""Largest UTF-16 or UTF-32 file."""
MAX_LINE_BYTES = 4_000
DEFAULT_LINES, MAX_RESULT_BYTES = 2_000, 40_000
"""Default number of lines, and most bytes of one result."""
MAX_IMAGE_BYTES = 3_750_000
"""Fits into five million bytes after base64, the lowest limit of any provider."""
MAX_DOCUMENT_BYTES = 1 << 30
MAX_ENTRIES = 200
MAX_UNSIZED_BYTES = 4 << 20
"""Bytes read of files without a size, as in /proc."""


class LineSlice(Struct, frozen=True):
    text: str
    first: int
    """Number of its first line, from 1."""
    count: int
    lines: int | None
    """Lines of the file; None if it is too large to count."""


def to_utf8(file: BinaryIO, encoding: str) -> BinaryIO | None:
    """`file` converted from UTF-16 or UTF-32 to UTF-8; None if it is too large for that."""
    if not encoding.startswith(("utf-16", "utf-32")):
        return file
    whole = file.read(MAX_WIDE_BYTES + 1)
    return io.BytesIO(whole.decode(encoding, "replace").encode()) if len(whole) <= MAX_WIDE_BYTES else None


def read_lines(file: BinaryIO, *, offset: int, limit: int, room: int, encoding: str = "utf-8") -> LineSlice:
    """Up to `limit` lines and about `room` bytes from line `offset` (negative: from the end).

    Raises ValueError if the line is too far into the file.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    lines = _count_lines(file) if size <= MAX_COUNTED_BYTES else None
    if offset < 0:
        offset = max(1, (lines or 0) + 1 + offset)
    file.seek(0)
    found = _skip_lines(file, offset - 1)
    shown: list[bytes] = []
    while found and len(shown) < limit and room > 0 and (line := _read_line(file)):
        shown.append(line)
        room -= len(line)
    text = b"".join(shown).decode(encoding, "replace")
    return LineSlice(text.removeprefix("\ufeff") if offset == 1 else text, offset, len(shown), lines)


def _count_lines(file: BinaryIO) -> int:
    lines, last = 0, b"\n"
    while block := file.read(BLOCK_BYTES):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last != b"\n")


def _skip_lines(file: BinaryIO, lines: int) -> bool:
    """Skip this many lines. False if the file ends before."""
    at = 0
    while lines:
        block = file.read(BLOCK_BYTES)
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
        if at >= MAX_SEEK_BYTES:
            raise ValueError(f"the line is beyond the first {MAX_SEEK_BYTES:,} bytes; use the terminal tool")
    return True


def _read_line(file: BinaryIO) -> bytes:
    line = file.readline(MAX_LINE_BYTES)
    if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
        return line
    more = 0
    while rest := file.readline(BLOCK_BYTES):
        more += len(rest)
        if rest.endswith(b"\n"):
            break
        if more > MAX_COUNTED_BYTES:
            file.seek(0, io.SEEK_END)
    if not more:
        return line
    return line + f" [... {more:,} more bytes in this line]\n".encode()


class FoundDocument(Struct, frozen=True):
    """A file that is converted before it is shown."""

    kind: str
    data: bytes


class ReadFile:
    spec = READ_FILE

    def __init__(
        self, boundary: FileBoundary, *, mask: Callable[[str], str] = str, documents: DocumentConverter | None = None
    ) -> None:
        """`mask` removes secrets from the result. `documents`: converts files that are not text."""
        self._boundary, self._mask, self._documents = boundary, mask, documents

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        offset, limit = int_argument(args, "offset", 1), max(1, int_argument(args, "limit", DEFAULT_LINES))
        opened = await asyncio.to_thread(self._boundary.opened, str(args["path"]), act)
        return await self.read(opened, offset, limit)

    async def read(
        self, opened: OpenedPath, offset: int = 1, limit: int = DEFAULT_LINES, *, rendered: bool = False
    ) -> str | ToolOutput:
        """The content of a file or directory, which is closed. `rendered`: web pages and tables as Markdown. Raises
        `ToolError`."""
        path = opened.path
        try:
            given = await asyncio.to_thread(self._read, opened, offset, limit, rendered)
            if isinstance(given, FoundDocument):
                given = await self._convert(given, path, offset, limit)
        except (OSError, ValueError) as error:
            raise ToolError(f"{path} cannot be read: {error_reason(error)}") from error
        return self._mask(given) if isinstance(given, str) else given

    async def _convert(self, found: "FoundDocument", path: Path, offset: int, limit: int) -> str:
        if self._documents is None:
            raise ToolError(f"{path} is {binary_kind(found.data)}; use the terminal tool to inspect it")
        try:
            document = await self._documents.convert(found.data, found.kind)
        except ToolError as error:
            raise ToolError(f"{path} {error}") from error
        return await asyncio.to_thread(_format_document, document, offset, limit)

    def _read(self, opened: OpenedPath, offset: int, limit: int, rendered: bool) -> "str | ToolOutput | FoundDocument":
        with opened:
            path, facts = opened.path, opened.facts
            self._boundary.refuse_secrets(opened, "is not shown")
            if facts is None:
                raise ToolError(f"{path} does not exist.{_suggest_path(opened)}")
            if stat.S_ISDIR(facts.st_mode):
                return _list_folder(opened)
            if not stat.S_ISREG(facts.st_mode):
                raise ToolError(
                    f"{path} is {describe_file_type(facts.st_mode)}; only files and directories can be read"
                )
            with reading(opened) as file:
                size = os.fstat(file.fileno()).st_size
                if (kind := self._document_kind(file, path, rendered)) and size:
                    return FoundDocument(kind, file.read(MAX_DOCUMENT_BYTES + 1))
                known = file if size else io.BytesIO(file.read(MAX_UNSIZED_BYTES))
                return _format_file(known, path, offset, limit)

    def _document_kind(self, file: BinaryIO, path: Path, rendered: bool) -> str:
        if self._documents is None:
            return ""
        start = file.read(65536)
        file.seek(0)
        return document_kind(start, path.name) or (text_format(path.name) if rendered else "")


def _format_file(file: BinaryIO, path: Path, offset: int, limit: int) -> str | ToolOutput:
    start = file.read(65536)
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if kind := image_type(start):
        if size > MAX_IMAGE_BYTES:
            raise ToolError(f"{path} is an image of {size:,} bytes; the maximum is {MAX_IMAGE_BYTES:,}")
        return ToolOutput(f"[{kind}, {size:,} bytes]", (Image(kind, file.read()),))
    if not start:
        return "(empty file)"
    encoding = detect_encoding(start)
    text = to_utf8(file, encoding) if encoding else None
    if text is None:
        old = describe_ole(start)
        what = f"{encoding} text of more than {MAX_WIDE_BYTES:,} bytes" if encoding else old or binary_kind(start)
        return f"[{path} is {what}, {size:,} bytes; use the terminal tool to inspect it]"
    codec = "latin-1" if encoding == "latin-1" else "utf-8"
    found = read_lines(text, offset=offset or 1, limit=limit, room=MAX_RESULT_BYTES, encoding=codec)
    return _format_slice(found, encoding)


def _format_slice(found: LineSlice, encoding: str) -> str:
    last = found.first + found.count - 1
    total = f" of {found.lines:,}" if found.lines is not None else ""
    if not found.count:
        raise ToolError(f"line {found.first} does not exist; the file has {found.lines or 'fewer'} lines")
    notes = [] if encoding == "utf-8" else [f"from {encoding}"]
    if found.first > 1 or last != found.lines:
        notes.append(f"lines {found.first}-{last}{total}")
    if last != found.lines:
        notes.append(f"continue with offset={last + 1}")
    return f"[{'; '.join(notes)}]\n{found.text}" if notes else found.text


def _format_document(document: DocumentText, offset: int, limit: int) -> str:
    text = io.BytesIO(document.text.encode(errors="replace"))
    found = read_lines(text, offset=offset or 1, limit=limit, room=MAX_RESULT_BYTES)
    if not found.count:
        raise ToolError(f"line {found.first} does not exist; the text of this document has {found.lines} lines")
    last = found.first + found.count - 1
    notes = [document.summary]
    if found.first > 1 or last != found.lines:
        notes += filter(
            None, (document.describe_lines(found.first, last), f"lines {found.first}-{last} of {found.lines:,}")
        )
    if last != found.lines:
        notes.append(f"continue with offset={last + 1}")
    return f"[{'; '.join(notes)}]\n{found.text}"


def _list_folder(opened: OpenedPath) -> str:
    handle = opened.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(handle) as entries:
            names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    finally:
        os.close(handle)
    more = f"\n[{len(names) - MAX_ENTRIES:,} more]" if len(names) > MAX_ENTRIES else ""
    count = f"{len(names):,} {'entry' if len(names) == 1 else 'entries'}"
    return f"[{opened.path} is a directory with {count}]\n" + "\n".join(names[:MAX_ENTRIES]) + more


def _suggest_path(opened: OpenedPath) -> str:
    """A similar path, or the contents of the nearest existing folder."""
    try:
        names = opened.list_names()
    except OSError:
        return ""
    folder, wanted = opened.path.parents[len(opened.missing)], (*opened.missing, opened.path.name)[0]
    found = closest_matches(wanted, names) or [name for name in names if wanted.lower() in name.lower()][:3]
    if found:
        return f" Did you mean {' or '.join(str(folder / name) for name in found)}?"
    some = ", ".join(names[:10])
    return f" {folder} contains {some}{' and more' if len(names) > 10 else ''}." if names else f" {folder} is empty."
