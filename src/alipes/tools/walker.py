"""Searches files where there is no ripgrep: a small program of its own, speaking like ripgrep on its output.

It is a process because a regular expression that goes wild holds the interpreter, and a process can be
killed. So it imports next to nothing, and starts in a few hundredths of a second.
"""

import base64
import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from alipes.tools.globs import Wanted
from alipes.tools.ignoring import Ignored, ignored_from

SAMPLE = 65536
"""Bytes in which a zero tells that a file is no text."""
LONGEST = 1 << 20
"""Bytes of a line that are looked at."""
WIDEST = 64 << 20
"""Bytes of a file with two bytes per character, which is held in memory whole."""
_LITERAL = re.compile(r"[\w \-,;:=<>@#%&'\"/]+", re.ASCII)
_LOCAL = re.compile(r"(?:\\[wdb.\\/()\[\]{}+*?|^$-]|\((?!\?)|\(\?:|\(\?i\)|\[(?!\^)|[^\\(\[])+")
"""Patterns that cannot reach beyond a line: a file is looked through at once before its lines are."""
_WIDE = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def main(order: str) -> NoReturn:
    """Do what the JSON `order` says. Exits like ripgrep: 0 found, 1 nothing found, 2 something went wrong."""
    try:
        search = _Search(json.loads(order))
    except re.error as error:
        sys.exit(f"error: {error}")
    found = search.run()
    sys.exit(2 if search.troubled else 0 if found else 1)


class _Search:
    def __init__(self, order: dict[str, Any]) -> None:
        self.mode: str = order["mode"]
        pattern: str = order["pattern"] if self.mode != "files" else ""
        self.regex = re.compile(pattern)
        self.literal = pattern.encode() if _LITERAL.fullmatch(pattern) else b""
        self.whole = re.compile(pattern, re.MULTILINE) if _LOCAL.fullmatch(pattern) else re.compile("")
        self.around: int = order["context"]
        self.largest: int = order["largest"]
        self.skipped: list[str] = order["skipped"]
        self.wanted = Wanted(order["glob"]) if order["glob"] else None
        self.start: str = order["start"]
        self.troubled = False
        self._out = sys.stdout.buffer

    def run(self) -> bool:
        if self.mode == "files":
            return self._print(os.fsencode(path) + b"\0" for path in self._files())
        found = False
        for path in self._files():  # file by file: what was found is on its way before the next is opened
            found = self._print(self._rows(path)) or found
        return found

    def _print(self, rows: Iterable[bytes]) -> bool:
        found = False
        for row in rows:
            found = True
            self._out.write(row)
        if found:
            self._out.flush()
        return found

    def _files(self) -> Iterator[str]:
        """Paths from where we are, in the order of their names, folder by folder."""
        if not os.path.isdir(self.start):
            yield self.start
            return
        here = os.getcwd()
        waiting = [self._listed(".", here, ignored_from(here))]
        while waiting:
            found = next(waiting[-1], None)
            if found is None:
                waiting.pop()
                continue
            path, whole, ignored = found
            if ignored is not None:
                waiting.append(self._listed(path, whole, ignored))
            elif self.wanted is None or self.wanted(path[2:]):
                yield path

    def _listed(self, folder: str, whole: str, ignored: Ignored) -> Iterator[tuple[str, str, Ignored | None]]:
        """What is to be seen in a folder; folders come with the rules that hold in them."""
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except OSError:
            self.troubled = True
            return
        if folder != ".":
            ignored = ignored.below(whole, {entry.name for entry in listed})
        for entry in listed:
            inside, is_folder = os.path.join(whole, entry.name), entry.is_dir(follow_symlinks=False)
            if entry.name.startswith(".") or inside in self.skipped or (inside, is_folder) in ignored:
                continue
            if is_folder or entry.is_file(follow_symlinks=False):
                yield f"{folder}/{entry.name}", inside, ignored if is_folder else None

    def _rows(self, path: str) -> Iterator[bytes]:
        name = os.fsencode(path)
        try:
            lines = self._lines(path)
            if self.mode == "content":
                yield from self._content(name, lines)
            elif self.mode == "count":
                if count := sum(1 for line in lines if self.regex.search(line)):
                    yield b"%s\0%d\n" % (name, count)
            elif any(self.regex.search(line) for line in lines):
                yield name + b"\0"
        except OSError:
            self.troubled = True

    def _lines(self, path: str) -> Iterator[str]:
        """The lines of a text file; none when it is no text, is too large, or cannot have a match."""
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or (self.largest and facts.st_size > self.largest):
                return
            start = file.read(SAMPLE) or b""
            codec = next((codec for mark, codec in _WIDE if start.startswith(mark)), "")
            if not codec and b"\0" in start:
                return
            file.seek(0)
            if codec or facts.st_size <= max(self.largest, SAMPLE):
                yield from self._split(file.read(min(facts.st_size, WIDEST) or SAMPLE) or b"", codec)
                return
            while line := file.readline(LONGEST):
                if b"\0" in line:
                    return
                yield _text(line.rstrip(b"\r\n"))
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST)

    def _split(self, data: bytes, codec: str) -> Iterator[str]:
        if not codec and self.literal not in data:
            return
        text = data[2:].decode(codec, "replace") if codec else _text(data)
        text = text.replace("\r\n", "\n").removesuffix("\r")
        if self.whole.search(text):
            for line in text.removesuffix("\n").split("\n"):
                if "\0" in line:
                    return
                yield line

    def _content(self, name: bytes, lines: Iterator[str]) -> Iterator[bytes]:
        before: deque[tuple[int, str]] = deque(maxlen=self.around)
        owed = 0
        for number, line in enumerate(lines, 1):
            if match := self.regex.search(line):
                yield from (_row("context", name, n, text, -1) for n, text in before)
                before.clear()
                yield _row("match", name, number, line, len(_bytes(line[: match.start()])))
                owed = self.around
            elif owed:
                yield _row("context", name, number, line, -1)
                owed -= 1
            else:
                before.append((number, line))


def _text(data: bytes) -> str:
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _row(kind: str, name: bytes, number: int, line: str, at: int) -> bytes:
    found = [{"start": at}] if at >= 0 else []
    data = {"path": _value(name), "lines": _value(_bytes(line)), "line_number": number, "submatches": found}
    return json.dumps({"type": kind, "data": data}).encode() + b"\n"


def _value(raw: bytes) -> dict[str, str]:
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(raw).decode()}
