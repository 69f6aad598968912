"""The files of a database: whether they were lost or replaced, and how to read them on a read-only home."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from alipes.kernel.errors import StoreError

_RESTORE = "restore a backup with `alipes restore FILE --force`"

DATABASE_FILE = "alipes.db"


def is_writable(path: Path) -> bool:
    """False if the file or its directory cannot be written, as on a read-only file system."""
    return os.access(path.parent, os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.W_OK))


def _marker(path: Path) -> Path:
    """Exists beside a database since its first use: so a lost database is not taken for a new home."""
    return path.with_name(f"{path.name}.created")


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def find_loss(path: Path) -> str:
    """Why there must have been a database that is gone now; empty if all is well or the home is new."""
    marker, size = _marker(path), _size(path)
    if size or not (marker.exists() or (size is None and _size(_wal(path)))):
        return ""
    gone = "is gone" if size is None else "is empty"
    sign = f"remove {marker}" if marker.exists() else f"remove {_wal(path)}"
    return f"the database {path} {gone}, although this home has one: {_RESTORE}; to start without it, {sign}"


def check_not_lost(path: Path) -> None:
    """Raises `StoreError` instead of letting a new database take the place of a lost one."""
    if loss := find_loss(path):
        raise StoreError(loss)


def mark_created(path: Path) -> None:
    with suppress(OSError):  # it exists; or the disk is full, which the next write reports
        os.close(os.open(_marker(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


class OpenFiles:
    """The files of an open database, as they were when it was opened: SQLite never replaces them while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identities = {each: _identity(each) for each in (path, _wal(path))}

    def check(self) -> None:
        """Raises `StoreError` if one was deleted or replaced: what is written goes into a file that nobody finds."""
        for file, before in self._identities.items():
            now = _identity(file)
            if before is None:
                self._identities[file] = now
            elif now != before:
                what = "deleted" if now is None else "replaced"
                raise StoreError(f"{file} was {what} while it is in use: stop alipes, then {_RESTORE}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _size(path: Path) -> int | None:
    """None if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


class WalFile:
    """The write-ahead log through a file descriptor of our own.

    SQLite holds no locks on this file, so closing the descriptor drops none (it would for the database file);
    and the file exists as long as any process has the database open.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = f"{path}-wal", -1

    def sync(self) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        os.fdatasync(self._file) if hasattr(os, "fdatasync") else os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@contextmanager
def open_readable(path: Path) -> Iterator[str]:
    """The URI at which SQLite can read the database; on a read-only home or full disk that may be a temporary copy."""
    if is_writable(path) and (not path.exists() or _can_read(_uri(path, "mode=rw"))):
        yield _uri(path, "mode=rw")
    elif not _size(_wal(path)):
        yield _uri(path, "immutable=1")
    elif _can_read(_uri(path, "mode=ro")):
        yield _uri(path, "mode=ro")
    else:  # SQLite needs to write beside a write-ahead log, even to read it
        with tempfile.TemporaryDirectory(prefix="alipes-") as folder:
            copy = Path(folder) / path.name
            for source, target in ((path, copy), (_wal(path), _wal(copy))):
                shutil.copyfile(source, target)
            yield _uri(copy, "mode=rw")


def _can_read(uri: str) -> bool:
    try:
        connection = sqlite3.connect(uri, uri=True)
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return False
    return True


def _uri(path: Path, options: str) -> str:
    return f"file:{quote(str(path.absolute()))}?{options}"
