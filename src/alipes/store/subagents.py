"""Turns that work for other turns, as the store knows them. Nothing here begins or ends one."""

import sqlite3

from msgspec import Struct

from alipes.kernel.turns import Inbound
from alipes.store.database import codec
from alipes.store.database.database import Database

PLATFORM = "subagent"
"""Of their addresses: no chat and no screen is there."""
PREFIX = f"agent:main:{PLATFORM}:"
"""Of their keys."""
_UNFINISHED = (
    "SELECT id, key, session, inbound, created, begun FROM turns "
    "WHERE ending IS NULL AND key >= ? AND key < ? ORDER BY number"
)


class Subagent(Struct, frozen=True):
    """One that lives or waits."""

    id: str
    key: str
    session: str
    inbound: Inbound
    created: float
    begun: float | None


class SqliteSubagents:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, inbound_id: str) -> str | None:
        """The turn that was accepted for this message; also if who asked for it was cut off meanwhile."""
        sql, row = (
            "SELECT id FROM turns WHERE platform = ? AND inbound_id = ?",
            (PLATFORM, codec.whole(inbound_id)),
        )
        # among the writes: what was asked for before is done by then
        found = await self._database.run(lambda db: db.execute(sql, row).fetchone(), soon=True)
        return None if found is None else str(found[0])

    async def unfinished(self, *, parent: str = "", place: str = "") -> tuple[Subagent, ...]:
        """Those of one turn, also such as are being accepted, or those for the conversation under the key
        `place`; oldest first."""
        bounds = (PREFIX, PREFIX[:-1] + ";")  # the letter after the colon

        def work(db: sqlite3.Connection) -> list[tuple[str, str, str, str, float, float | None]]:
            return db.execute(_UNFINISHED, bounds).fetchall()

        # of a turn: among the writes, so that what was asked for before is done by then
        told = await (self._database.run(work, soon=True) if parent else self._database.read(work))
        found = [
            Subagent(id, key, session, codec.inbounds.decode(inbound), created, begun)
            for id, key, session, inbound, created, begun in told
        ]
        return tuple(
            each
            for each in found
            if (not parent or each.inbound.parent == parent)
            and (not place or (each.inbound.origin is not None and each.inbound.origin.address.key == place))
        )

    async def over(self, turn: str) -> bool:
        """Has the turn ended, or is it gone with its conversation?"""
        sql = "SELECT 1 FROM turns WHERE id = ? AND ending IS NULL"
        return await self._database.read(lambda db: db.execute(sql, (turn,)).fetchone()) is None
