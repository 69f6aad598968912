"""Rows about skills: their uses and how the turns ended, and what is off in a conversation; sections of prompts."""

from collections.abc import Iterable

from msgspec import Struct

from alipes.kernel.turns import Turn
from alipes.store.database.database import SqliteRows, clean_text


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


class SqliteSkillUses(SqliteRows):
    async def add(self, turn: Turn, skill: str, how: str) -> None:
        """Record that a turn read a skill. Once per turn."""
        sql = """INSERT OR IGNORE INTO skill_uses (skill, session_id, turn_id, how, created) VALUES (?, ?, ?, ?, ?)"""
        await self._database.execute(sql, clean_text(skill), turn.session, turn.id, how, self._clock(), sync=False)

    async def totals(self) -> dict[str, SkillUsage]:
        """By the name of the skill."""
        sql = """SELECT skill, count(DISTINCT turn_id), count(DISTINCT iif(ending = 'answered', turn_id, NULL)),
            count(DISTINCT iif(ending IN ('failed', 'stopped', 'out_of_steps'), turn_id, NULL)), max(created)
            FROM skill_uses GROUP BY skill"""
        rows = await self._database.fetch_all(sql)
        return {row[0]: SkillUsage(*row) for row in rows}


class SqliteSkillChoices(SqliteRows):
    """The skills that a person switched off in a conversation."""

    async def read(self, session: str) -> tuple[str, ...]:
        row = await self._database.fetch_one("SELECT skills_off FROM sessions WHERE id = ?", session)
        return tuple(row[0].split()) if row else ()

    async def write(self, session: str, off: Iterable[str]) -> None:
        """Replace them."""
        sql = "UPDATE sessions SET skills_off = ? WHERE id = ?"
        await self._database.execute(sql, clean_text(" ".join(off)), session)


class SqlitePromptSections(SqliteRows):
    """Sections of the system prompt of a conversation, which keep their first text."""

    async def read(self, session: str, section: str) -> str | None:
        sql = "SELECT text FROM prompt_sections WHERE session_id = ? AND section = ?"
        row = await self._database.fetch_one(sql, session, section)
        return row[0] if row else None

    async def keep(self, session: str, section: str, text: str) -> str:
        """Store the text unless there is one already; returns the stored one."""
        sql = "INSERT OR IGNORE INTO prompt_sections (session_id, section, text, created) VALUES (?, ?, ?, ?)"
        await self._database.execute(sql, session, section, clean_text(text), self._clock())
        return await self.read(session, section) or ""

    async def forget(self, session: str, section: str) -> None:
        """The next turn makes it again."""
        sql = "DELETE FROM prompt_sections WHERE session_id = ? AND section = ?"
        await self._database.execute(sql, session, section)
