"""How the store fares: whether it can be written, and what waits in it. It changes nothing that matters."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msgspec import Struct

from alipes.kernel.errors import StoreError
from alipes.store.database.database import Database

PATIENCE = 1.0


class Peeked(Struct, frozen=True):
    id: str
    key: str
    """Where it goes on now, else where it did last."""
    platform: str
    title: str
    created: float
    updated: float


def peek_session(database: Path, session: str) -> Peeked | None:
    """None when there is no such conversation, or no store. It blocks the calling thread for a moment.

    Raises StoreError.
    """
    sql = (
        "SELECT id, coalesce((SELECT key FROM seats WHERE session = sessions.id), key), platform, title, "
        "created, updated FROM sessions WHERE id = ?"
    )
    if not database.is_file():
        return None
    try:
        address = f"file:{quote(str(database.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=PATIENCE)) as db:
            row = db.execute(sql, (session,)).fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{database} cannot be read: {error}.") from error
    return None if row is None else Peeked(*row)


class Pulse(NamedTuple):
    turns: int
    """Unfinished ones."""
    owed: int
    dead: int
    oldest: float
    """Seconds that the oldest debt has waited."""


async def touch(database: Database) -> None:
    """Return once a page was written; raises `StoreError` where the disk is full or the file read-only."""

    def write(db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {int(version)}")  # the same, and a page of its own all the same

    await database.run(write)


async def pulse(database: Database) -> Pulse:
    def look(db: sqlite3.Connection) -> Pulse:
        (turns,) = db.execute("SELECT count(*) FROM turns WHERE ending IS NULL").fetchone()
        owed, since = db.execute(
            "SELECT count(*), min(created) FROM debts WHERE state IN ('owed', 'trying')"
        ).fetchone()
        (dead,) = db.execute("SELECT count(*) FROM debts WHERE state IN ('dead', 'expired')").fetchone()
        return Pulse(turns, owed, dead, max(time.time() - since, 0.0) if since else 0.0)

    return await database.read(look)
