"""How often skills were used, and with what success."""

from msgspec import Struct

from alipes.kernel.turns import Turn
from alipes.store.sql.rows import SqlRows, clean_text


class SkillUsage(Struct, frozen=True):
    """How often a skill was used, and with what success."""

    skill: str
    uses: int
    """Turns that used it."""
    answered: int
    """Those that ended with an answer."""
    failed: int
    """Those that failed, were stopped or ran out of steps."""
    last: float


class SkillUseStore(SqlRows):
    async def add(self, turn: Turn, skill: str, how: str) -> None:
        """Record that a turn read a skill. Once per turn."""
        sql = """INSERT OR IGNORE INTO skill_uses (skill, session_id, turn_id, how, created) VALUES (?, ?, ?, ?, ?)"""
        await self._database.execute(sql, clean_text(skill), turn.session, turn.id, how, self._clock(), sync=False)

    async def totals(self) -> dict[str, SkillUsage]:
        """By the name of the skill."""
        sql = """SELECT skill, count(DISTINCT turn_id), count(DISTINCT CASE WHEN ending = 'answered' THEN turn_id END),
            count(DISTINCT CASE WHEN ending IN ('failed', 'stopped', 'out_of_steps', 'gave_up') THEN turn_id END),
            max(created)
            FROM skill_uses GROUP BY skill"""
        rows = await self._database.fetch_all(sql)
        return {row[0]: SkillUsage(*row) for row in rows}
