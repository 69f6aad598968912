"""What an engine found, row by row, and the page of it that is shown. It starts no process."""

import os
import re
import sys
from base64 import b64decode
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

import alipes
from alipes.tools.search.walker import Wanted

Mode: TypeAlias = Literal["content", "files_only", "count", "files"]
LARGEST = 16 << 20
"""Bytes of a file that is searched when it was not named itself."""
_PLAIN = re.compile(r"[\w.*?+@ -]+", re.ASCII)
_KERNEL = ("/proc", "/sys", "/dev")
_WALKER = (
    "import sys; sys.path.append(sys.argv[1]); from alipes.tools import walker; walker.main(sys.argv[2])"
)


class Order(Struct, frozen=True):
    """What is wanted of an engine. Paths in its answer begin with `start`."""

    folder: str
    """Where it runs."""
    mode: Mode
    pattern: str = ""
    start: str = "."
    """The folder itself, or `./name` for one file in it."""
    glob: str = ""
    context: int = 0

    @property
    def largest(self) -> int:
        """0: of any size."""
        return LARGEST if self.start == "." else 0

    @property
    def skipped(self) -> list[str]:
        """Folders of the kernel's: some of their files never end. Whoever means them names them."""
        return [path for path in _KERNEL if self.folder == "/"]


def ripgrep(program: str, order: Order) -> list[str]:
    # --no-messages: its complaints would come between the rows, for a child has one pipe
    argv = [program, "--no-config", "--no-messages", "--no-ignore-global", "--color=never", "--sort=path"]
    if order.mode == "files":
        argv += ["--files", "--null"]
    else:
        argv += ["--engine=auto", "--crlf", f"--regexp={order.pattern}"]
        argv += {
            "content": ["--json", f"--context={order.context}"],
            "files_only": ["--files-with-matches", "--null"],
            "count": ["--count", "--with-filename", "--null"],
        }[order.mode]
    if order.largest and order.mode != "files":
        argv.append(f"--max-filesize={order.largest}")
    if order.glob:
        # no --glob: that would bring back what is ignored. A type knows names only; the rest is sifted later
        names = Wanted(order.glob).names
        if names and all(_PLAIN.fullmatch(name) for name in names):
            argv += [f"--type-add=wanted:{name}" for name in names] + ["--type=wanted"]
    argv += [f"--glob=!{path}" for path in order.skipped]
    return [*argv, "--", order.start]


