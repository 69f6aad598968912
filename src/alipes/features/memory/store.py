"""The memory in the database: the notes in the prompts of conversations, and every change of the files."""

from typing import Any

import msgspec

from alipes.features.memory.change import MemoryChange, MemoryOrigin, MemoryTarget
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows, clean_text, to_json

KEPT_CHANGES = 1000
"""Changes that are kept for each file."""
_COLUMNS = """number, scope, target, action, before, after, author, session_id, turn_id, sources, created, undone_by"""
_sources_decoder = msgspec.json.Decoder(tuple[str, ...])


class MemoryStore(SqlRows):
    """The files themselves are not here: their text is compared with the last change, so a hand edit is noticed."""

    async def find_snapshot(self, session: str) -> tuple[str, str] | None:
        """The scope and text of the conversation's notes. A branch gets those of the conversation it began in."""
        sql = """SELECT scope, text, session_id = ?1 FROM memory_snapshots
            WHERE session_id IN (?1, (SELECT parent_id FROM sessions WHERE id = ?1)) ORDER BY 3 DESC LIMIT 1"""
        if (row := await self._database.fetch_one(sql, session)) is None:
            return None
        scope, text, is_own = row
        if not is_own:
            await self.save_snapshot(session, scope, text)
        return scope, text

    async def save_snapshot(self, session: str, scope: str, text: str) -> None:
        sql = """INSERT INTO memory_snapshots SELECT id, ?2, ?3, ?4 FROM sessions WHERE id = ?1
            ON CONFLICT (session_id) DO UPDATE SET scope = excluded.scope, text = excluded.text"""
        values = (session, clean_text(scope), clean_text(text), self._clock())
        # without a sync: the row is on disk before the first message that follows it
        await self._database.run(lambda db: db.execute(sql, values).rowcount, sync=False)

    async def last_text(self, scope: str, target: MemoryTarget) -> str | None:
        """The file after its last recorded change; None if there was none."""
        sql = "SELECT after FROM memory_changes WHERE scope = ? AND target = ? ORDER BY number DESC LIMIT 1"
        row = await self._database.fetch_one(sql, clean_text(scope), target)
        return None if row is None else str(row[0])

    async def record(self, change: MemoryChange, *, undoes: int = 0) -> MemoryChange:
        """Store a change; returns it with its number. `undoes`: the change that it takes back."""
        origin = change.origin
        sql = f"""INSERT INTO memory_changes
            (scope, target, action, before, after, author, session_id, turn_id, sources, created)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}"""
        texts = (clean_text(change.before), clean_text(change.after))
        names = (origin.author, origin.session, origin.turn, to_json(origin.sources))
        row = (clean_text(change.scope), change.target, change.action, *texts, *names, self._clock())
        prune = """DELETE FROM memory_changes WHERE scope = ? AND target = ? AND number <= (
            SELECT number FROM memory_changes WHERE scope = ? AND target = ? ORDER BY number DESC LIMIT 1 OFFSET ?)"""

        def work(db: Connection) -> MemoryChange:
            recorded = _change(db.execute(sql, row).fetchone())
            if undoes:
                db.execute("UPDATE memory_changes SET undone_by = ? WHERE number = ?", (recorded.number, undoes))
            db.execute(prune, (*row[:2], *row[:2], KEPT_CHANGES))
            return recorded

        return await self._database.run(work)

    async def forget(self, number: int) -> None:
        """Delete a change whose effect is gone from the file."""
        await self._database.execute("DELETE FROM memory_changes WHERE number = ?", number)

    async def list_changes(self, scope: str, limit: int) -> tuple[MemoryChange, ...]:
        """The last changes, newest first."""
        sql = f"SELECT {_COLUMNS} FROM memory_changes WHERE scope = ? ORDER BY number DESC LIMIT ?"
        return tuple(map(_change, await self._database.fetch_all(sql, clean_text(scope), limit)))

    async def list_scopes(self) -> tuple[str, ...]:
        """The scopes with changes."""
        rows = await self._database.fetch_all("SELECT DISTINCT scope FROM memory_changes ORDER BY scope")
        return tuple(scope for (scope,) in rows)

    async def find_change(self, scope: str, number: int) -> MemoryChange | None:
        """A change of this scope; of others nothing is found."""
        sql = f"SELECT {_COLUMNS} FROM memory_changes WHERE scope = ? AND number = ?"
        row = await self._database.fetch_one(sql, clean_text(scope), number)
        return None if row is None else _change(row)


def _change(row: tuple[Any, ...]) -> MemoryChange:
    number, scope, target, action, before, after, author, session, turn, sources, created, undone_by = row
    origin = MemoryOrigin(author, session, turn, _sources_decoder.decode(sources))
    return MemoryChange(number, scope, target, action, before, after, origin, created, undone_by)
