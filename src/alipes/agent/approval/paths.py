"""Which places a command touches, and how much that matters. It looks at names and links only."""

import glob
import os
import re
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from alipes.agent.approval.shell.lexer import HOLE, Word
from alipes.tools.common import Places

_SYSTEM = (
    "/etc",
    "/boot",
    "/dev",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/sys",
    "/proc",
    "/var/lib",
    "/opt",
)
_HARMLESS = r"/dev/(?:null|zero|full|tty|std(?:in|out|err)|fd/\d+|pts/\d+)$|/proc/[^/]+/fd/\d+$"
_STARTUP = (
    r"\.(?:bashrc|bash_profile|bash_login|bash_aliases|profile|zshrc|zshenv|zprofile|gitconfig)$"
    r"|\.(?:ssh|config/autostart|config/systemd|config/git|local/bin)(?:/|$)"
)
_EVERYTHING = {"*", ".*", "**", "?*", ".[!.]*", ".??*"}
_SECRET_TEXT = (
    r"\.ssh/id_(?!\w+\.pub\b)|\.aws/credentials|/proc/[^/\s]+/(?:task/[^/\s]+/)?(?:environ|mem\b)|/proc/\0/(?:fd|root|cwd)"
    r"|\.netrc\b|\.git-credentials|\.gnupg/|/etc/g?shadow"
)
_NAMING = frozenset(("ls", "stat", "test", "[", "cd", "pushd", "echo", "file", "du", "pwd", "realpath"))
"""Commands that tell no more of a file than that it is there."""


class Risk(Struct, frozen=True):
    """Why somebody should be asked first."""

    rule: str
    """A short name, the same for all commands of this kind."""
    reason: str
    """What the command does, as the end of a sentence that begins with "it"."""


