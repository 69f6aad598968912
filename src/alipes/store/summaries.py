"""Summaries that replace the start of a conversation for the model.

They are only ever added; which one is valid depends on the messages that are visible now.
"""

import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable

from alipes.kernel.messages import Message
from alipes.kernel.turns import CompactionState, Turn
from alipes.kernel.usage import CompactionAttempts
from alipes.store import history, turn_rows, turns
from alipes.store.database import codec
from alipes.store.database.database import Database

_INSERT = """
    INSERT INTO summaries (
        session_id, last_message, message_count, last_trimmed, max_chars, newest_message, text, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


class SqliteCompactionStore:
    """`CompactionStore` in SQLite."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def save(self, turn: Turn, digest: CompactionState, *, living: int = 0, helped: bool = True) -> bool:
        now, text = self._clock(), codec.clean_text(digest.text)
        used = max(digest.covered, digest.trimmed_until)

        def work(db: sqlite3.Connection) -> bool:
            if living:
                number, session = turn_rows.find_claimed_turn(db, turn)
                before, own = turns.load_transcript(db, session, number)
                rows = [*before, *own]
                if len(rows) != living:
                    return False
            else:
                session, rows = turn.session, list(history.visible_messages(db, turn.session))
                if _decode_messages(rows[:used]) != turn.history[:used]:
                    return False
            numbers = [row[0] for row in rows]
            last = numbers[digest.covered - 1] if digest.covered else 0
            last_trimmed = numbers[digest.trimmed_until - 1] if digest.trimmed_until else 0
            count, newest = bisect_right(numbers, last), max(numbers, default=0)
            db.execute(_INSERT, (session, last, count, last_trimmed, digest.max_chars, newest, text, now))
            if helped:
                db.execute("DELETE FROM failed_compactions WHERE session_id = ?", (session,))
            return True

        return await self._database.run(work)

    async def latest(self, session: str) -> Turn | None:
        return await self._database.read(lambda db: _load_latest(db, session))

    async def size(self, session: str) -> int:
        return await self._database.read(lambda db: history.context_tokens(db, session)) or 0

    async def attempts(self, session: str) -> CompactionAttempts:
        sql = "SELECT attempts, error FROM failed_compactions WHERE session_id = ?"
        row = await self._database.read(lambda db: db.execute(sql, (session,)).fetchone())
        return CompactionAttempts() if row is None else CompactionAttempts(*row)

    async def record_failure(self, session: str, why: str) -> None:
        sql = (
            "INSERT INTO failed_compactions VALUES (?, 1, ?) "
            "ON CONFLICT DO UPDATE SET attempts = attempts + 1, error = excluded.error"
        )
        await self._database.run(lambda db: db.execute(sql, (session, codec.clean_text(why))).rowcount)

    async def reset_attempts(self, session: str) -> None:
        sql = "DELETE FROM failed_compactions WHERE session_id = ?"
        await self._database.run(lambda db: db.execute(sql, (session,)).rowcount)


def _decode_messages(rows: list[history.HistoryRow]) -> tuple[Message, ...]:
    return tuple(codec.message_decoder.decode(text) for _, _, text, _ in rows)


def _load_latest(db: sqlite3.Connection, session: str) -> Turn | None:
    last = next(history.started_turns(db, session), None)
    row = db.execute("SELECT created, model FROM sessions WHERE id = ?", (session,)).fetchone()
    if last is None or row is None:
        return None
    _, id, inbound, _ = last
    rows = list(history.visible_messages(db, session))
    compaction, newest = history.find_summary(db, session, [row[0] for row in rows])
    return Turn(
        id,
        session,
        codec.inbound_decoder.decode(inbound),
        session_started=row[0],
        model=row[1],
        history=_decode_messages(rows),
        compaction=compaction,
        measured_tokens=history.last_counted_tokens(rows, newest),
    )
