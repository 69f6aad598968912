"""What callers over HTTP look for: a run by the name they gave it, their own sessions. It runs no turn."""

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, Inbound
from alipes.store import conversations, export, search, turn_rows
from alipes.store.api_history import GIVEN
from alipes.store.archive import Archive
from alipes.store.database import codec
from alipes.store.database.database import Database
from alipes.store.export import Hit

_LEFT = """
    SELECT 1 FROM turns LEFT JOIN responses ON responses.turn = turns.number
    WHERE session = ? AND detail <> ? AND coalesce(deleted, 0) = 0 LIMIT 1"""


class Named(Struct, frozen=True):
    """An answer with a name."""

    id: str
    turn: str
    session: str
    caller: str
    asked: str
    """What is told of the request, as it was handed in."""


class Responses:
    def __init__(self, database: Database, archive: Archive) -> None:
        self._database, self._archive = database, archive

    async def find(self, id: str) -> Named | None:
        sql = (
            "SELECT responses.id, turns.id, session, caller, asked FROM responses "
            "JOIN turns ON turns.number = turn WHERE responses.id = ? AND NOT deleted"
        )
        row = await self._database.read(lambda db: db.execute(sql, (codec.whole(id),)).fetchone())
        return None if row is None else Named(*row)

    async def remember(self, turn: str, mark: bytes) -> None:
        """A conversation with this mark came to this turn."""
        sql = "INSERT OR IGNORE INTO answers SELECT ?, number FROM turns WHERE id = ?"
        # who loses it tells us the conversation again, and that is all
        await self._database.run(lambda db: db.execute(sql, (mark, turn)).rowcount, soon=True)

    async def delete(self, named: Named) -> None:
        """Forget it; the conversation too, once every answer in it was deleted and nothing builds on it."""

        def work(db: sqlite3.Connection) -> bool:
            db.execute("UPDATE responses SET deleted = 1, asked = '' WHERE id = ?", (named.id,))
            return db.execute(_LEFT, (named.session, GIVEN)).fetchone() is None

        if await self._database.run(work):
            await self._forget(named.session)

    async def sweep(self) -> None:
        """Forget the conversations that were only passing, and are over."""
        sql = (
            "SELECT session FROM passing WHERE NOT EXISTS "
            "(SELECT 1 FROM turns WHERE turns.session = passing.session AND ending IS NULL)"
        )
        for (session,) in await self._database.read(lambda db: db.execute(sql).fetchall()):
            await self._forget(session)

    async def _forget(self, session: str) -> None:
        try:
            await self._archive.delete(session)
        except SessionError:
            return  # somebody builds on it, or works in it


_SESSION = """
    SELECT id, address,
        EXISTS (SELECT 1 FROM seats WHERE seats.key = sessions.key AND seats.session = sessions.id),
        model, created, updated, coalesce(parent, ''),
        (SELECT count(*) FROM turns WHERE session = sessions.id),
        (SELECT count(*) FROM turns WHERE session = sessions.id AND ending IS NULL),
        (SELECT count(*) FROM said WHERE session = sessions.id),
        title,
        (SELECT substr(json_extract(inbound, '$.text'), 1, 200) FROM turns
         WHERE session = sessions.id ORDER BY number LIMIT 1)
    FROM sessions"""
_OWN = "platform = ? AND coalesce(json_extract(address, '$.user'), '') = ?"
_NAMED = (
    "(title LIKE ? ESCAPE '\\' OR (SELECT json_extract(inbound, '$.text') FROM turns "
    "WHERE session = sessions.id ORDER BY number LIMIT 1) LIKE ? ESCAPE '\\')"
)
_MOST = 4096
"""Hits among which those of one owner are looked for."""


class Owner(Struct, frozen=True):
    """Whose conversations are meant: those on a platform with this user."""

    platform: str
    user: str

    def has(self, address: Address) -> bool:
        return (address.platform, address.user) == (self.platform, self.user)


