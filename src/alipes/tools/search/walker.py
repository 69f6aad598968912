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
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import Any, NoReturn


def expand(glob: str) -> list[str]:
    """`a.{b,c}` as `a.b` and `a.c`; nested ones too. At most a few hundred, so that none explodes."""
    waiting, done = [glob], list[str]()
    while waiting:
        each = waiting.pop()
        braces = _innermost(each)
        if braces is None or len(waiting) + len(done) > 200:
            done.append(each)
            continue
        start, end = braces
        waiting += [each[:start] + choice + each[end + 1 :] for choice in each[start + 1 : end].split(",")]
    return sorted(done)


def _innermost(glob: str) -> tuple[int, int] | None:
    start = -1
    for n, char in enumerate(glob):
        if char == "{":
            start = n
        elif char == "}" and start >= 0:
            if "," in glob[start:n]:
                return start, n
            start = -1
    return None


@lru_cache(maxsize=4096)
def translate(glob: str) -> str:
    """The regular expression of a whole path: `*` and `?` stay within a name, `**` goes through folders."""
    parts: list[str] = []
    n = 0
    while n < len(glob):
        if glob.startswith("**/", n) and (n == 0 or glob[n - 1] == "/"):
            parts.append("(?:[^/]+/)*")
            n += 3
        elif glob.startswith("**", n) and n + 2 == len(glob) and (n == 0 or glob[n - 1] == "/"):
            parts.append(".+" if n else ".*")
            n += 2
        else:
            part, n = _piece(glob, n)
            parts.append(part)
    return "".join(parts)


def _piece(glob: str, n: int) -> tuple[str, int]:
    char = glob[n]
    if char == "*":
        while n < len(glob) and glob[n] == "*":
            n += 1
        return "[^/]*", n
    if char == "?":
        return "[^/]", n + 1
    if char == "[" and (found := _character_class(glob, n)):
        return found
    if char == "\\" and n + 1 < len(glob):
        return re.escape(glob[n + 1]), n + 2
    return re.escape(char), n + 1


def _character_class(glob: str, n: int) -> tuple[str, int] | None:
    """`[a-z]`, `[!a-z]`; None when it is never closed, and the bracket is just a bracket."""
    start = n + 1
    negated = glob[start : start + 1] in ("!", "^")
    start += negated
    end = glob.find("]", start + 1)  # a bracket that comes first is a member
    if end < 0:
        return None
    members = glob[start:end].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    members = members.replace("^", "\\^").replace("&", "\\&").replace("~", "\\~").replace("|", "\\|")
    return f"(?!/)[{'^' if negated else ''}{members}]", end + 1


class Wanted:
    """Which files a glob means. One without a slash is about names, one with a slash about paths.

    A leading `!` means all the others.
    """

    def __init__(self, glob: str) -> None:
        self._negated = glob.startswith("!")
        globs = expand(glob.removeprefix("!").removeprefix("./").removeprefix("/"))
        self._names, self._paths = (
            _together([each for each in globs if ("/" in each) == slashed]) for slashed in (False, True)
        )
        self.names = [] if self._negated else [_name(each) for each in globs]
        """Globs of names, one of which every wanted file has; empty when nothing is known."""

    def __call__(self, path: str) -> bool:
        """Is it wanted? `path` is seen from where the search began."""
        found = bool(
            (self._names and self._names.fullmatch(path.rpartition("/")[2]))
            or (self._paths and self._paths.fullmatch(path))
        )
        return found != self._negated


def _together(globs: list[str]) -> "re.Pattern[str] | None":
    return re.compile("|".join(f"(?:{translate(each)})" for each in globs), re.DOTALL) if globs else None


def _name(glob: str) -> str:
    name = glob.rpartition("/")[2]
    return "*" if set(name) <= {"*"} else name


NAMES = (".git", ".gitignore", ".ignore", ".rgignore")
_LARGEST = 1 << 20


