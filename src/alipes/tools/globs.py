"""File name patterns, as people write them for shells and for git. It looks at no file."""

import re
from functools import lru_cache


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
