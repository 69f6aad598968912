"""What `.gitignore` and its kin keep out of a search. It reads those files and nothing else."""

import os
import re
from collections.abc import Container, Iterable

from alipes.tools.globs import translate

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
