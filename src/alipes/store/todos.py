"""The to-do lists of conversations: one JSON text each, which is not interpreted here."""

import sqlite3
import time
from collections.abc import Callable

from alipes.store.database.database import Database

_FIND = """
    SELECT items FROM todos WHERE session_id = :session
    UNION ALL
    SELECT items FROM todos WHERE session_id = (SELECT parent_id FROM sessions WHERE id = :session)
    LIMIT 1"""
"""Its own list; a branch without one uses that of its parent."""


class SqliteTodos:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def read(self, session: str) -> str:
        """The list as it was written; empty if there is none."""

        def work(db: sqlite3.Connection) -> str:
            row = db.execute(_FIND, {"session": session}).fetchone()
            return "" if row is None else str(row[0])

        return await self._database.read(work)

    async def write(self, session: str, items: str) -> None:
        """Replace the list."""
        row, sql = (session, items, self._clock()), "INSERT OR REPLACE INTO todos VALUES (?, ?, ?)"
        await self._database.run(lambda db: db.execute(sql, row).rowcount)
