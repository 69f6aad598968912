"""Copies a SQLite database of another program aside, with its write-ahead log, without opening the original.

Even a read-only connection to a database in WAL mode leaves `-wal` and `-shm` files beside it.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from alipes.features.importer.formats import SourceError

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged database raises; its own error messages may not be UTF-8."""
_ATTEMPTS = 5
_HEADER = b"SQLite format 3\0"
_SPARE_BYTES = 50_000_000


class _Rows(sqlite3.Connection):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.row_factory, self.text_factory = sqlite3.Row, _decode


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class DatabaseCopy:
    """A copy of a database, open for reading."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db, self._name = db, name

    def rows(self, sql: str, *values: object) -> Iterator[Any]:
        """Rows by column name, one after the other; texts are decoded, however damaged. Raises `SourceError`."""
        try:
            yield from self._db.execute(sql, values)
        except UNREADABLE as error:
            raise explain(self._name, error) from error

    def columns(self, table: str) -> tuple[str, ...]:
        """The names of its columns; empty if there is no such table."""
        return tuple(row["name"] for row in self.rows("SELECT name FROM pragma_table_info(?)", table))

    def user_version(self) -> int:
        return int(next(self.rows("PRAGMA user_version"))[0])

    def __enter__(self) -> "DatabaseCopy":
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()


def copy_database(source: Path, folder: Path, name: str) -> Path:
    """Copy and check it. `name`: for sentences. Raises `SourceError`, for a database that changes all the time too."""
    target = folder / "copy.db"
    for _ in range(_ATTEMPTS):
        before = _fingerprint(source)
        _copy_files(source, target, name)
        if _fingerprint(source) == before:
            _check(target, name)
            return target
    raise SourceError(f"{name} kept changing while it was copied: stop the program that uses it and try again")


def open_copy(copy: Path, name: str) -> DatabaseCopy:
    """Raises `SourceError`."""
    db = sqlite3.connect(copy, factory=_Rows)
    try:
        db.execute("PRAGMA query_only = 1")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except UNREADABLE as error:
        db.close()
        raise explain(name, error) from error
    return DatabaseCopy(db, name)


def _fingerprint(source: Path) -> tuple[tuple[int, ...] | None, ...]:
    """Changes with every write: of the file, of its log, and of the log's header."""
    return tuple(_describe(Path(f"{source}{suffix}")) for suffix in ("", "-wal", "-journal"))


def _describe(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _copy_files(source: Path, target: Path, name: str) -> None:
    try:
        if not source.stat().st_size:
            raise SourceError(f"{name} is empty")
        with open(source, "rb") as file:
            if file.read(len(_HEADER)) != _HEADER:
                raise SourceError(f"{name} is not an SQLite database")
        parts = [suffix for suffix in ("", "-wal", "-journal") if os.path.isfile(f"{source}{suffix}")]
        needed = sum(os.path.getsize(f"{source}{suffix}") for suffix in parts) + _SPARE_BYTES
        if shutil.disk_usage(target.parent).free < needed:
            raise SourceError(f"{name} cannot be copied: {target.parent} has too little space")
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{target}{suffix}").unlink(missing_ok=True)
        for suffix in parts:
            shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
            os.chmod(f"{target}{suffix}", 0o600)
    except FileNotFoundError:
        return  # a log that was removed meanwhile: the fingerprint says so
    except OSError as error:
        raise SourceError(f"{name} cannot be copied: {error.strerror}") from error


def _check(copy: Path, name: str) -> None:
    """The structure of the copy, without CHECKs: those may call functions that our SQLite lacks."""
    try:
        with closing(sqlite3.connect(copy, factory=_Rows)) as db:
            db.execute("PRAGMA ignore_check_constraints = 1")
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok" and "octet_length" not in found:
                raise SourceError(f"{name} is damaged ({found.splitlines()[0][:100]}): repair it there first")
    except UNREADABLE as error:
        if "octet_length" in str(error):
            return  # the check itself needs a newer SQLite; reading does not
        raise explain(name, error) from error


def explain(name: str, error: sqlite3.Error | UnicodeDecodeError) -> SourceError:
    what = "its names are no text" if isinstance(error, UnicodeDecodeError) else str(error)
    return SourceError(f"{name} cannot be read as an SQLite database ({what}): repair it there first")
