"""Finds the git directories below a folder, in all the ways in which git finds them."""

import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from alipes.runtime.sandbox.policy import is_inside, real_path

MAX_FOLDERS = 20_000
"""Folders that are looked at; those near the root come first."""
MAX_INNER = 1_000
"""Submodules and work trees of one repository that are looked at."""
SKIPPED = frozenset({"node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".mypy_cache", ".ruff_cache"})
"""Folders with many files in which nobody works. A repository there matters only as a submodule."""
COMPILED = "__pycache__"
"""So many that only the one in the root is looked at, which editors may open."""
CLOCK_STEP_NS = 20_000_000
"""File systems note times a little late."""
_BARE = frozenset({"HEAD", "objects", "refs"}), frozenset({"HEAD", "commondir"})
"""Names in a folder that git takes for a git directory."""
_NAME_BYTES = 16_384
"""Longer than any path."""


class _Folder(Struct):
    """What a folder contained when it was last looked at."""

    stamp: tuple[int, int]
    """Its inode and time of change, which no program can set."""
    folders: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Folders in which nobody works, but which a program may open as a repository."""
    links: tuple[str, ...] = ()
    has_git: bool = False
    is_bare: bool = False


class FolderCache:
    """Remembers the content of folders, so that unchanged ones are not read again."""

    def __init__(self) -> None:
        self._known: dict[str, _Folder] = {}

    def look(self, path: str) -> _Folder:
        """The content of a folder; empty if it cannot be read."""
        try:
            facts = os.lstat(path)
        except OSError:
            return _Folder((0, 0))
        stamp = facts.st_ino, facts.st_ctime_ns
        known = self._known.get(path)
        if known is not None and known.stamp == stamp:
            return known
        found = _read_folder(path, stamp)
        if time.time_ns() - facts.st_ctime_ns > CLOCK_STEP_NS:  # else it may change again without a new time
            self._known[path] = found
        return found


def _read_folder(path: str, stamp: tuple[int, int]) -> _Folder:
    entries = _list_entries(path)
    names = {entry.name for entry in entries}
    below = [entry for entry in entries if entry.name != ".git" and entry.is_dir(follow_symlinks=False)]
    return _Folder(
        stamp,
        tuple(entry.path for entry in below if entry.name not in SKIPPED),
        tuple(entry.path for entry in below if entry.name in SKIPPED and entry.name != COMPILED),
        tuple(entry.path for entry in entries if entry.is_symlink()),
        ".git" in names,
        any(names >= each for each in _BARE),
    )


class FoundRepositories(Struct):
    """Git directories below a folder."""

    directories: dict[str, str]
    """Real paths, and the root that each is in."""
    outward: dict[str, tuple[str, str]]
    """Links and files that lead git to a directory outside of all roots: the root of each, and where it leads."""
    is_complete: bool = True
    """False if there were too many folders to look at."""


def find_repositories(
    roots: Sequence[str],
    submodules: Iterable[str] = (),
    cache: FolderCache | None = None,
    elsewhere: Sequence[str] = (),
) -> FoundRepositories:
    """The git directories that git uses somewhere below `roots`. `submodules`: folders to look at in any case.
    `elsewhere`: what commands may change besides; links to repositories in it lead outside."""
    cache = FolderCache() if cache is None else cache
    found = FoundRepositories({}, {})
    for folder in submodules:
        _add_named(found, os.path.join(folder, ".git"), roots)
    for root in roots:
        found.is_complete &= _look_below(found, root, roots, cache, elsewhere)
    return found


def _look_below(
    found: FoundRepositories, root: str, roots: Sequence[str], cache: FolderCache, elsewhere: Sequence[str]
) -> bool:
    """False if there are too many folders to look at."""
    left, linked = MAX_FOLDERS, set[str]()
    if os.path.basename(root) == ".git":
        _add(found, root, roots)
        return True
    _look_at(found, os.path.join(root, COMPILED), roots, cache)
    folders = deque([root])
    while folders:
        content = _look_at(found, folders.popleft(), roots, cache)
        left -= 1 + len(content.skipped) + len(content.links)
        if left < 0:
            return False
        if content.is_bare:
            continue
        for folder in content.skipped:
            _look_at(found, folder, roots, cache)
        folders.extend(content.folders)
        for link in filter(os.path.isdir, content.links):
            target = real_path(link)
            if _root_of(target, elsewhere) and _holds_repository(target, elsewhere):
                found.outward[link] = root, target
            elif target not in linked and _is_skipped(target, _root_of(target, roots)):
                linked.add(target)
                folders.append(target)
    return True


def _is_skipped(path: str, root: str) -> bool:
    """True for what is below `root`, if there is one, in a folder that is skipped."""
    return root != "" and not SKIPPED.isdisjoint(path[len(root) :].split("/"))


def _look_at(found: FoundRepositories, folder: str, roots: Sequence[str], cache: FolderCache) -> _Folder:
    """The content of a folder; a git directory that it has or is is added."""
    content = cache.look(folder)
    if content.has_git:
        _add_named(found, os.path.join(folder, ".git"), roots)
    if content.is_bare:
        _add(found, folder, roots)
    return content


def _holds_repository(folder: str, elsewhere: Sequence[str]) -> bool:
    """True if git finds a repository in the folder, around it or below."""
    cache, around = FolderCache(), folder
    while _root_of(around, elsewhere):
        content = cache.look(around)
        if content.has_git or content.is_bare:
            return True
        around = os.path.dirname(around)
    return bool(find_repositories((folder,), cache=cache).directories)


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _add_named(found: FoundRepositories, path: str, roots: Sequence[str]) -> None:
    """Add what `.git` is or names: a directory, a link, or a file with `gitdir:`."""
    with suppress(OSError):  # it is no link
        _note_outward(found, path, os.readlink(path), roots)
    if os.path.isdir(path):
        _add(found, path, roots)
    elif named := read_name(path, "gitdir: "):
        _note_outward(found, path, named, roots)
        _add(found, os.path.join(os.path.dirname(path), named), roots)


def _note_outward(found: FoundRepositories, path: str, named: str, roots: Sequence[str]) -> None:
    """Note the file or link at `path` if what it names is outside of the roots."""
    target = real_path(os.path.join(os.path.dirname(path), named))
    here = os.path.join(real_path(os.path.dirname(path)), os.path.basename(path))
    if not _root_of(target, roots) and (root := _root_of(here, roots)):
        found.outward[here] = root, target


def _root_of(path: str, roots: Sequence[str]) -> str:
    return next((root for root in roots if is_inside(path, root)), "")


def _add(found: FoundRepositories, path: str, roots: Sequence[str]) -> None:
    """Add a git directory, the one that it shares settings with, and those of its submodules and work trees."""
    waiting, seen = deque([path]), set[str]()
    while waiting and len(seen) < MAX_INNER:
        real = real_path(waiting.popleft())
        if real in seen or real in found.directories:
            continue
        seen.add(real)
        if root := _root_of(real, roots):
            found.directories[real] = root
        if named := read_name(os.path.join(real, "commondir"), ""):
            _note_outward(found, os.path.join(real, "commondir"), named, roots)
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


def read_name(path: str, prefix: str) -> str:
    """The path in a small file, after `prefix`, as git reads it: spaces belong to it, and a NUL ends it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(handle, _NAME_BYTES).decode(errors="surrogateescape")
    except OSError:  # it is a folder by now
        return ""
    finally:
        os.close(handle)
    return text.rstrip("\r\n").partition("\0")[0].removeprefix(prefix) if text.startswith(prefix) else ""


def read_settings(path: str) -> list[tuple[str, str]]:
    """Keys and values of a git configuration file, simple lines only; empty if it cannot be read."""
    section, found = "", list[tuple[str, str]]()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(200_000).splitlines()
    except OSError:
        return []
    for line in map(str.strip, lines):
        if head := re.fullmatch(r'\[\s*([\w.-]+)(?:\s+"([^"\\]*)")?\s*\]', line):
            section = ".".join(filter(None, head.groups()))
        elif pair := re.fullmatch(r"([A-Za-z][\w-]*)\s*=\s*([^\\]*)", line):
            found.append((f"{section}.{pair[1]}", pair[2]))
    return found