class Rules:
    """The rules of one file, for what lies below `folder`."""

    def __init__(self, folder: str, text: str) -> None:
        self._skip = len(folder.rstrip("/")) + 1
        rules = [rule for rule in map(_rule, text.split("\n")) if rule]
        self._rules = [(re.compile(regex, re.DOTALL), ignored, only) for regex, ignored, only in rules]
        # one look tells that no rule applies, which is so for most paths
        self._any = re.compile("|".join(f"(?:{regex})" for regex, _, _ in rules) or r"(?!)", re.DOTALL)

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True: ignored; False: expressly not; None: not mentioned. The last rule that fits decides."""
        below = path[self._skip :]
        if not self._any.fullmatch(below):
            return None
        for regex, ignored, only_folders in reversed(self._rules):
            if (is_folder or not only_folders) and regex.fullmatch(below):
                return ignored
        return None


class Ignored:
    """The rules that hold in one folder: those of its own files, then those of the folders above it.

    `.ignore` always counts; `.gitignore` and `.git/info/exclude` count inside a repository, up to its root.
    """

    def __init__(self, folder: str, above: "Ignored | None" = None) -> None:
        self._above = above
        self._root = os.path.lexists(os.path.join(folder, ".git"))
        self._in_repository: bool = self._root or (above is not None and above._in_repository)
        self._plain = _read(folder, ".rgignore"), _read(folder, ".ignore")
        exclude = _read(folder, ".git/info/exclude") if self._root else None
        self._git = _read(folder, ".gitignore"), exclude

    def below(self, folder: str, names: Container[str]) -> "Ignored":
        """The rules in a folder below this one, which has entries of these names."""
        return Ignored(folder, self) if any(name in names for name in NAMES) else self

    def __contains__(self, entry: tuple[str, bool]) -> bool:
        """Is the path ignored? With it comes whether it is a folder."""
        verdict = self._plain_verdict(*entry)
        return bool(self._git_verdict(*entry) if verdict is None else verdict)

    def _plain_verdict(self, path: str, is_folder: bool) -> bool | None:
        verdict = _first(self._plain, path, is_folder)
        if verdict is None and self._above is not None:
            return self._above._plain_verdict(path, is_folder)
        return verdict

    def _git_verdict(self, path: str, is_folder: bool) -> bool | None:
        verdict = _first(self._git, path, is_folder) if self._in_repository else None
        if verdict is None and self._above is not None and not self._root:
            return self._above._git_verdict(path, is_folder)
        return verdict


def ignored_from(folder: str) -> Ignored:
    """The rules that hold in `folder`, with those of all folders above it."""
    rules = Ignored("/")
    parts = folder.rstrip("/").split("/")
    for depth in range(2, len(parts) + 1):
        rules = Ignored("/".join(parts[:depth]), rules)
    return rules


def _first(several: Iterable[Rules | None], path: str, is_folder: bool) -> bool | None:
    verdicts = (rules.verdict(path, is_folder) for rules in several if rules is not None)
    return next((verdict for verdict in verdicts if verdict is not None), None)


def _read(folder: str, name: str) -> Rules | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as file:
            return Rules(folder, file.read(_LARGEST))
    except OSError:
        return None


def _rule(line: str) -> tuple[str, bool, bool] | None:
    """The regular expression, whether it ignores, and whether it is about folders only."""
    line = line.removesuffix("\r")
    if line.startswith("#"):
        return None
    line = re.sub(r"(?<!\\) +$", "", line)
    ignored = not line.startswith("!")
    glob = line if ignored else line[1:]
    only_folders = glob.endswith("/")
    glob = glob.rstrip("/") if only_folders else glob
    if not glob:
        return None
    anywhere = "/" not in glob
    regex = translate(glob.lstrip("/"))
    try:
        re.compile(regex)
    except re.error:  # a range from z to a, for one
        return None
    return (f"(?:.*/)?{regex}" if anywhere else regex), ignored, only_folders


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
