"""Usage of model calls and of skills: records auxiliary calls, adds up all calls of a turn, a session or a period."""

from alipes.kernel.turns import Turn
from alipes.kernel.usage import UsageRecord, UsageTotal
from alipes.store.ports.usage import SkillUsage
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, usage_columns

_SUM = "SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0), count(input) - count(cost) FROM "
_TREE = """
    WITH RECURSIVE tree (id, number) AS (
        SELECT id, number FROM turns WHERE {} UNION
        SELECT turns.id, turns.number FROM tree JOIN turns ON turns.parent_id = tree.id)
    {} (SELECT cost, input, output FROM messages WHERE turn_number IN (SELECT number FROM tree) UNION ALL
        SELECT cost, input, output FROM auxiliary_calls WHERE turn_id IN (SELECT id FROM tree)) AS calls"""
MAX_DEPTH = 100


class SqlUsageLedger(SqlRows):
    """`UsageLedger` in SQLite."""

    async def add(self, entry: UsageRecord) -> None:
        now, turn = self._clock(), entry.turn
        ids = (turn.id, turn.session, entry.task, entry.tool, clean_text(entry.model))
        row = (*ids, *usage_columns(entry.usage), now)
        sql = f"""INSERT INTO auxiliary_calls (turn_id, session_id, task, tool, model,
            input, output, cached, cache_write, reasoning, cost, created) VALUES ({", ".join("?" * len(row))})"""
        # the result of the call is written next, and syncs this along
        await self._database.execute(sql, *row, sync=False)

    async def root_turn(self, turn: Turn) -> Turn:
        if not turn.inbound.parent:
            return turn
        return await self._database.read(lambda db: _find_root(db, turn))

    async def turn_total(self, root: Turn) -> UsageTotal:
        return await self._sum(_TREE.format("id = ?", _SUM), root.id)

    async def session_total(self, session: str) -> UsageTotal:
        return await self._sum(_TREE.format("session_id = ?", _SUM), session)

    async def total_since(self, moment: float) -> UsageTotal:
        return await self._sum(f"{_SUM} model_calls WHERE created >= ?", moment)

    async def _sum(self, sql: str, value: str | float) -> UsageTotal:
        return await self._database.read(lambda db: UsageTotal(*db.execute(sql, (value,)).fetchone()))


def _find_root(db: Connection, turn: Turn) -> Turn:
    for _ in range(MAX_DEPTH):
        row = db.execute("SELECT id, session_id, inbound FROM turns WHERE id = ?", (turn.inbound.parent,)).fetchone()
        if row is None:
            break
        turn = Turn(row[0], row[1], Decoders.inbound.decode(row[2]))
    return turn


class SqlSkillUses(SqlRows):
    async def add(self, turn: Turn, skill: str, how: str) -> None:
        """Record that a turn read a skill. Once per turn."""
        sql = """INSERT OR IGNORE INTO skill_uses (skill, session_id, turn_id, how, created) VALUES (?, ?, ?, ?, ?)"""
        await self._database.execute(sql, clean_text(skill), turn.session, turn.id, how, self._clock(), sync=False)

    async def totals(self) -> dict[str, SkillUsage]:
        """By the name of the skill."""
        sql = """SELECT skill, count(DISTINCT turn_id), count(DISTINCT CASE WHEN ending = 'answered' THEN turn_id END),
            count(DISTINCT CASE WHEN ending IN ('failed', 'stopped', 'out_of_steps') THEN turn_id END), max(created)
            FROM skill_uses GROUP BY skill"""
        rows = await self._database.fetch_all(sql)
        return {row[0]: SkillUsage(*row) for row in rows}
