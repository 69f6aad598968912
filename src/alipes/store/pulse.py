"""How the store fares: whether it can be written, and what waits in it. It changes nothing that matters."""

import sqlite3
import time
from typing import NamedTuple

from alipes.store.database import Database


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
