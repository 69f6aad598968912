"""Risks of the paths that a command reads, writes or deletes. It looks at names and links only."""

import glob
import os
import re
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from alipes.agent.approval.shell.lexer import UNKNOWN, ShellWord
from alipes.tools.common import Places

_SYSTEM = r"/(?:etc|boot|dev|usr|bin|sbin|lib|lib64|sys|proc|var/lib|opt)(?:/|\Z)"
_HARMLESS = r"/dev/(?:null|zero|full|tty|std(?:in|out|err)|fd/\d+|pts/\d+)$|/proc/[^/]+/fd/\d+$"
_STARTUP = (
    r"\.(?:bashrc|bash_profile|bash_login|bash_aliases|profile|zshrc|zshenv|zprofile|gitconfig)$"
    r"|\.(?:ssh|config/autostart|config/systemd|config/git|local/bin)(?:/|$)"
)
_MATCH_ALL = {"*", ".*", "**", "?*", ".[!.]*", ".??*"}
_SECRET_TEXT = (
    r"\.ssh/id_(?!\w+\.pub\b)|\.aws/credentials|/proc/[^/\s]+/(?:task/[^/\s]+/)?(?:environ|mem\b)|/proc/\0/(?:fd|root|cwd)"
    r"|\.netrc\b|\.git-credentials|\.gnupg/|/etc/g?shadow"
)
_NAME_ONLY_COMMANDS = frozenset(("ls", "stat", "test", "[", "cd", "pushd", "echo", "file", "du", "pwd", "realpath"))
"""Commands that show nothing of a file but its name and attributes."""


class Risk(Struct, frozen=True):
    """Why a call needs approval."""

    rule: str
    """Short name of the rule."""
    reason: str
    """What the command does: a verb phrase that completes "This command ..."."""


