"""Which folders are checkpointed, and which of their files: none that is ignored, large, secret or not ours."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from alipes.config.protected_paths import (
    PUBLIC_IN_PROJECT,
    SECRET_IN_PROJECT,
    is_secret_in_home,
    is_secret_in_project,
    is_secret_in_system,
)
from alipes.features.checkpoints.git import CheckpointError
from alipes.runtime.beneath import FOLDER, open_beneath
from alipes.runtime.sandbox.policy import is_inside
from alipes.tools.common import Places

MAX_FILES = 200_000
MAX_EXCLUDE_BYTES = 100_000
MAX_SEEN = 500
"""Entries of a nested repository that are looked at to find its first file."""
GENERATED = (
    *("node_modules/", ".venv/", "venv/", "__pycache__/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/"),
    *(".nox/", ".gradle/", ".terraform/", ".direnv/", ".DS_Store", "*.pyc"),
)
"""Ignored unless a .gitignore of the project says otherwise: programs make them again."""


class ProjectFolder(Struct, frozen=True):
    """A folder that is checkpointed. Both paths are absolute and without links."""

    path: str
    root: str
    """The repository around it, whose .gitignore files count; the folder itself if there is none."""

    @property
    def inner(self) -> str:
        """The folder relative to the root; empty if they are the same."""
        return os.path.relpath(self.path, self.root) if self.path != self.root else ""


def find_folder(workdir: str, home: str) -> ProjectFolder:
    """The folder of a turn. Raises `CheckpointError` if it is not a project."""
    path, home = os.path.realpath(workdir or os.getcwd()), os.path.realpath(home)
    if not os.path.isdir(path):
        raise CheckpointError(f"{path} is not a directory")
    if path == "/":
        raise CheckpointError("there are none of the whole file system; start alipes in a project")
    if is_inside(home, path):
        what = "your home" if home == path else "a folder that contains your home"
        raise CheckpointError(f"there are none of {what}, which is too large; start alipes in a project")
    root = path
    for folder in (Path(path), *Path(path).parents):
        if is_inside(home, str(folder)):
            break
        if (folder / ".git").exists():
            root = str(folder)
            break
    return ProjectFolder(path, root)


class Change(Struct, frozen=True):
    """A file that differs from the index."""

    path: str
    """Relative to the root of the folder."""
    is_new: bool = False
    is_gone: bool = False


class Selection(Struct):
    """What to do with the changed files."""

    update: list[str] = []
    """To be stored."""
    forget: list[str] = []
    """In the index, and gone or no longer to be stored."""
    skipped: list[str] = []
    """Too large, unreadable, or secret."""
    nested: list[str] = []
    """First files of repositories inside; the others are found when these are in the index."""
    size: int = 0


class FileRules:
    """Decides for each changed file whether it is stored."""

    def __init__(self, folder: ProjectFolder, places: Places, *, max_file_bytes: int, max_bytes: int) -> None:
        self._root, self._places = folder.root, places
        self._max_file_bytes, self._max_bytes = max_file_bytes, max_bytes
        home = os.path.realpath(places.home)
        self._in_home = folder.root[len(home) + 1 :] if is_inside(folder.root, home) else None
        self._ours = relative_to_root(places.own_folders, folder.root)

    def select(self, changes: Sequence[Change]) -> Selection:
        """Sort the changes; blocking. Raises `CheckpointError` if they are too many or too large."""
        found = Selection()
        if len(changes) > MAX_FILES:
            raise CheckpointError(f"the folder has {len(changes):,} files to store; the limit is {MAX_FILES:,}")
        for change in changes:
            if change.is_gone:  # without looking: a folder above it may be a link now
                found.forget.append(change.path)
            elif change.path.endswith("/"):
                found.nested += self._first_file(change.path)
            else:
                self._sort(change, found)
        if found.size > self._max_bytes:
            sizes = f"{found.size >> 20:,} MB to store; the limit is {self._max_bytes >> 20:,} MB"
            raise CheckpointError(f"the folder has {sizes} (checkpoints.max_mb)")
        return found

    def is_secret(self, path: str) -> bool:
        """True for a path, relative to the root, that must never be stored."""
        if any(is_inside(path, each) for each in self._ours):
            return True
        if is_secret_in_project(path) or is_secret_in_system(os.path.join(self._root, path)):
            return True
        return self._in_home is not None and is_secret_in_home(os.path.join(self._in_home, path))

    def _sort(self, change: Change, found: Selection) -> None:
        full = os.path.join(self._root, change.path)
        try:
            facts = os.lstat(full)
        except OSError:
            found.update.append(change.path)  # gone in the meantime
            return
        if self.is_secret(change.path) or self._is_unfit(full, facts):
            found.skipped.append(change.path)
            if not change.is_new:
                found.forget.append(change.path)
            return
        found.update.append(change.path)
        found.size += facts.st_size

    def _is_unfit(self, full: str, facts: os.stat_result) -> bool:
        if stat.S_ISLNK(facts.st_mode):
            return False
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > self._max_file_bytes:
            return True
        return self._places.is_linked_env_file(facts) or not os.access(full, os.R_OK)

    def _is_fit(self, path: str, entry: os.DirEntry[str]) -> bool:
        if not entry.is_file(follow_symlinks=False) or self.is_secret(path):
            return False
        return not self._is_unfit(os.path.join(self._root, path), entry.stat(follow_symlinks=False))

    def _first_file(self, folder: str) -> list[str]:
        """Some file of a repository inside the folder."""
        waiting, seen = [folder.rstrip("/")], 0
        while waiting and seen < MAX_SEEN:
            where = waiting.pop(0)
            for entry in _scan(os.path.join(self._root, where)):
                seen += 1
                path = f"{where}/{entry.name}"
                if entry.name == ".git":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif self._is_fit(path, entry):
                    return [path]
        return []


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: (entry.name != ".gitignore", entry.name))
    except OSError:
        return []


def parse_status(output: bytes, inner: str) -> list[Change]:
    """The changes in the output of `git status --porcelain -z`: the second letter compares files with the index."""
    found = []
    for entry in filter(None, output.split(b"\0")):
        path = os.fsdecode(entry[3:])
        if entry[1:2] != b" " and (not inner or is_inside(path, inner)):
            found.append(Change(path, entry[:2] == b"??", entry[1:2] == b"D"))
    return found


def relative_to_root(folders: Iterable[str], root: str) -> tuple[str, ...]:
    """Those of the folders that are below `root`, as paths in it."""
    return tuple(os.path.relpath(each, root) for each in folders if is_inside(each, root))


def list_exclusions(folder: ProjectFolder, own_folders: Sequence[str]) -> str:
    """The text of `info/exclude`; `own_folders` belong to alipes. What it lists can be included again by a .gitignore,
    except for what `FileRules` refuses; it saves looking at these files every time."""
    lines = [*GENERATED, *SECRET_IN_PROJECT, *(f"!{each}" for each in PUBLIC_IN_PROJECT)]
    lines += (f"/{each}/" for each in relative_to_root(own_folders, folder.root) if each != ".")
    return "\n".join((*lines, *_own_exclusions(folder.root), ""))


def _own_exclusions(root: str) -> Iterator[str]:
    """Lines of `.git/info/exclude` of the repository."""
    try:
        with open(os.path.join(root, ".git", "info", "exclude"), encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(MAX_EXCLUDE_BYTES)
    except OSError:  # there is none, or .git is a file
        return
    yield from (line for line in text.splitlines() if line and not line.startswith("#"))


def to_lines(paths: Iterable[str]) -> bytes:
    """Paths as git reads them with `-z`."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def list_foreign(root: str, blobs: Mapping[str, str]) -> list[str]:
    """The paths whose files, opened below `root` without links, do not have these contents. Blocking."""
    folder, found = os.open(root, FOLDER), list[str]()
    try:
        for path, blob in blobs.items():
            if _hash_blob(folder, path) != blob:
                found.append(path)
    finally:
        os.close(folder)
    return found


def _hash_blob(folder: int, path: str) -> str:
    """The name that git gives the content of a file; empty if it cannot be opened."""
    try:
        with open(open_beneath(folder, path, os.O_RDONLY | os.O_NONBLOCK, links=False), "rb") as file:
            digest = hashlib.sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
            while data := file.read(1 << 20):
                digest.update(data)
            return digest.hexdigest()
    except (OSError, ValueError):
        return ""
