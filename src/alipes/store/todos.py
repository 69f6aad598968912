"""What conversations have still to do: one list each, as JSON. What stands in it is not known here."""

import sqlite3
import time
from collections.abc import Callable

from alipes.store.database.database import Database


class SqliteTodos:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def read(self, session: str) -> str:
        """The list as it was written; empty where there is none."""
        return await self._database.read(lambda db: _items(db, session))

    async def write(self, session: str, items: str) -> None:
        """Instead of the one before."""
        row, sql = (session, items, self._clock()), "INSERT OR REPLACE INTO todos VALUES (?, ?, ?)"
        await self._database.run(lambda db: db.execute(sql, row).rowcount)


def _items(db: sqlite3.Connection, session: str) -> str:
    """Its own; a branch that has none goes by that of the conversation it left."""
    sql = """
        SELECT items FROM todos WHERE session = :session
        UNION ALL SELECT items FROM todos WHERE session = (SELECT parent FROM sessions WHERE id = :session)
        LIMIT 1"""
    row = db.execute(sql, {"session": session}).fetchone()
    return "" if row is None else str(row[0])
