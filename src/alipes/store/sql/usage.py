"""Usage of model calls: records auxiliary calls, adds up all calls of a turn, a session or a period."""

from msgspec import Struct

from alipes.kernel.turns import Turn, Usage
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, usage_columns


class UsageRecord(Struct, frozen=True):
    """One model call that is not part of a transcript."""

    turn: Turn
    task: str
    model: str
    usage: Usage
    tool: str = ""
    """The tool that made the call; empty: none."""


class UsageTotal(Struct, frozen=True):
    """Total usage of a turn, a session or a period."""

    dollars: float = 0.0
    tokens: int = 0
    unpriced: int = 0
    """Calls of unknown price, which are not included in `dollars`."""


_SUM = "SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0), count(input) - count(cost) FROM "
_TREE = """
    WITH RECURSIVE tree (id, number) AS (
        SELECT id, number FROM turns WHERE {} UNION
        SELECT turns.id, turns.number FROM tree JOIN turns ON turns.parent_id = tree.id)
    {} (SELECT cost, input, output FROM messages WHERE turn_number IN (SELECT number FROM tree) UNION ALL
        SELECT cost, input, output FROM auxiliary_calls WHERE turn_id IN (SELECT id FROM tree)) AS calls"""
MAX_DEPTH = 100


class UsageLedger(SqlRows):
    """The usage of every model call of a home."""

    async def add(self, entry: UsageRecord) -> None:
        now, turn = self._clock(), entry.turn
        ids = (turn.id, turn.session, entry.task, entry.tool, clean_text(entry.model))
        row = (*ids, *usage_columns(entry.usage), now)
        sql = f"""INSERT INTO auxiliary_calls (turn_id, session_id, task, tool, model,
            input, output, cached, cache_write, reasoning, cost, created) VALUES ({", ".join("?" * len(row))})"""
        # the result of the call is written next, and syncs this along
        await self._database.execute(sql, *row, sync=False)

    async def root_turn(self, turn: Turn) -> Turn:
        """The person's turn that this turn works for in the end; the turn itself if it works for none."""
        if not turn.inbound.parent:
            return turn
        return await self._database.read(lambda db: _find_root(db, turn))

    async def turn_total(self, root: Turn) -> UsageTotal:
        """Usage of the turn and of all turns that worked for it."""
        return await self._sum(_TREE.format("id = ?", _SUM), root.id)

    async def session_total(self, session: str) -> UsageTotal:
        """Usage of the session's turns and of all turns that worked for them."""
        return await self._sum(_TREE.format("session_id = ?", _SUM), session)

    async def total_since(self, moment: float) -> UsageTotal:
        """Without what another program spent before it was imported."""
        return await self._sum(f"{_SUM} model_calls WHERE created >= ? AND task <> 'imported'", moment)

    async def _sum(self, sql: str, value: str | float) -> UsageTotal:
        return await self._database.read(lambda db: UsageTotal(*db.execute(sql, (value,)).fetchone()))


def _find_root(db: Connection, turn: Turn) -> Turn:
    for _ in range(MAX_DEPTH):
        row = db.execute("SELECT id, session_id, inbound FROM turns WHERE id = ?", (turn.inbound.parent,)).fetchone()
        if row is None:
            break
        turn = Turn(row[0], row[1], Decoders.inbound.decode(row[2]))
    return turn