class SessionRow(Struct, frozen=True):
    id: str
    address: Address
    goes_on: bool
    """What is said at its address is said in it."""
    title: str
    """As it was named; else the first words said in it."""
    model: str
    created: float
    updated: float
    parent: str
    turns: int
    unfinished: int
    messages: int


class SqliteRuns:
    """`owner` None: everybody's."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def named(self, platform: str, name: str) -> tuple[str, str] | None:
        """The turn whose message's id begins with `name`, and that id."""
        # GLOB would use the index as well, but not for names with its own signs in them
        sql = (
            "SELECT id, inbound_id FROM turns WHERE platform = ? AND inbound_id >= ? AND inbound_id < ? "
            "ORDER BY inbound_id LIMIT 1"
        )
        values = (platform, codec.whole(name), codec.whole(name) + "\U0010ffff")
        return await self._database.read(lambda db: db.execute(sql, values).fetchone())

    async def unfinished(self, platform: str) -> list[tuple[str, Inbound]]:
        sql = "SELECT id, inbound FROM turns WHERE ending IS NULL AND platform = ? ORDER BY number"
        found = await self._database.read(lambda db: db.execute(sql, (platform,)).fetchall())
        return [(id, codec.inbounds.decode(inbound)) for id, inbound in found]

    async def sessions(
        self, owner: Owner | None, *, limit: int, words: str = "", before: float = 0.0
    ) -> list[SessionRow]:
        """The latest first; of `words`, all occur in the title or first message."""
        wanted = [f"%{search.literally(word)}%" for word in codec.whole(words).split()]
        tests = ["platform <> 'subagent'", *(_NAMED for _ in wanted)]
        values: list[str | float] = [pattern for pattern in wanted for _ in range(2)]
        if owner is not None:
            tests.append(_OWN)
            values += [owner.platform, owner.user]
        if before:
            tests.append("updated < ?")
            values.append(before)
        where = f"WHERE {' AND '.join(tests)} ORDER BY updated DESC, id LIMIT ?"
        return await self._database.read(lambda db: _sessions(db, where, *values, limit))

    async def session(self, id: str) -> SessionRow | None:
        found = await self._database.read(lambda db: _sessions(db, "WHERE id = ?", codec.whole(id)))
        return found[0] if found else None

    async def at(self, address: Address) -> SessionRow | None:
        """The one that goes on there."""
        where = "WHERE id = (SELECT session FROM seats WHERE key = ?)"
        found = await self._database.read(lambda db: _sessions(db, where, codec.whole(address.key)))
        return found[0] if found else None

    async def search(self, owner: Owner | None, text: str, limit: int) -> list[Hit]:
        """Messages in which all words of `text` occur, the best first."""

        def work(db: sqlite3.Connection) -> list[Hit]:
            if owner is None:
                return search.find(db, text, limit, ("", ""))
            theirs = f"SELECT 1 FROM sessions WHERE id = ? AND {_OWN}"
            hits = search.find(db, text, _MOST, ("", ""))
            names = {hit.session for hit in hits}
            mine = {
                name for name in names if db.execute(theirs, (name, owner.platform, owner.user)).fetchone()
            }
            return [hit for hit in hits if hit.session in mine][:limit]

        return await self._database.read(work)

    async def fork(self, session: str, address: Address, title: str = "") -> str:
        """Begin one at `address` that shares what was finished in `session`; that one goes on as it was.

        Raises `SessionError` where nothing was finished yet.
        """
        new, now = os.urandom(6).hex(), self._clock()

        def work(db: sqlite3.Connection) -> str:
            conversations.share(db, session, new, title.strip(), address=address, now=now)
            turn_rows.seat(db, address.key, new)
            return new

        return await self._database.run(work)


def _sessions(db: sqlite3.Connection, where: str, *values: str | float) -> list[SessionRow]:
    found = db.execute(f"{_SESSION} {where}", values).fetchall()
    return [_row(facts, title, text) for *facts, title, text in found]


def _row(facts: list[Any], title: str, text: str | None) -> SessionRow:
    id, address, seated, *rest = facts
    named = title or export.first_words(text)
    return SessionRow(id, codec.addresses.decode(address), bool(seated), named, *rest)
