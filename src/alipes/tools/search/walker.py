"""File search without ripgrep: a small program with the same output format.

It runs as a process, because a slow regular expression blocks the interpreter and a process can be killed.
It imports only the standard library, so that it starts fast.
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

from alipes.kernel.lazy import lazy_pattern

IGNORE_FILES = (".git", ".gitignore", ".ignore", ".rgignore")
_MAX_IGNORE_FILE_BYTES = 1 << 20
SAMPLE_BYTES = 65536
"""A null byte in this many first bytes means a binary file."""
MAX_LINE_BYTES = 1 << 20
"""Bytes of a line that are searched."""
MAX_UTF16_BYTES = 64 << 20
"""Largest UTF-16 file, as it is loaded into memory."""
_LITERAL = lazy_pattern(r"[\w \-,;:=<>@#%&'\"/]+", re.ASCII)
_SINGLE_LINE = lazy_pattern(r"(?:\\[wdb.\\/()\[\]{}+*?|^$-]|\((?!\?)|\(\?:|\(\?i\)|\[(?!\^)|[^\\(\[])+")
"""Patterns that cannot match across lines: the whole file is checked once before its lines."""
_BRACES = lazy_pattern(r"\{([^{}]*,[^{}]*)\}")
_UTF16_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def expand_braces(glob: str) -> list[str]:
    """Expand `a.{b,c}` to `a.b` and `a.c`, also nested; stops at a few hundred."""
    pending, done = [glob], list[str]()
    while pending:
        each = pending.pop()
        braces = _BRACES.search(each)
        if braces is None or len(pending) + len(done) > 200:
            done.append(each)
            continue
        pending += [each[: braces.start()] + choice + each[braces.end() :] for choice in braces[1].split(",")]
    return sorted(done)


@lru_cache(maxsize=4096)
def glob_to_regex(glob: str) -> str:
    """Regular expression for a path: `*` and `?` match within a name, `**` across folders."""
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
            part, n = _translate_next(glob, n)
            parts.append(part)
    return "".join(parts)


def _translate_next(glob: str, n: int) -> tuple[str, int]:
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
    """Translate `[a-z]` or `[!a-z]`; None if it is not closed and the bracket is literal."""
    start = n + 1
    negated = glob[start : start + 1] in ("!", "^")
    start += negated
    end = glob.find("]", start + 1)  # a first bracket is a member
    if end < 0:
        return None
    members = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", glob[start:end])
    return f"(?!/)[{'^' if negated else ''}{members}]", end + 1


class GlobFilter:
    """Matches paths by a glob: by name if it has no slash, else by path. A leading `!` negates it."""

    def __init__(self, glob: str) -> None:
        self._negated = glob.startswith("!")
        globs = expand_braces(glob.removeprefix("!").removeprefix("./").removeprefix("/"))
        self._names, self._paths = (
            _compile([each for each in globs if ("/" in each) == slashed]) for slashed in (False, True)
        )
        names = [each.rpartition("/")[2] for each in globs]
        self.names = [] if self._negated else ["*" if set(name) <= {"*"} else name for name in names]
        """Name globs, one of which every matching file fits; empty if there is no such list."""

    def __call__(self, path: str) -> bool:
        """True if `path`, relative to the start of the search, matches."""
        found = bool(
            (self._names and self._names.fullmatch(path.rpartition("/")[2]))
            or (self._paths and self._paths.fullmatch(path))
        )
        return found != self._negated


def _compile(globs: list[str]) -> "re.Pattern[str] | None":
    return re.compile("|".join(f"(?:{glob_to_regex(each)})" for each in globs), re.DOTALL) if globs else None


class IgnoreFile:
    """Rules of one ignore file, for paths below `folder`."""

    def __init__(self, folder: str, text: str) -> None:
        self._prefix_length = len(folder.rstrip("/")) + 1
        rules = [rule for rule in map(_parse_rule, text.split("\n")) if rule]
        self._rules = [(re.compile(regex, re.DOTALL), ignored, only) for regex, ignored, only in rules]
        # one check that no rule applies, which is true for most paths
        self._any = re.compile("|".join(f"(?:{regex})" for regex, _, _ in rules) or r"(?!)", re.DOTALL)

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True: ignored; False: re-included; None: no rule. The last matching rule decides."""
        below = path[self._prefix_length :]
        if not self._any.fullmatch(below):
            return None
        for regex, ignored, only_folders in reversed(self._rules):
            if (is_folder or not only_folders) and regex.fullmatch(below):
                return ignored
        return None