class Ground:
    """The places around the commands of one text.

    `cd` moves it. As a `cd` may fail, and may count inside brackets only, there may be several places
    where we are; what is a risk in one of them is a risk. None is a place that nobody knows.
    """

    def __init__(self, places: Places, workdir: str, start: str = "") -> None:
        """`workdir` is the place of the work; `start` where the text begins, if that is elsewhere."""
        self.workdir = os.path.realpath(workdir or os.getcwd())
        self._here: set[str | None] = {os.path.realpath(start or self.workdir)}
        self._before = set(self._here)
        self._linked = False
        self._places = places
        self._own, self._home = os.path.realpath(places.own), os.path.realpath(places.home)
        self._own_text = re.escape(os.path.basename(self._own)) + r"/+(?:\.env|[\w.-]*\.db|run/)"
        secret = (os.path.join(self._home, folder) for folder in (".ssh", ".aws", ".gnupg"))
        self._kept: set[str | None] = {self._own, *secret}

    def known(self) -> dict[str, str]:
        """The variables whose values are places."""
        return {
            "HOME": self._places.home,
            "PWD": next(iter(self._here)) or HOLE,
            "ALIPES_HOME": self._places.own,
            "TMPDIR": "/tmp",
        }

    def go(self, word: Word | None) -> None:
        """What `cd` does."""
        self._here = {self._home} if word is None else set(self._paths(word)) or {None}

    def step(self, sign: str) -> None:
        """A command ended so; only after `&&` is it sure that it was run, and did what it should."""
        if sign != "&&":
            self._here |= self._before
            self._before = set(self._here)

    def link(self) -> None:
        """A link is made: from now on names may lead anywhere."""
        self._linked = True

    def clearing(self, rule: str, word: Word) -> Risk | None:
        """The risk of removing or changing whatever is below a path."""
        text = word.text
        if word.glob and text.rpartition("/")[2] in _EVERYTHING:
            text = text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")
        paths = self._paths(Word(text))
        if not paths or None in paths or self._linked:
            return Risk(rule, "removes or changes whole folders, and which is known only when it runs")
        risky = [path for path in paths if path and not self._is_spacious(path)]
        return Risk(rule, f"removes or changes everything in {risky[0]}") if risky else None

    def uprooting(self, word: Word) -> Risk | None:
        """The risk of moving a folder away that others stand in."""
        for path in self._paths(word):
            if path and any(_is_in(place, path) for place in (self._own, self._home, self.workdir)):
                return Risk("remove", f"takes {path} away")
        return None

    def writing(self, word: Word) -> Risk | None:
        """The risk of creating, changing or removing one file."""
        if re.match(_HARMLESS, word.text):
            return None
        paths = self._paths(word if word.sure else Word(word.text.partition(HOLE)[0]))
        return next((risk for path in paths if path and (risk := self._written(path))), None)

    def _written(self, path: str) -> Risk | None:
        if re.match(_HARMLESS, path):
            return None
        if _is_in(path, self._own) and not _is_in(path, os.path.join(self._own, "spill")):
            return Risk("own", f"changes {path}, which belongs to this program")
        if _is_in(path, self._home) and re.match(_STARTUP, os.path.relpath(path, self._home)):
            return Risk("startup", f"changes {path}, which other programs run or trust")
        part_of_system = os.path.dirname(path) == "/" or any(_is_in(path, folder) for folder in _SYSTEM)
        if part_of_system and not self._is_spacious(path):
            return Risk("system", f"changes {path}, a part of the system")
        return None

    def reading(self, name: str, word: Word) -> Risk | None:
        """The risk that the command `name` shows a secret because of this word."""
        if re.search(_SECRET_TEXT, word.text) or re.search(self._own_text, word.text):
            return Risk("secret", "reads a file that holds secrets")
        for path in self._named(word):
            if self._places.secrecy(path) or (name not in _NAMING and path in self._kept):
                return Risk("secret", f"reads {path}, which holds secrets")
        return None

    def carrying_off(self, word: Word) -> Risk | None:
        """The risk of taking a copy of a folder that has secrets somewhere in it."""
        for path in self._paths(word):
            if path and path != self.workdir and any(kept and _is_in(kept, path) for kept in self._kept):
                return Risk("secret", f"copies {path}, and the secrets in it")
        return None

    def among_secrets(self, name: str) -> Risk | None:
        """The risk of doing anything but look around in a folder of secrets."""
        if name not in _NAMING and self._here & self._kept:
            return Risk("secret", "works in a folder that holds secrets")
        return None

    def _named(self, word: Word) -> Iterator[str]:
        """The files that may be named in a word, also as in `if=x`, `@x` or `x:y`."""
        if not word.sure or len(word.text) > 4096:
            return
        for text in {word.text, *re.split(r"[=@:,]", word.text)}:
            for path in self._paths(Word(text)) if text and not text.startswith("-") else ():
                if path:
                    yield path
                    if word.glob:
                        yield from map(os.path.realpath, islice(glob.iglob(path), 100))

    def _paths(self, word: Word) -> list[str | None]:
        """The real paths that a word may name; none when that is known only when it runs."""
        if not word.sure:
            return []
        here: set[str | None] = {"/"} if word.text.startswith("/") else self._here
        try:
            return [place and os.path.realpath(os.path.join(place, word.text)) for place in here]
        except ValueError:  # half a character: no file has such a name
            return []

    def _is_spacious(self, path: str) -> bool:
        """May everything below `path` go unasked? In the working directory and in scratch space it may."""
        if _is_in(path, self._own) or _is_in(self._own, path) or _is_in(self.workdir, path):
            return False
        if any(_is_in(path, folder) and path != folder for folder in self._places.scratch):
            return True
        if not _is_in(path, self.workdir):
            return False
        if _is_in(self._home, self.workdir):  # working in the home itself, or above it
            inside = os.path.relpath(path, self._home)
            return "/" in inside and not inside.startswith(".")
        return ".git" not in os.path.relpath(path, self.workdir).split("/")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
