"""The home of another program, for reading only: files within it, and copies of its databases."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from alipes.features.importer.databases import DatabaseCopy, copy_database, open_copy
from alipes.features.importer.formats import SourceError, content_hash, plain_text
from alipes.features.importer.records import FoundFile
from alipes.kernel.formatting import format_size

MAX_TEXT_BYTES, MAX_FILE_BYTES = 4_000_000, 50_000_000
MAX_FILES = 2_000
"""Of one skill or plugin."""
_ENV_EXAMPLES = (".env.example", ".env.sample", ".env.template")
_SKIPPED = ("__pycache__", ".git", "node_modules", ".venv")


class SourceHome:
    """Nothing in it is ever written, and SQLite never opens a file in it. Links that leave it are not followed."""

    def __init__(self, path: Path, copies: Path) -> None:
        """`copies`: a folder of ours for copies of its databases; its maker deletes it."""
        self.path, self._copies = path.resolve(), copies
        self._databases: dict[str, Path] = {}

    def inside(self, name: str) -> "SourceHome":
        """A part of the home that is a home itself. Raises `SourceError`."""
        return SourceHome(self._find(name, stat.S_ISDIR), self._copies / "inside")

    def exists(self, name: str) -> bool:
        """True if there is anything of that name, readable or not."""
        return os.path.lexists(self.path / name)

    def has(self, name: str) -> bool:
        with suppress(SourceError, OSError):
            self._find(name)
            return True
        return False

    def read_text(self, name: str, limit: int = MAX_TEXT_BYTES) -> str | None:
        """None if there is no such file. Raises `SourceError`."""
        if not os.path.lexists(self.path / name):
            return None
        return plain_text(self.read_bytes(name, limit).removeprefix(b"\xef\xbb\xbf"))

    def read_bytes(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Raises `SourceError`."""
        with self._open(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise SourceError(f"{name} is too large ({format_size(size)}, at most {format_size(limit)})")
            return file.read(limit)

    def read_lines(self, name: str, limit: int = MAX_FILE_BYTES) -> Iterator[bytes]:
        """The lines of a file of any size; only the start of one that is longer than `limit`. Raises `SourceError`."""
        with self._open(name) as file:
            while line := file.readline(limit):
                yield line
                while line and not line.endswith(b"\n"):
                    line = file.readline(limit)

    def open_database(self, name: str) -> DatabaseCopy:
        """A checked copy, the same one for the life of this object: `with home.open_database("state.db") as db`.

        Raises `SourceError`.
        """
        if name not in self._databases:
            source = self._find(name)
            folder = self._copies / f"{len(self._databases)}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, mode=0o700)
            self._databases[name] = copy_database(source, folder, name)
        return open_copy(self._databases[name], name)

    def list_names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty if there is no such folder."""
        try:
            return sorted(filter(_is_text, os.listdir(self._find(folder, stat.S_ISDIR))))
        except (SourceError, OSError):
            return []

    def list_files(self, folder: str) -> tuple[FoundFile, ...]:
        """All files below a folder, with hashes, but links, special files and `.env` files. Raises `SourceError`."""
        found = []
        root = self._find(folder, stat.S_ISDIR)
        for place, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED and _is_text(name))
            for name in sorted(name for name in names if _is_text(name) and not _has_keys(name)):
                path = Path(place, name)
                if not stat.S_ISREG(path.lstat().st_mode):
                    continue
                inner = path.relative_to(root).as_posix()
                data = self.read_bytes(f"{folder}/{inner}")
                executable = bool(path.lstat().st_mode & 0o111)
                found.append(FoundFile(inner, f"{folder}/{inner}", content_hash(data), executable))
                if len(found) > MAX_FILES:
                    raise SourceError(f"{folder} has more than {MAX_FILES} files")
        return tuple(found)

    def _find(self, name: str, is_kind: Callable[[int], bool] = stat.S_ISREG) -> Path:
        try:
            resolved = (self.path / name).resolve(strict=True)
            mode = resolved.stat().st_mode
        except (OSError, RuntimeError, ValueError) as error:
            raise SourceError(f"{name} cannot be read: {getattr(error, 'strerror', None) or 'no such file'}") from error
        if not resolved.is_relative_to(self.path):
            raise SourceError(f"{name} is a link out of the home, so it was not followed")
        if not is_kind(mode):
            raise SourceError(f"{name} is not a {'file' if is_kind is stat.S_ISREG else 'folder'}")
        return resolved

    @contextmanager
    def _open(self, name: str) -> Iterator[BinaryIO]:
        path = self._find(name)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                yield file
        except OSError as error:
            raise SourceError(f"{name} cannot be read: {error.strerror}") from error


def _has_keys(name: str) -> bool:
    return name == ".env" or (name.startswith(".env.") and name not in _ENV_EXAMPLES)


def _is_text(name: str) -> bool:
    return name.isprintable() and plain_text(name) == name