class PathChecker:
    """Checks paths in the commands of one shell text, and follows its `cd` commands.

    A `cd` may fail or apply only inside parentheses, so there may be several possible working directories;
    a risk in one of them is a risk. None means an unknown directory.
    """

    def __init__(self, places: Places, workdir: str, start: str = "") -> None:
        """`workdir` is the project directory; `start` the initial working directory if different."""
        self.workdir = os.path.realpath(workdir or os.getcwd())
        self._cwds: set[str | None] = {os.path.realpath(start or self.workdir)}
        self._previous_cwds = set(self._cwds)
        self.has_links = False
        """A link was created: from then on paths may lead anywhere."""
        self._places = places
        self._alipes_home, self._home = os.path.realpath(places.alipes_home), os.path.realpath(places.home)
        self._own_secret_text = re.escape(os.path.basename(self._alipes_home)) + r"/+(?:\.env|[\w.-]*\.db|run/)"
        secret = (os.path.join(self._home, folder) for folder in (".ssh", ".aws", ".gnupg"))
        self._secret_folders: set[str | None] = {self._alipes_home, *secret}

    def known_variables(self) -> dict[str, str]:
        """Values of variables that hold paths."""
        return {
            "HOME": self._places.home,
            "PWD": next(iter(self._cwds)) or UNKNOWN,
            "ALIPES_HOME": self._places.alipes_home,
            "TMPDIR": "/tmp",
        }

    def change_directory(self, word: ShellWord | None) -> None:
        """Follow a `cd`."""
        self._cwds = {self._home} if word is None else set(self._resolve(word)) or {None}

    def end_command(self, sign: str) -> None:
        """Note the end of a command. Only after `&&` is it certain that it ran successfully."""
        if sign != "&&":
            self._cwds |= self._previous_cwds
            self._previous_cwds = set(self._cwds)

    def check_clear(self, rule: str, word: ShellWord) -> Risk | None:
        """Risk of deleting or changing everything below a path."""
        text = word.text
        if word.has_glob and text.rpartition("/")[2] in _MATCH_ALL:
            text = text.rpartition("/")[0] or ("/" if text.startswith("/") else ".")
        paths = self._resolve(ShellWord(text))
        if not paths or None in paths or self.has_links:
            return Risk(rule, "deletes or changes whole directories that are only known at run time")
        risky = [path for path in paths if path and not self._is_free_area(path)]
        return Risk(rule, f"deletes or changes everything in {risky[0]}") if risky else None

    def check_move(self, word: ShellWord) -> Risk | None:
        """Risk of moving a directory that contains our home, the user's home or the project."""
        for path in self._resolve(word):
            if path and any(_is_in(place, path) for place in (self._alipes_home, self._home, self.workdir)):
                return Risk("remove", f"moves {path} away")
        return None

    def check_write(self, word: ShellWord) -> Risk | None:
        """Risk of creating, changing or deleting one file."""
        if re.match(_HARMLESS, word.text):
            return None
        paths = self._resolve(word if word.is_known else ShellWord(word.text.partition(UNKNOWN)[0]))
        return next((risk for path in paths if path and (risk := self._check_write(path))), None)

    def _check_write(self, path: str) -> Risk | None:
        if re.match(_HARMLESS, path):
            return None
        if _is_in(path, self._alipes_home) and not _is_in(path, os.path.join(self._alipes_home, "spill")):
            return Risk("own", f"changes {path}, which belongs to alipes")
        if _is_in(path, self._home) and re.match(_STARTUP, os.path.relpath(path, self._home)):
            return Risk("startup", f"changes {path}, which other programs run or trust")
        part_of_system = os.path.dirname(path) == "/" or re.match(_SYSTEM, path)
        if part_of_system and not self._is_free_area(path):
            return Risk("system", f"changes {path}, a system file")
        return None

    def check_read(self, name: str, word: ShellWord) -> Risk | None:
        """Risk that the command `name` shows a secret through this word."""
        if re.search(_SECRET_TEXT, word.text) or re.search(self._own_secret_text, word.text):
            return Risk("secret", "reads a file with secrets")
        for path in self._named_files(word):
            if self._places.secrecy(path) or (name not in _NAME_ONLY_COMMANDS and path in self._secret_folders):
                return Risk("secret", f"reads {path}, which holds secrets")
        return None

    def check_copy(self, word: ShellWord) -> Risk | None:
        """Risk of copying a directory that contains secrets."""
        for path in self._resolve(word):
            if path and path != self.workdir and any(kept and _is_in(kept, path) for kept in self._secret_folders):
                return Risk("secret", f"copies {path} with the secrets in it")
        return None

    def check_cwd(self, name: str) -> Risk | None:
        """Risk of working in a directory with secrets."""
        if name not in _NAME_ONLY_COMMANDS and self._cwds & self._secret_folders:
            return Risk("secret", "works in a directory with secrets")
        return None

    def _named_files(self, word: ShellWord) -> Iterator[str]:
        """Paths that a word may name, also as in `if=x`, `@x` or `x:y`."""
        if not word.is_known or len(word.text) > 4096:
            return
        for text in {word.text, *re.split(r"[=@:,]", word.text)}:
            for path in self._resolve(ShellWord(text)) if text and not text.startswith("-") else ():
                if path:
                    yield path
                    if word.has_glob:
                        yield from map(os.path.realpath, islice(glob.iglob(path), 100))

    def _resolve(self, word: ShellWord) -> list[str | None]:
        """Real paths that a word may name; none if it is only known at run time."""
        if not word.is_known:
            return []
        here: set[str | None] = {"/"} if word.text.startswith("/") else self._cwds
        try:
            return [place and os.path.realpath(os.path.join(place, word.text)) for place in here]
        except ValueError:  # invalid Unicode: no such file
            return []

    def _is_free_area(self, path: str) -> bool:
        """True if everything below `path` may be deleted: in the project and in temporary directories."""
        if _is_in(path, self._alipes_home) or _is_in(self._alipes_home, path) or _is_in(self.workdir, path):
            return False
        if any(_is_in(path, folder) and path != folder for folder in self._places.scratch):
            return True
        if not _is_in(path, self.workdir):
            return False
        if _is_in(self._home, self.workdir):  # the project is the home directory or above it
            inside = os.path.relpath(path, self._home)
            return "/" in inside and not inside.startswith(".")
        return ".git" not in os.path.relpath(path, self.workdir).split("/")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