class IgnoreRules:
    """Ignore rules of one folder: of its own files, then of the folders above it.

    `.ignore` always applies; `.gitignore` and `.git/info/exclude` apply inside a repository, up to its root.
    """

    def __init__(self, folder: str, above: "IgnoreRules | None" = None) -> None:
        self._parent = above
        self._root = os.path.lexists(os.path.join(folder, ".git"))
        self._in_repository: bool = self._root or (above is not None and above._in_repository)
        self._ignore_files = _read_ignore_file(folder, ".rgignore"), _read_ignore_file(folder, ".ignore")
        exclude = _read_ignore_file(folder, ".git/info/exclude") if self._root else None
        self._git_files = _read_ignore_file(folder, ".gitignore"), exclude

    def for_folder(self, folder: str, names: Container[str]) -> "IgnoreRules":
        """The rules for a subfolder that contains these names."""
        return IgnoreRules(folder, self) if any(name in names for name in IGNORE_FILES) else self

    def __contains__(self, entry: tuple[str, bool]) -> bool:
        """True if the path is ignored. An entry is a path and whether it is a folder."""
        verdict = self._ignore_verdict(*entry)
        return bool(self._git_verdict(*entry) if verdict is None else verdict)

    def _ignore_verdict(self, path: str, is_folder: bool) -> bool | None:
        verdict = _first_verdict(self._ignore_files, path, is_folder)
        if verdict is None and self._parent is not None:
            return self._parent._ignore_verdict(path, is_folder)
        return verdict

    def _git_verdict(self, path: str, is_folder: bool) -> bool | None:
        verdict = _first_verdict(self._git_files, path, is_folder) if self._in_repository else None
        if verdict is None and self._parent is not None and not self._root:
            return self._parent._git_verdict(path, is_folder)
        return verdict


def load_ignore_rules(folder: str) -> IgnoreRules:
    """The rules for `folder`, including those of all folders above it."""
    rules = IgnoreRules("/")
    parts = folder.rstrip("/").split("/")
    for depth in range(2, len(parts) + 1):
        rules = IgnoreRules("/".join(parts[:depth]), rules)
    return rules


def _first_verdict(several: Iterable[IgnoreFile | None], path: str, is_folder: bool) -> bool | None:
    verdicts = (rules.verdict(path, is_folder) for rules in several if rules is not None)
    return next((verdict for verdict in verdicts if verdict is not None), None)


def _read_ignore_file(folder: str, name: str) -> IgnoreFile | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as file:
            return IgnoreFile(folder, file.read(_MAX_IGNORE_FILE_BYTES))
    except OSError:
        return None


def _parse_rule(line: str) -> tuple[str, bool, bool] | None:
    """Regular expression, whether it ignores, and whether it matches folders only; None for no rule."""
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
    regex = glob_to_regex(glob.lstrip("/"))
    try:
        re.compile(regex)
    except re.error:  # for example a range from z to a
        return None
    return (f"(?:.*/)?{regex}" if anywhere else regex), ignored, only_folders


def main(request: str) -> NoReturn:
    """Run the search in the JSON `request`. Exit codes as ripgrep: 0 matches, 1 no matches, 2 errors."""
    try:
        search = _Walk(json.loads(request))
    except re.error as error:
        sys.exit(f"error: {error}")
    found = search.run()
    sys.exit(2 if search.had_errors else 0 if found else 1)


