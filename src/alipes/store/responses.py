"""Answers that a caller may ask for again or build on, by a name or by a mark. Rows only."""

import sqlite3

from msgspec import Struct

from alipes.kernel.errors import SessionError
from alipes.store import rows
from alipes.store.archive import Archive
from alipes.store.database import Database
from alipes.store.seeding import GIVEN

_LEFT = """
    SELECT 1 FROM turns LEFT JOIN responses ON responses.turn = turns.number
    WHERE session = ? AND detail <> ? AND coalesce(deleted, 0) = 0 LIMIT 1"""


class Named(Struct, frozen=True):
    """An answer with a name."""

    id: str
    turn: str
    session: str
    caller: str
    asked: str
    """What is told of the request, as it was handed in."""


class Responses:
    def __init__(self, database: Database, archive: Archive) -> None:
        self._database, self._archive = database, archive

    async def find(self, id: str) -> Named | None:
        sql = (
            "SELECT responses.id, turns.id, session, caller, asked FROM responses "
            "JOIN turns ON turns.number = turn WHERE responses.id = ? AND NOT deleted"
        )
        row = await self._database.read(lambda db: db.execute(sql, (rows.whole(id),)).fetchone())
        return None if row is None else Named(*row)

    async def remember(self, turn: str, mark: bytes) -> None:
        """A conversation with this mark came to this turn."""
        sql = "INSERT OR IGNORE INTO answers SELECT ?, number FROM turns WHERE id = ?"
        # who loses it tells us the conversation again, and that is all
        await self._database.run(lambda db: db.execute(sql, (mark, turn)).rowcount, soon=True)

    async def delete(self, named: Named) -> None:
        """Forget it; the conversation too, once every answer in it was deleted and nothing builds on it."""

        def work(db: sqlite3.Connection) -> bool:
            db.execute("UPDATE responses SET deleted = 1, asked = '' WHERE id = ?", (named.id,))
            return db.execute(_LEFT, (named.session, GIVEN)).fetchone() is None

        if await self._database.run(work):
            await self._forget(named.session)

    async def sweep(self) -> None:
        """Forget the conversations that were only passing, and are over."""
        sql = (
            "SELECT session FROM passing WHERE NOT EXISTS "
            "(SELECT 1 FROM turns WHERE turns.session = passing.session AND ending IS NULL)"
        )
        for (session,) in await self._database.read(lambda db: db.execute(sql).fetchall()):
            await self._forget(session)

    async def _forget(self, session: str) -> None:
        try:
            await self._archive.delete(session)
        except SessionError:
            return  # somebody builds on it, or works in it
