"""Search engines: command lines of ripgrep and of our walker, and parsing of their output."""

import io
import os
import re
import sys
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

import alipes
from alipes.kernel.lazy import lazy_pattern
from alipes.tools.search.walker import MAX_UTF16_BYTES, GlobFilter

SearchMode: TypeAlias = Literal["content", "files_only", "count", "files"]
MAX_FILE_BYTES = 16 << 20
"""Larger files are searched only if they are named themselves."""
_PLAIN = lazy_pattern(r"[\w.*?+@ -]+", re.ASCII)
_KERNEL = ("/proc", "/sys", "/dev")
_WALKER = "import sys; sys.path.append(sys.argv[1]); from alipes.tools.search import walker; walker.main(sys.argv[2])"
MAX_LINE_CHARS = 300
MAX_PAGE_CHARS = 30_000
MAX_ROW_BYTES = 4 << 20
"""Longer rows of an engine are skipped."""
MAX_COMPARED_BYTES = 65536
"""Bytes of a line that are compared with the file."""


class SearchRequest(Struct, frozen=True):
    """A search for an engine. Paths in its output start with `start`."""

    folder: str
    """Working directory of the engine."""
    mode: SearchMode
    pattern: str = ""
    start: str = "."
    """`.` for the folder, or the path of one opened file."""
    glob: str = ""
    context: int = 0

    @property
    def max_file_bytes(self) -> int:
        """0: no limit."""
        return MAX_FILE_BYTES if self.start == "." else 0

    @property
    def rows(self) -> Literal["content", "files"]:
        """What the engine prints: lines, so that they can be compared with the files, or names."""
        return "files" if self.mode == "files" else "content"

    @property
    def max_lines(self) -> int:
        """Matching lines of one file. 0: no limit."""
        return 1 if self.mode == "files_only" else 0

    @property
    def skipped_folders(self) -> list[str]:
        """Kernel folders, skipped in a search of /: some of their files never end."""
        return [path for path in _KERNEL if self.folder == "/"]


def ripgrep_command(program: str, order: SearchRequest) -> list[str]:
    # --no-messages: errors would be mixed with the rows, as the child has one pipe
    argv = [program, "--no-config", "--no-messages", "--no-ignore-global", "--color=never", "--sort=path"]
    if order.mode == "files":
        argv += ["--files", "--null"]
    else:
        argv += ["--engine=auto", "--crlf", f"--regexp={order.pattern}", "--json", f"--context={order.context}"]
        argv += [f"--max-count={order.max_lines}"] if order.max_lines else []
    if order.max_file_bytes and order.mode != "files":
        argv.append(f"--max-filesize={order.max_file_bytes}")
    if order.glob:
        # --glob would include ignored files; a type matches names only, and `GlobFilter` does the rest
        names = GlobFilter(order.glob).names
        if names and all(_PLAIN.fullmatch(name) for name in names):
            argv += [f"--type-add=wanted:{name}" for name in names] + ["--type=wanted"]
    argv += [f"--glob=!{path}" for path in order.skipped_folders]
    return [*argv, "--", order.start]


