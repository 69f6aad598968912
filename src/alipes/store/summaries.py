"""Digests as rows: what stands for the beginning of a conversation. Each is added, none is changed, and
which one counts is read off what is told now. What was said is never touched."""

import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable

from alipes.kernel.messages import Message
from alipes.kernel.turns import Digest, Turn
from alipes.kernel.usage import Tries
from alipes.store import history, turn_rows, turns
from alipes.store.database import codec
from alipes.store.database.database import Database

_KEEP = """
    INSERT INTO digests (session, upto, covers, trimmed, widest, last, text, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


class SqliteDigests:
    """`Digests` on one file: which one counts is read off what is told now."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def keep(self, turn: Turn, digest: Digest, *, living: int = 0, helped: bool = True) -> bool:
        now, text = self._clock(), codec.whole(digest.text)
        covered = max(digest.upto, digest.trimmed)

        def work(db: sqlite3.Connection) -> bool:
            if living:
                number, session = turn_rows.mine(db, turn)
                before, own = turns.transcript(db, session, number)
                told = [*before, *own]
                if len(told) != living:
                    return False
            else:
                session, told = turn.session, list(history.told(db, turn.session))
                if _told(told[:covered]) != turn.history[:covered]:
                    return False
            numbers = [row[0] for row in told]
            upto, trimmed = (numbers[place - 1] if place else 0 for place in (digest.upto, digest.trimmed))
            covers = bisect_right(numbers, upto)
            row = (session, upto, covers, trimmed, digest.widest, max(numbers, default=0), text, now)
            db.execute(_KEEP, row)
            if helped:
                db.execute("DELETE FROM compactions WHERE session = ?", (session,))
            return True

        return await self._database.run(work)

    async def latest(self, session: str) -> Turn | None:
        return await self._database.read(lambda db: _latest(db, session))

    async def size(self, session: str) -> int:
        return await self._database.read(lambda db: history.context(db, session)) or 0

    async def tries(self, session: str) -> Tries:
        sql = "SELECT tries, why FROM compactions WHERE session = ?"
        row = await self._database.read(lambda db: db.execute(sql, (session,)).fetchone())
        return Tries() if row is None else Tries(*row)

    async def failed(self, session: str, why: str) -> None:
        sql = (
            "INSERT INTO compactions VALUES (?, 1, ?) "
            "ON CONFLICT DO UPDATE SET tries = tries + 1, why = excluded.why"
        )
        await self._database.run(lambda db: db.execute(sql, (session, codec.whole(why))).rowcount)

    async def forgive(self, session: str) -> None:
        sql = "DELETE FROM compactions WHERE session = ?"
        await self._database.run(lambda db: db.execute(sql, (session,)).rowcount)


def _told(told: list[history.Row]) -> tuple[Message, ...]:
    return tuple(codec.messages.decode(text) for _, _, text, _ in told)


def _latest(db: sqlite3.Connection, session: str) -> Turn | None:
    last = next(history.begun(db, session), None)
    row = db.execute("SELECT created, model FROM sessions WHERE id = ?", (session,)).fetchone()
    if last is None or row is None:
        return None
    _, id, inbound, _ = last
    told = list(history.told(db, session))
    digest, since = history.digest(db, session, [row[0] for row in told])
    return Turn(
        id,
        session,
        codec.inbounds.decode(inbound),
        began=row[0],
        model=row[1],
        history=_told(told),
        digest=digest,
        counted=history.counted(told, since),
    )