class _Walk:
    def __init__(self, request: dict[str, Any]) -> None:
        self.mode: str = request["mode"]
        pattern: str = request["pattern"] if self.mode != "files" else ""
        self.regex = re.compile(pattern)
        self.literal_bytes = pattern.encode() if _LITERAL.fullmatch(pattern) else b""
        self.quick_check = re.compile(pattern, re.MULTILINE) if _SINGLE_LINE.fullmatch(pattern) else re.compile("")
        self.context_lines: int = request["context"]
        self.max_lines: int = request["max_lines"] or sys.maxsize
        self.max_file_bytes: int = request["largest"]
        self.skipped_folders: list[str] = request["skipped"]
        self.glob_filter = GlobFilter(request["glob"]) if request["glob"] else None
        self.start: str = request["start"]
        self.had_errors = False
        self._out = sys.stdout.buffer

    def run(self) -> bool:
        if self.mode == "files":
            return self._write_rows(os.fsencode(path) + b"\0" for path in self._walk_files())
        found = False
        for path in self._walk_files():  # print per file, so that results arrive before the next is read
            found = self._write_rows(self._search_file(path)) or found
        return found

    def _write_rows(self, rows: Iterable[bytes]) -> bool:
        found = False
        for row in rows:
            found = True
            self._out.write(row)
        if found:
            self._out.flush()
        return found

    def _walk_files(self) -> Iterator[str]:
        """Paths relative to the start, sorted by name, folder by folder."""
        if not os.path.isdir(self.start):
            yield self.start
            return
        here = os.getcwd()
        waiting = [self._list_folder(".", here, load_ignore_rules(here))]
        while waiting:
            found = next(waiting[-1], None)
            if found is None:
                waiting.pop()
                continue
            path, whole, ignored = found
            if ignored is not None:
                waiting.append(self._list_folder(path, whole, ignored))
            elif self.glob_filter is None or self.glob_filter(path[2:]):
                yield path

    def _list_folder(
        self, folder: str, whole: str, ignored: IgnoreRules
    ) -> Iterator[tuple[str, str, IgnoreRules | None]]:
        """Visible entries of a folder; subfolders come with their ignore rules."""
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except OSError:
            self.had_errors = True
            return
        if folder != ".":
            ignored = ignored.for_folder(whole, {entry.name for entry in listed})
        for entry in listed:
            inside, is_folder = os.path.join(whole, entry.name), entry.is_dir(follow_symlinks=False)
            if entry.name.startswith(".") or inside in self.skipped_folders or (inside, is_folder) in ignored:
                continue
            if is_folder or entry.is_file(follow_symlinks=False):
                yield f"{folder}/{entry.name}", inside, ignored if is_folder else None

    def _search_file(self, path: str) -> Iterator[bytes]:
        name = os.fsencode(path)
        try:
            lines = self._read_lines(path)
            yield from self._format_content(name, lines)
        except OSError:
            self.had_errors = True

    def _read_lines(self, path: str) -> Iterator[str]:
        """Lines of a text file; none if it is binary, too large or cannot match."""
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or (self.max_file_bytes and facts.st_size > self.max_file_bytes):
                return
            start = file.read(SAMPLE_BYTES) or b""
            codec = next((codec for mark, codec in _UTF16_MARKS if start.startswith(mark)), "")
            if not codec and b"\0" in start:
                return
            file.seek(0)
            if codec or facts.st_size <= max(self.max_file_bytes, SAMPLE_BYTES):
                yield from self._split_lines(
                    file.read(min(facts.st_size, MAX_UTF16_BYTES) or SAMPLE_BYTES) or b"", codec
                )
                return
            while line := file.readline(MAX_LINE_BYTES):
                if b"\0" in line:
                    return
                yield _decode(line.rstrip(b"\r\n"))
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES)

    def _split_lines(self, data: bytes, codec: str) -> Iterator[str]:
        if not codec and self.literal_bytes not in data:
            return
        text = data[2:].decode(codec, "replace") if codec else _decode(data)
        text = text.replace("\r\n", "\n").removesuffix("\r")
        if self.quick_check.search(text):
            for line in text.removesuffix("\n").split("\n"):
                if "\0" in line:
                    return
                yield line

    def _format_content(self, name: bytes, lines: Iterator[str]) -> Iterator[bytes]:
        before: deque[tuple[int, str]] = deque(maxlen=self.context_lines)
        context_left = found = 0
        for number, line in enumerate(lines, 1):
            if match := self.regex.search(line):
                yield from (_encode_row("context", name, n, text, -1) for n, text in before)
                before.clear()
                yield _encode_row("match", name, number, line, len(_encode(line[: match.start()])))
                context_left = self.context_lines
                found += 1
                if found == self.max_lines:
                    return
            elif context_left:
                yield _encode_row("context", name, number, line, -1)
                context_left -= 1
            else:
                before.append((number, line))


def _decode(data: bytes) -> str:
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _encode_row(kind: str, name: bytes, number: int, line: str, at: int) -> bytes:
    data = {
        "path": _encode_value(name),
        "lines": _encode_value(_encode(line)),
        "line_number": number,
        "submatches": [{"start": at}] if at >= 0 else [],
    }
    return json.dumps({"type": kind, "data": data}).encode() + b"\n"


def _encode_value(raw: bytes) -> dict[str, str]:
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(raw).decode()}