def walker_command(order: SearchRequest) -> list[str]:
    """Command line of our walker. Without site packages Python starts in half the time."""
    limits = {"largest": order.max_file_bytes, "skipped": order.skipped_folders, "max_lines": order.max_lines}
    request = msgspec.json.encode(structs.asdict(order) | limits | {"mode": order.rows})
    package = str(Path(alipes.__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", _WALKER, package, request.decode()]


def pattern_error(messages: str) -> str:
    """The regex error in the output of an engine; empty if there is none."""
    found = re.search(r"^error: (.*)$", messages, re.MULTILINE) or re.search(r"PCRE2: error.*?: (.*)$", messages, re.M)
    return found[1].strip() if found else ""


class ResultRow(Struct, frozen=True):
    path: bytes
    number: int = 0
    """Line number."""
    text: str = ""
    match: bool = True
    """False: a context line."""
    digest: int = 0
    """Of the line; see `digest_line`."""


class SearchOutputParser:
    """Parses the output of an engine piece by piece."""

    def __init__(self, rows: Literal["content", "files"]) -> None:
        self._rows = rows
        self._buffer = bytearray()
        self._dropping = False
        self.skipped_rows = 0
        """Rows skipped because they were too long."""
        self.messages = ""
        """Output that is not a row: error messages of the engine."""

    def feed(self, piece: bytes) -> Iterator[ResultRow]:
        end = b"\n" if self._rows == "content" else b"\0"
        for n, part in enumerate(piece.split(end)):
            if n:
                yield from self._finish_row()
            if len(self._buffer) + len(part) > MAX_ROW_BYTES:
                self._dropping = True
                self._buffer.clear()
            elif not self._dropping:
                self._buffer += part

    def finish(self) -> None:
        """The output has ended; the rest is a message."""
        self._add_message(bytes(self._buffer))

    def _finish_row(self) -> Iterator[ResultRow]:
        row = bytes(self._buffer)
        self._buffer.clear()
        if self._dropping:
            self._dropping = False
            self.skipped_rows += 1
        elif self._rows == "content":
            yield from self._parse_json_row(row)
        else:
            yield ResultRow(row)

    def _parse_json_row(self, row: bytes) -> Iterator[ResultRow]:
        try:
            read = _ROW.decode(row)
        except msgspec.DecodeError:
            self._add_message(row)
            return
        if read.type in ("match", "context"):
            start = read.data.submatches[0].start if read.data.submatches else 0
            line = read.data.lines.raw.rstrip(b"\r\n")
            excerpt, match = _excerpt(line, start), read.type == "match"
            yield ResultRow(read.data.path.raw, read.data.line_number, excerpt, match, digest_line(line))

    def _add_message(self, raw: bytes) -> None:
        self.messages = (self.messages + raw.decode("utf-8", "replace") + "\n")[:4000]


class ResultPage:
    """Results from `offset`, as many as `limit` allows or fit. Counts matching lines, or files."""

    def __init__(self, mode: SearchMode, *, offset: int, limit: int, context: int) -> None:
        self._mode, self._offset, self._limit, self._context = mode, offset, limit, context
        self._before: deque[ResultRow] = deque(maxlen=context)
        self._room = MAX_PAGE_CHARS
        self._seen = 0
        self._last = b""
        self.rows: list[ResultRow] = []
        self.count = self.shown = 0
        """Results of this page, and those of them that the files contain."""
        self.more = False

    def add(self, row: ResultRow) -> bool:
        """Add a row; True if the page is full and there are more results."""
        if not row.match:
            (self.rows if self.count else self._before).append(row)
            return False
        if self._mode != "content":
            again, self._last = row.path == self._last, row.path
            if again:  # another line of a file that was counted, or passed over
                self.rows += [row] if self.rows and self.rows[-1].path == row.path else []
                return False
        self._seen += 1
        if self._seen <= self._offset:
            self._before.append(row)
            return False
        if self.count >= self._limit or self._room <= 0:
            self.more = True
            return True
        if not self.count:
            self.rows += [structs.replace(each, match=False) for each in self._before if self._near(each, row)]
        self.rows.append(row)
        self.count += 1
        self._room -= len(row.text) + 20 + (0 if self._mode == "content" else len(row.path))
        return False

    def trim(self) -> None:
        """Drop context of the first match that is not shown."""
        last = next((each for each in reversed(self.rows) if each.match), None)
        while last is not None and self.more and not self._near(self.rows[-1], last):
            self.rows.pop()

    def keep(self, is_true: Callable[[ResultRow], bool]) -> None:
        """Leave out the rows that are not what the files contain."""
        self.rows = [row for row in self.rows if is_true(row)]
        matches = [row.path for row in self.rows if row.match]
        self.shown = len(matches) if self._mode == "content" else len(set(matches))

    @property
    def next_offset(self) -> int:
        return self._offset + self.count

    def _near(self, one: ResultRow, other: ResultRow) -> bool:
        return one.path == other.path and abs(one.number - other.number) <= self._context


class _Bytes(Struct, frozen=True):
    text: str = ""
    base64: str = msgspec.field(default="", name="bytes")

    @property
    def raw(self) -> bytes:
        return b64decode(self.base64) if self.base64 else self.text.encode()


class _Submatch(Struct, frozen=True):
    start: int


class _Data(Struct, frozen=True):
    path: _Bytes = _Bytes()
    lines: _Bytes = _Bytes()
    line_number: int = 0
    submatches: list[_Submatch] = []


class _Row(Struct, frozen=True):
    type: Literal["begin", "match", "context", "end", "summary"]
    data: _Data


_ROW = msgspec.json.Decoder(_Row)


def digest_line(line: bytes) -> int:
    """To compare a line of an engine with that of the file."""
    return hash(line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")[:MAX_COMPARED_BYTES])


def has_lines(file: BinaryIO, lines: Mapping[int, int]) -> bool:
    """True if the file has lines with these digests, by number."""
    start, last, found = file.read(2), max(lines, default=0), 0
    file.seek(0)
    codec = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(start, "")
    text = file.read(MAX_UTF16_BYTES).decode(codec, "replace").removeprefix("\ufeff").encode() if codec else b""
    for number, line in enumerate(io.BytesIO(text) if codec else file, 1):
        if number in lines:
            if digest_line(line) != lines[number]:
                return False
            found += 1
        if number >= last:
            break
    return found == len(lines)


def _excerpt(line: bytes, start: int) -> str:
    """The line, or the part of a long line around the match."""
    if len(line) <= MAX_LINE_CHARS:
        return line.decode("utf-8", "replace")
    first = max(0, start - MAX_LINE_CHARS // 4)
    part = line[first : first + 4 * MAX_LINE_CHARS].decode("utf-8", "replace").lstrip("\ufffd")[:MAX_LINE_CHARS]
    after = "…" if first + len(part.encode()) < len(line) else ""
    return ("…" if first else "") + part + after


def quote_path(path: bytes) -> str:
    """A path as text, quoted for bash if it contains unprintable characters."""
    name = os.fsdecode(path)
    if name.isprintable():
        return name
    return "$'" + "".join(chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in path) + "'"