def walker(order: Order) -> list[str]:
    """Our own, in an interpreter without site packages: it starts in half the time."""
    order_text = msgspec.json.encode(
        {
            "mode": order.mode,
            "pattern": order.pattern,
            "start": order.start,
            "glob": order.glob,
            "context": order.context,
            "largest": order.largest,
            "skipped": order.skipped,
        }
    )
    package = str(Path(alipes.__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", _WALKER, package, order_text.decode()]


def misgiving(said: str) -> str:
    """What an engine that found nothing had against the pattern; empty when it was something else."""
    found = re.search(r"^error: (.*)$", said, re.MULTILINE) or re.search(
        r"PCRE2: error.*?: (.*)$", said, re.M
    )
    return found[1].strip() if found else ""


WIDTH = 300
"""Characters shown of a line."""
ROOM = 30_000
"""Characters of a page, about."""
LONGEST = 4 << 20
"""Bytes of one row of an engine's output; what is longer is left out."""
_COUNTED = re.compile(rb"([^\0]*)\0(\d+)\r?\n")


class Finding(Struct, frozen=True):
    path: bytes
    number: int = 0
    """Of the line; or how many lines match, when only that was asked for."""
    text: str = ""
    match: bool = True
    """False: a line around one."""


class Reader:
    """Takes an engine's output piece by piece and gives out what it says."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._buffer = bytearray()
        self._dropping = False
        self.left_out = 0
        """Rows that were too long."""
        self.said = ""
        """What was no row: the engine's own words."""

    def feed(self, piece: bytes) -> Iterator[Finding]:
        if self._mode == "count":
            self._buffer += piece
            yield from self._counts()
            return
        end = b"\n" if self._mode == "content" else b"\0"
        for n, part in enumerate(piece.split(end)):
            if n:
                yield from self._row()
            if len(self._buffer) + len(part) > LONGEST:
                self._dropping = True
                self._buffer.clear()
            elif not self._dropping:
                self._buffer += part

    def finish(self) -> None:
        """There is no more: what is left was no row."""
        self._say(bytes(self._buffer))

    def _row(self) -> Iterator[Finding]:
        row = bytes(self._buffer)
        self._buffer.clear()
        if self._dropping:
            self._dropping = False
            self.left_out += 1
        elif self._mode == "content":
            yield from self._line(row)
        else:
            yield Finding(row)

    def _line(self, row: bytes) -> Iterator[Finding]:
        try:
            read = _ROW.decode(row)
        except msgspec.DecodeError:
            self._say(row)
            return
        if read.type in ("match", "context"):
            start = read.data.submatches[0].start if read.data.submatches else 0
            line = read.data.lines.raw.rstrip(b"\r\n")
            yield Finding(
                read.data.path.raw, read.data.line_number, _window(line, start), read.type == "match"
            )

    def _counts(self) -> Iterator[Finding]:
        at = 0
        while found := _COUNTED.match(self._buffer, at):
            yield Finding(found[1], int(found[2]))
            at = found.end()
        del self._buffer[:at]

    def _say(self, words: bytes) -> None:
        self.said = (self.said + words.decode("utf-8", "replace") + "\n")[:4000]


class Page:
    """The findings from `offset` on, as many as `limit` or as fit. Counted are lines that match, or files."""

    def __init__(self, mode: Mode, *, offset: int, limit: int, context: int) -> None:
        self._mode, self._offset, self._limit, self._context = mode, offset, limit, context
        self._before: deque[Finding] = deque(maxlen=context)
        self._room = ROOM
        self._seen = 0
        self.rows: list[Finding] = []
        self.count = 0
        self.more = False

    def take(self, finding: Finding) -> bool:
        """True when it is full, and there is more."""
        if not finding.match:
            (self.rows if self.count else self._before).append(finding)
            return False
        self._seen += 1
        if self._seen <= self._offset:
            self._before.append(finding)
            return False
        if self.count >= self._limit or self._room <= 0:
            self.more = True
            return True
        if not self.count:
            self.rows += [self._as_context(each) for each in self._before if self._near(each, finding)]
        self.rows.append(finding)
        self.count += 1
        self._room -= len(finding.text) + 20 + (0 if self._mode == "content" else len(finding.path))
        return False

    def close(self) -> None:
        """Drop what belongs to the finding after the last one shown."""
        last = next((each for each in reversed(self.rows) if each.match), None)
        while last is not None and self.more and not self._near(self.rows[-1], last):
            self.rows.pop()

    @property
    def next_offset(self) -> int:
        return self._offset + self.count

    def _near(self, one: Finding, other: Finding) -> bool:
        return one.path == other.path and abs(one.number - other.number) <= self._context

    def _as_context(self, finding: Finding) -> Finding:
        return Finding(finding.path, finding.number, finding.text, False)


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


def _window(line: bytes, start: int) -> str:
    """The line, or of a long one the part where the match is."""
    if len(line) <= WIDTH:
        return line.decode("utf-8", "replace")
    first = max(0, start - WIDTH // 4)
    part = line[first : first + 4 * WIDTH].decode("utf-8", "replace").lstrip("\ufffd")[:WIDTH]
    after = "…" if first + len(part.encode()) < len(line) else ""
    return ("…" if first else "") + part + after


def name_of(path: bytes) -> str:
    """A path to be shown: as it is, or quoted for bash where it has bytes or characters that do not show."""
    name = os.fsdecode(path)
    if name.isprintable():
        return name
    return "$'" + "".join(chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in path) + "'"
