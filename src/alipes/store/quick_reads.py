"""What others may ask about the store of a home without opening it: its files, and one session from any thread."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from alipes.kernel.errors import StoreError
from alipes.store.sqlite import files
from alipes.store.sqlite.files import DATABASE_FILE

TIMEOUT_S = 1.0
SQLITE_VERSION = sqlite3.sqlite_version_info
"""Of the library in use, for the security audit."""


class SessionPeek(Struct, frozen=True):
    id: str
    key: str
    """The key where it is active, else where it was last."""
    platform: str
    title: str
    created: float
    updated: float


def peek_session(file: Path, session: str) -> SessionPeek | None:
    """None if there is no such session or no store. Blocks the calling thread. Raises `StoreError`."""
    sql = """SELECT id, coalesce((SELECT key FROM leases WHERE session_id = sessions.id), key), platform, title,
        created, updated FROM sessions WHERE id = ?"""
    rows = peek_rows(file, sql, session)
    return SessionPeek(*rows[0]) if rows else None


def peek_rows(database: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows of a query from any thread, on a connection of its own; none without a store. Raises `StoreError`."""
    if not database.is_file():
        return []
    try:
        address = f"file:{quote(str(database.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=TIMEOUT_S)) as db:
            return db.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"{database} cannot be read: {error}.") from error


def store_exists(home: Path) -> bool:
    """True if the home has a store."""
    return (home / DATABASE_FILE).exists()


def is_store_writable(home: Path) -> bool:
    """False if the store exists and this user may not write to it."""
    return files.is_writable(home / DATABASE_FILE)


def find_store_loss(home: Path) -> str:
    """What is wrong if the store was here and is gone; else empty."""
    return files.find_loss(home / DATABASE_FILE)


def store_files(home: Path) -> tuple[Path, ...]:
    """The files of the store, which must be private; those that exist at times included."""
    return tuple(Path(f"{home / DATABASE_FILE}{suffix}") for suffix in ("", "-wal", "-shm"))
