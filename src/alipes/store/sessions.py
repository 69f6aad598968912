"""Which conversation goes on under a key, and what of it is told to the model. Nothing here runs a turn."""

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Literal

from alipes.kernel.errors import SessionError
from alipes.kernel.places import Absorbed, Left, Retried, Standing, Undone, Waiting
from alipes.kernel.turns import Address, Busy, Said, Turn
from alipes.store import admitting, leaving, rows, speaking, undoing
from alipes.store.database import Database
from alipes.store.hosts import Hosts

_STEERED = """
    SELECT number, id, inbound FROM turns
    WHERE key = :key AND session = :session AND ending IS NULL AND busy = 'steer' AND attempts = 0
        AND NOT EXISTS (SELECT 1 FROM controls
                        WHERE key = :key AND kind = 'stop' AND json_extract(op, '$.turn') = turns.id
                        AND coalesce(json_extract(op, '$.reason'), '') <> 'superseded')
    ORDER BY number"""
"""Without those that a person took back. One that was superseded is still to be heard, and in its place."""


class SqliteSessions:
    """`SessionStore` on one file; who is alive is asked of `hosts`, what time it is of `clock`."""

    def __init__(self, database: Database, hosts: Hosts, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._hosts, self._clock = database, hosts, clock

    async def standing(self, key: str) -> Standing | None:
        return await self._database.read(lambda db: _standing(db, key))

    async def open(self, address: Address) -> Standing:
        fresh, now = admitting.new_session(), self._clock()

        def work(db: sqlite3.Connection) -> Standing:
            if (found := _standing(db, address.key)) is not None:
                return found
            admitting.open_session(db, fresh, address, now)
            return Standing(fresh, address, "", "", "", now, "")

        return await self._database.run(work)

    async def configure(
        self,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        busy: Busy | Literal[""] | None = None,
    ) -> None:
        sql = (
            "UPDATE sessions SET title = coalesce(?, title), model = coalesce(?, model), "
            "busy = coalesce(?, busy) WHERE id = ?"
        )
        words = [None if text is None else rows.whole(text.strip()) for text in (title, model)]

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(sql, (*words, busy, session)).rowcount:
                raise SessionError(f"there is no session {session} any more")

        await self._database.run(work)

    async def unfinished(self, key: str) -> tuple[Waiting, ...]:
        return await self._database.read(lambda db: admitting.unfinished(db, key))

    async def absorb(self, turn: Turn) -> tuple[Absorbed, ...]:
        names = {"key": turn.key, "session": turn.session}
        if not await self._database.read(lambda db: db.execute(_STEERED, names).fetchone()):
            return ()  # the usual case takes no lock
        now = self._clock()
        return await self._database.run(lambda db: _absorb(db, turn, now))

    async def reset(self, key: str) -> Left | None:
        new, now = admitting.new_session(), self._clock()
        return await self._database.run(lambda db: leaving.reset(db, key, new, now, self._hosts.alive))

    async def switch(self, address: Address, session: str) -> Left:
        now, alive = self._clock(), self._hosts.alive
        return await self._database.run(lambda db: leaving.switch(db, address, session, now, alive))

    async def branch(self, key: str, title: str = "") -> Left:
        new, now, alive = admitting.new_session(), self._clock(), self._hosts.alive
        title = title.strip()
        return await self._database.run(lambda db: leaving.branch(db, key, new, title, now=now, alive=alive))

    async def undo(self, key: str, count: int = 1) -> tuple[Undone, ...]:
        return await self._database.run(lambda db: undoing.undo(db, key, count))

    async def retry(self, key: str) -> Retried | None:
        fresh, now = f"retry:{os.urandom(8).hex()}", self._clock()
        return await self._database.run(lambda db: undoing.retry(db, key, fresh, now))


class SqliteGrants:
    """`Grants` on one file."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def allow(self, rule: str) -> None:
        row = _exactly(rule), self._clock()
        await self._database.run(
            lambda db: db.execute("INSERT INTO grants VALUES (?, ?) ON CONFLICT DO NOTHING", row).rowcount
        )

    async def allowed(self, rule: str) -> bool:
        sql = "SELECT 1 FROM grants WHERE rule = ?"
        found = await self._database.read(lambda db: db.execute(sql, (_exactly(rule),)).fetchone())
        return found is not None

    async def rules(self) -> tuple[str, ...]:
        sql = "SELECT rule FROM grants ORDER BY created, rule"
        found = await self._database.read(lambda db: db.execute(sql).fetchall())
        return tuple(rule.decode("utf-8", "surrogatepass") for (rule,) in found)

    async def withdraw(self, rule: str) -> bool:
        sql = "DELETE FROM grants WHERE rule = ?"
        row = (_exactly(rule),)
        return bool(await self._database.run(lambda db: db.execute(sql, row).rowcount))


def _exactly(rule: str) -> bytes:
    """Different for different rules, also where they hold half characters, as file names may."""
    return rule.encode("utf-8", "surrogatepass")


def _standing(db: sqlite3.Connection, key: str) -> Standing | None:
    sql = (
        "SELECT id, address, title, model, busy, created, coalesce(parent, '') "
        "FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    )
    row = db.execute(sql, (key,)).fetchone()
    return None if row is None else Standing(row[0], rows.addresses.decode(row[1]), *row[2:])


def _absorb(db: sqlite3.Connection, turn: Turn, now: float) -> tuple[Absorbed, ...]:
    number, session = speaking.mine(db, turn)
    waiting = db.execute(_STEERED, {"key": turn.key, "session": session}).fetchall()
    taken = []
    for steered, id, inbound in waiting:
        message = rows.inbounds.decode(inbound).message
        speaking.say(db, number, session, speaking.utterance(Said(message)), now)
        db.execute(
            "UPDATE turns SET ending = 'steered', detail = ?, begun = ?, ended = ? WHERE number = ?",
            (turn.id, now, now, steered),
        )
        taken.append(Absorbed(id, message))
    return tuple(taken)
