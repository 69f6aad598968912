"""The working directories that a shell text may be in, and the paths that its words may name."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import translate

from alipes.agent.approval.shell.lexer import UNKNOWN, ShellWord
from alipes.runtime.sandbox.policy import is_inside

MAX_GLOB_MATCHES = 100
MAX_LINKS = 80
"""Links of one text that are followed; with more of them, the working directory counts as unknown."""
MAX_LINKS_IN_PATH = 4
"""Links in one path that are followed."""
MAX_GLOB_VISITS = 5_000
"""Directory entries that are looked at for one pattern."""
_OWN_PROCESS = r"/proc/(?:self|thread-self)(?:/|$)|/proc/\d+/(?:cwd|root|fd)(?:/|$)|/dev/fd/"
"""Paths that mean something else in another process."""


class WorkingDirectories:
    """Follows `cd`. It may fail, or apply only inside parentheses, so several directories are possible.

    None is an unknown directory.
    """

    def __init__(self, start: str, home: str) -> None:
        self._home = home
        self.possible: set[str | None] = {os.path.realpath(start)}
        self._before = set(self.possible)
        self._likely: str | None = os.path.realpath(start)
        """The directory if every `cd` succeeded."""
        self._links: dict[str, set[str]] = {}
        """Links that the text made, and the paths that each may lead to."""
        self.is_predictable = True
        """False once `cd` itself may mean something else: CDPATH, a function of that name, a trap."""

    def change(self, word: ShellWord | None) -> None:
        """Follow a `cd`."""
        target = ShellWord(self._home) if word is None else word
        found = set(self.resolve(target)) if target.is_known and self.is_predictable else set()
        if target.has_glob:
            found = set(self.expand(target))
        is_known = target.is_known and not target.has_glob and self._likely is not None
        self._likely = os.path.realpath(os.path.join(self._likely or "/", target.text)) if is_known else None
        self.possible = found or {None}

    def is_likely(self, path: str, text: str) -> bool:
        """True if `text` names `path` when every `cd` succeeded; wildcards count by their directory."""
        folder, _, name = text.rpartition("/")
        if re.search(r"[*?\[]", name):
            text, path = folder or ("/" if text.startswith("/") else "."), os.path.dirname(path)
        if text.startswith("/"):
            return True
        return self._likely is not None and os.path.realpath(os.path.join(self._likely, text)) == path

    def note_link(self, link: str, target: str) -> None:
        """The text made a link, which is not there yet."""
        if len(self._links) >= MAX_LINKS:
            self.lose()
        elif not is_inside(target, link):
            self._links.setdefault(link, set()).add(target)

    def _follow(self, path: str) -> set[str]:
        """Where a path may lead by links that the text made."""
        found = {path}
        for _ in range(MAX_LINKS_IN_PATH):
            led = {
                os.path.realpath(target + each[len(link) :])
                for each in found
                for link, targets in self._links.items()
                if is_inside(each, link)
                for target in targets
            }
            if led <= found:
                break
            found |= led
        return found

    def lose(self) -> None:
        """Something else may have changed the directory."""
        self.possible, self._likely = {None}, None

    @contextmanager
    def restored(self, *, keep: bool = False) -> Iterator[None]:
        """What happens inside does not change the directory, unless `keep`."""
        before = set(self.possible), self._likely
        yield
        if not keep:
            self.possible, self._likely = before

    @contextmanager
    def anywhere(self) -> Iterator[None]:
        """Inside, the directory may also be one that is not known."""
        with self.restored():
            self.possible = {*self.possible, None}
            yield

    def end_command(self, operator: str) -> None:
        """Note the end of a command. Only after `&&` is it certain that it ran successfully."""
        if operator != "&&":
            self.possible |= self._before
            self._before = set(self.possible)

    def resolve(self, word: ShellWord) -> list[str | None]:
        """Real paths that a word may name, wildcards not expanded; none if it is only known at run time."""
        if not word.is_known:
            return []
        if names_own_process(word.text):
            return [None]
        here: set[str | None] = {"/"} if word.text.startswith("/") else self.possible
        try:
            paths = [place and os.path.realpath(os.path.join(place, word.text)) for place in here]
        except ValueError:  # invalid Unicode: no such file
            return []
        return [led for path in paths for led in (self._follow(path) if path and self._links else (path,))]

    def expand(self, word: ShellWord) -> list[str]:
        """Real paths that a word may name: as written, and the matches of its wildcards."""
        found = [path for path in self.resolve(word) if path]
        if word.has_glob and word.is_known:
            places = {"/"} if word.text.startswith("/") else self.possible
            written = [os.path.join(place, word.text) for place in places if place]
            found += [os.path.realpath(path) for pattern in written for path in match_glob(pattern)]
        return found


def match_glob(pattern: str) -> list[str]:
    """Existing paths that match an absolute pattern. Bounded; skips directories that cannot be read."""
    found, visits = ["/"], [MAX_GLOB_VISITS]
    for part in pattern.split("/"):
        if not part:
            continue
        if not re.search(r"[*?\[]", part):
            found = [os.path.join(folder, part) for folder in found]
        else:
            matches = re.compile(translate(part)).match
            names = ((folder, name) for folder in found for name in _names_in(folder, visits))
            found = [
                os.path.join(folder, name)
                for folder, name in names
                if matches(name) and (part[0] == "." or not name.startswith("."))
            ][:MAX_GLOB_MATCHES]
    return [path for path in found if os.path.lexists(path)]


def _names_in(folder: str, visits: list[int]) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            visits[0] -= 1
            if visits[0] < 0:
                return
            yield entry.name


def names_own_process(text: str) -> bool:
    """True for a path that means something else in the process that uses it."""
    return re.match(_OWN_PROCESS, re.sub(r"^/+", "/", text)) is not None


def known_prefix(word: ShellWord) -> tuple[str, bool]:
    """The text before the unknown part, and whether the unknown part starts a new path segment."""
    prefix = word.text.partition(UNKNOWN)[0]
    return prefix, not prefix or prefix.endswith("/")
