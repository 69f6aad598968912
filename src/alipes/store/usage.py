"""The bill of a home: model calls beside the transcripts are written here, and all calls summed up."""

import sqlite3
import time
from collections.abc import Callable

from alipes.kernel.turns import Turn
from alipes.kernel.usage import Billed, Sum
from alipes.store.database import codec
from alipes.store.database.database import Database

_SUM = "SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0), count(input) - count(cost) FROM "
_TREE = """
    WITH RECURSIVE tree (id, number) AS (
        SELECT id, number FROM turns WHERE {} UNION
        SELECT turns.id, turns.number FROM tree JOIN turns ON turns.parent = tree.id)
    {} (SELECT cost, input, output FROM said WHERE turn IN (SELECT number FROM tree) UNION ALL
        SELECT cost, input, output FROM billed WHERE turn IN (SELECT id FROM tree))"""
DEEPEST = 100


class SqliteBill:
    """`Bill` on one file."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def add(self, entry: Billed) -> None:
        now, turn = self._clock(), entry.turn
        names = (turn.id, turn.session, entry.task, entry.tool, codec.whole(entry.model))
        row = (*names, *codec.usage_columns(entry.usage), now)
        sql = (
            "INSERT INTO billed (turn, session, task, tool, model, input, output, cached, cache_write, "
            f"reasoning, cost, created) VALUES ({', '.join('?' * len(row))})"
        )
        # what was asked for is written next, and this with it
        await self._database.run(lambda db: db.execute(sql, row).rowcount, soon=True)

    async def root(self, turn: Turn) -> Turn:
        if not turn.inbound.parent:
            return turn
        return await self._database.read(lambda db: _root(db, turn))

    async def turn(self, root: Turn) -> Sum:
        return await self._sum(_TREE.format("id = ?", _SUM), root.id)

    async def session(self, session: str) -> Sum:
        return await self._sum(_TREE.format("session = ?", _SUM), session)

    async def since(self, moment: float) -> Sum:
        return await self._sum(f"{_SUM} bill WHERE created >= ?", moment)

    async def _sum(self, sql: str, value: str | float) -> Sum:
        return await self._database.read(lambda db: Sum(*db.execute(sql, (value,)).fetchone()))


def _root(db: sqlite3.Connection, turn: Turn) -> Turn:
    for _ in range(DEEPEST):
        row = db.execute(
            "SELECT id, session, inbound FROM turns WHERE id = ?", (turn.inbound.parent,)
        ).fetchone()
        if row is None:
            break
        turn = Turn(row[0], row[1], codec.inbounds.decode(row[2]))
    return turn
