"""Finds the git directories below a folder, in all the ways in which git finds them."""

import os
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from alipes.runtime.sandbox.policy import is_inside

MAX_FOLDERS = 20_000
"""Folders that are looked at; those near the root come first."""
MAX_INNER = 1_000
"""Submodules and work trees of one repository that are looked at."""
SKIPPED = frozenset({"node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".mypy_cache", ".ruff_cache"})
"""Folders with many files in which nobody works. A repository there matters only as a submodule."""
_BARE = frozenset({"HEAD", "objects", "refs"})


class FoundRepositories(Struct):
    """Git directories below a folder: real paths."""

    directories: set[str]
    is_complete: bool = True
    """False if there were too many folders to look at."""


def find_repositories(root: str, submodules: tuple[str, ...] = ()) -> FoundRepositories:
    """The git directories that git uses somewhere below `root`. `submodules`: folders to look at in any case."""
    found, left = FoundRepositories(set()), MAX_FOLDERS
    if os.path.basename(root) == ".git":
        _add(found, root, root)
        return found
    for folder in submodules:
        _add_named(found, os.path.join(folder, ".git"), root)
    folders = deque([root])
    while folders:
        folder = folders.popleft()
        left -= 1
        if left < 0:
            found.is_complete = False
            return found
        entries = _list_entries(folder)
        names = {entry.name for entry in entries}
        if ".git" in names:
            _add_named(found, os.path.join(folder, ".git"), root)
        if names >= _BARE:
            _add(found, folder, root)
            continue
        below = (entry for entry in entries if entry.name not in SKIPPED and entry.name != ".git")
        folders.extend(entry.path for entry in below if entry.is_dir(follow_symlinks=False))
    return found


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _add_named(found: FoundRepositories, path: str, root: str) -> None:
    """Add what `.git` is or names: a directory, a link, or a file with `gitdir:`."""
    if os.path.isdir(path):
        _add(found, path, root)
    elif named := _read_name(path, "gitdir:"):
        _add(found, os.path.join(os.path.dirname(path), named), root)


def _add(found: FoundRepositories, path: str, root: str) -> None:
    """Add a git directory, the one that it shares settings with, and those of its submodules and work trees."""
    waiting, seen = deque([path]), set[str]()
    while waiting and len(seen) < MAX_INNER:
        real = os.path.realpath(waiting.popleft())
        if real in seen or real in found.directories:
            continue
        seen.add(real)
        if is_inside(real, root):
            found.directories.add(real)
        if named := _read_name(os.path.join(real, "commondir"), ""):
            waiting.append(os.path.join(real, named))
        waiting.extend(inner for place in ("worktrees", "modules") for inner in _find_inner(os.path.join(real, place)))


def _find_inner(place: str) -> Iterator[str]:
    """Git directories below `modules`, whose names may contain slashes."""
    folders, left = [place], MAX_INNER
    while folders and left > 0:
        left -= 1
        for entry in _list_entries(folders.pop()):
            if entry.is_dir(follow_symlinks=False):
                is_repository = os.path.lexists(os.path.join(entry.path, "HEAD"))
                yield from (entry.path,) if is_repository else ()
                folders += [] if is_repository else [entry.path]


def _read_name(path: str, prefix: str) -> str:
    """The path in a small file, after `prefix`; empty if there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(handle, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(4096)
    except OSError:
        return ""
    return text.removeprefix(prefix).strip() if text.startswith(prefix) and "\0" not in text else ""
