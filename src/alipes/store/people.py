"""Who may speak, who asked to, and where a platform is at home: rows of SQLite. It decides nothing."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import NotTaken
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address
from alipes.store import outbox
from alipes.store.database import codec
from alipes.store.database.database import Database

Role: TypeAlias = Literal["owner", "user"]
Progress: TypeAlias = Literal["off", "short", "full"]
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Thirty-two that are not taken for one another."""
LENGTH = 8
VALID = 3600.0
"""Seconds in which a code must be approved."""
REST = 600.0
"""Seconds before the same person is given another code."""
WAITING = 5
"""Codes that are valid at once on one platform; who comes beyond them is not answered."""
MISSES = 5
"""Wrong codes within `VALID` seconds, after which none is taken until the first of them is that old."""

_APPLICANT = "platform, person, name, address, created"


class Person(Struct, frozen=True):
    platform: str
    person: str
    """The platform's id of them."""
    name: str
    role: Role
    since: float


class Applicant(Struct, frozen=True):
    """Somebody who asked to be let in."""

    platform: str
    person: str
    name: str
    address: Address
    """Where they did."""
    created: float = 0.0


class SqlitePeople:
    """The people of a home; what time it is is asked of `clock`."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def role(self, platform: str, person: str) -> Role | None:
        """What they are, None for a stranger."""
        sql = "SELECT role FROM people WHERE platform = ? AND person = ?"
        row = await self._database.read(lambda db: db.execute(sql, (platform, person)).fetchone())
        return None if row is None else row[0]

    async def all(self) -> tuple[Person, ...]:
        sql = "SELECT platform, person, name, role, since FROM people ORDER BY platform, since"
        return tuple(Person(*row) for row in await self._database.read(lambda db: db.execute(sql).fetchall()))

    async def dismiss(self, platform: str, person: str) -> bool:
        """False for one who was not let in here."""
        sql = "DELETE FROM people WHERE platform = ? AND person = ?"
        return bool(await self._database.run(lambda db: db.execute(sql, (platform, person)).rowcount))

    async def apply(self, who: Applicant, told: Callable[[str], Outbound]) -> bool:
        """A code for them, owed to their chat as `told` words it, and kept only as a hash.

        False, and nothing is owed, where they have one already or too many others wait.
        """
        code, salt, now = _code(), os.urandom(16), self._clock()
        entry = outbox.entry(told(f"{code[:4]}-{code[4:]}"))
        address = codec.dump(who.address)
        row = (who.platform, who.person, codec.whole(who.name), address, salt, _hash(salt, code), now)

        def work(db: sqlite3.Connection) -> bool:
            db.execute("DELETE FROM pairings WHERE created < ?", (now - VALID,))
            others = "SELECT count(*) FROM pairings WHERE platform = ? AND person <> ?"
            (waiting,) = db.execute(others, (who.platform, who.person)).fetchone()
            lately = "SELECT 1 FROM pairings WHERE platform = ? AND person = ? AND created > ?"
            again = db.execute(lately, (who.platform, who.person, now - REST)).fetchone()
            if again or waiting >= WAITING:
                return False
            db.execute("INSERT OR REPLACE INTO pairings VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            outbox.owe(db, [entry], now)
            return True

        return await self._database.run(work)

    async def applicants(self) -> tuple[Applicant, ...]:
        """Those whose codes are valid, the oldest first."""
        sql = f"SELECT {_APPLICANT} FROM pairings WHERE created >= ? ORDER BY created"
        since = self._clock() - VALID
        found = await self._database.read(lambda db: db.execute(sql, (since,)).fetchall())
        return tuple(map(_applicant, found))

    async def approve(self, code: str, role: Role, welcome: Callable[[Applicant], Outbound]) -> Person:
        """Let in whoever was shown `code`, once, and owe them a word of welcome.

        Raises `NotTaken` with a sentence for who tried it; after a few wrong ones it is not even compared.
        """
        plain, now = code.upper().replace("-", "").replace(" ", ""), self._clock()

        def work(db: sqlite3.Connection) -> Person | str:
            db.execute("DELETE FROM missed_codes WHERE created < ?", (now - VALID,))
            missed, first = db.execute("SELECT count(*), min(created) FROM missed_codes").fetchone()
            if missed >= MISSES:
                minutes = max(1, round((first + VALID - now) / 60))
                return f"too many wrong codes; none is taken for the next {minutes} min"
            who = _shown(db, plain, now - VALID)
            if who is None:
                db.execute("INSERT INTO missed_codes VALUES (?)", (now,))
                return "nobody was shown this code, or it is too old; they can ask for another"
            db.execute("DELETE FROM pairings WHERE platform = ? AND person = ?", (who.platform, who.person))
            db.execute(
                "INSERT INTO people VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET name = excluded.name, role = excluded.role",
                (who.platform, who.person, who.name, role, now),
            )
            outbox.owe(db, [outbox.entry(welcome(who))], now)
            return Person(who.platform, who.person, who.name, role, now)

        done = await self._database.run(work)
        if isinstance(done, str):  # raised here, so that the miss is kept
            raise NotTaken(done)
        return done

    async def homes(self) -> dict[str, Address]:
        """By platform, where it is written to when no chat is named."""
        sql = "SELECT platform, address FROM homes ORDER BY platform"
        found = await self._database.read(lambda db: db.execute(sql).fetchall())
        return {platform: codec.addresses.decode(address) for platform, address in found}

    async def set_home(self, address: Address) -> None:
        row = (address.platform, codec.dump(address))
        sql = "INSERT OR REPLACE INTO homes VALUES (?, ?)"
        await self._database.run(lambda db: db.execute(sql, row).rowcount)

    async def progress(self, lane: str) -> Progress | None:
        """How much of its tools a chat is shown; None where nobody chose."""
        sql = "SELECT progress FROM chats WHERE lane = ?"
        row = await self._database.read(lambda db: db.execute(sql, (lane,)).fetchone())
        return None if row is None else row[0]

    async def set_progress(self, lane: str, progress: Progress) -> None:
        sql = "INSERT OR REPLACE INTO chats VALUES (?, ?)"
        await self._database.run(lambda db: db.execute(sql, (lane, progress)).rowcount)


def _code() -> str:
    return "".join(LETTERS[byte % len(LETTERS)] for byte in os.urandom(LENGTH))


def _hash(salt: bytes, code: str) -> bytes:
    return hashlib.sha256(salt + code.encode()).digest()


def _shown(db: sqlite3.Connection, code: str, since: float) -> Applicant | None:
    sql = f"SELECT salt, hash, {_APPLICANT} FROM pairings WHERE created >= ?"
    for salt, hash, *who in db.execute(sql, (since,)).fetchall():
        if _hash(salt, code) == hash:
            return _applicant(who)
    return None


def _applicant(row: Sequence[Any]) -> Applicant:
    platform, person, name, address, created = row
    return Applicant(platform, person, name, codec.addresses.decode(address), created)
