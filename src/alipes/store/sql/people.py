"""Who may speak, who asked to, and where a platform is at home: rows of SQLite. It decides nothing."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import MessageRejected
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address
from alipes.store.sql import outbox
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, to_json

PersonRole: TypeAlias = Literal["owner", "user"]


Progress: TypeAlias = Literal["off", "short", "full"]


CODE_VALID_S = 3600.0
"""How long a code can be approved."""


class Person(Struct, frozen=True):
    platform: str
    person: str
    """The platform's id of the person."""
    name: str
    role: PersonRole
    since: float


class PairingRequest(Struct, frozen=True):
    """A person who asked for access."""

    platform: str
    person: str
    name: str
    address: Address
    """The chat where they asked."""
    created: float = 0.0


CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""32 characters that are not easily confused."""
CODE_LENGTH = 8
REQUEST_INTERVAL_S = 600.0
"""How long the same person waits for another code."""
MAX_REQUESTS = 5
"""Valid codes per platform; further requests are ignored."""
MAX_WRONG_CODES = 5
"""Wrong codes within `CODE_VALID_S`; after that many, no code is accepted until the first is that old."""

_REQUEST_COLUMNS = "platform, person_id, name, address, created"


class PeopleStore(SqlRows):
    """The people of a home, pairing, default chats and chat settings."""

    async def role(self, platform: str, person: str) -> PersonRole | None:
        """Their role; None for an unknown person."""
        sql = "SELECT role FROM people WHERE platform = ? AND person_id = ?"
        row = await self._database.fetch_one(sql, platform, person)
        return None if row is None else row[0]

    async def all(self) -> tuple[Person, ...]:
        sql = "SELECT platform, person_id, name, role, added FROM people ORDER BY platform, added"
        return tuple(Person(*row) for row in await self._database.fetch_all(sql))

    async def revoke_access(self, platform: str, person: str) -> bool:
        """False if they had no access."""
        sql = "DELETE FROM people WHERE platform = ? AND person_id = ?"
        return bool(await self._database.execute(sql, platform, person))

    async def set_role(self, platform: str, person: str, role: PersonRole) -> bool:
        """False if they have no access."""
        sql = "UPDATE people SET role = ? WHERE platform = ? AND person_id = ?"
        return bool(await self._database.execute(sql, role, platform, person))

    async def request_pairing(self, request: PairingRequest, message: Callable[[str], Outbound]) -> bool:
        """Create a code, stored only as a hash, and queue `message` with it for their chat.

        False, and nothing is queued, if they have a recent code or too many others are waiting.
        """
        code = "".join(CODE_ALPHABET[byte % len(CODE_ALPHABET)] for byte in os.urandom(CODE_LENGTH))
        salt, now = os.urandom(16), self._clock()
        outbox_row = outbox.make_outbox_row(message(f"{code[:4]}-{code[4:]}"))
        platform, person, name = request.platform, request.person, clean_text(request.name)
        row = (platform, person, name, to_json(request.address), salt, _hash(salt, code), now)

        def work(db: Connection) -> bool:
            db.execute("DELETE FROM pairing_requests WHERE created < ?", (now - CODE_VALID_S,))
            others = "SELECT count(*) FROM pairing_requests WHERE platform = ? AND person_id <> ?"
            (waiting,) = db.execute(others, (platform, person)).fetchone()
            recent = "SELECT 1 FROM pairing_requests WHERE platform = ? AND person_id = ? AND created > ?"
            asked_recently = db.execute(recent, (platform, person, now - REQUEST_INTERVAL_S)).fetchone()
            if asked_recently or waiting >= MAX_REQUESTS:
                return False
            db.execute("INSERT OR REPLACE INTO pairing_requests VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            outbox.insert_outbound(db, [outbox_row], now)
            return True

        return await self._database.run(work)

    async def list_requests(self) -> tuple[PairingRequest, ...]:
        """The requests with a valid code, oldest first."""
        sql = f"SELECT {_REQUEST_COLUMNS} FROM pairing_requests WHERE created >= ? ORDER BY created"
        return tuple(map(_request_from_row, await self._database.fetch_all(sql, self._clock() - CODE_VALID_S)))

    async def approve(self, code: str, role: PersonRole, welcome: Callable[[PairingRequest], Outbound]) -> Person:
        """Give access to the person with this code, and queue a welcome message.

        Raises `MessageRejected` with a sentence for the operator, after too many wrong codes for any code.
        """
        plain, now = code.upper().replace("-", "").replace(" ", ""), self._clock()

        def work(db: Connection) -> Person | str:
            db.execute("DELETE FROM wrong_pairing_codes WHERE created < ?", (now - CODE_VALID_S,))
            wrong, first = db.execute("SELECT count(*), min(created) FROM wrong_pairing_codes").fetchone()
            if wrong >= MAX_WRONG_CODES:
                minutes = max(1, round((first + CODE_VALID_S - now) / 60))
                return f"too many wrong codes; try again in {minutes} min"
            found = _find_by_code(db, plain, now - CODE_VALID_S)
            if found is None:
                db.execute("INSERT INTO wrong_pairing_codes VALUES (?)", (now,))
                return "unknown or expired code; ask them to request a new one"
            delete = "DELETE FROM pairing_requests WHERE platform = ? AND person_id = ?"
            db.execute(delete, (found.platform, found.person))
            sql = """INSERT INTO people VALUES (?, ?, ?, ?, ?)
                ON CONFLICT (platform, person_id) DO UPDATE SET name = excluded.name, role = excluded.role"""
            db.execute(sql, (found.platform, found.person, found.name, role, now))
            outbox.insert_outbound(db, [outbox.make_outbox_row(welcome(found))], now)
            return Person(found.platform, found.person, found.name, role, now)

        result = await self._database.run(work)
        if isinstance(result, str):  # raised after the transaction, so that the wrong code is counted
            raise MessageRejected(result)
        return result

    async def default_chats(self) -> dict[str, Address]:
        """By platform: where messages go when no chat is named."""
        sql = "SELECT platform, address FROM default_chats ORDER BY platform"
        found = await self._database.fetch_all(sql)
        return {platform: Decoders.address.decode(address) for platform, address in found}

    async def set_default_chat(self, address: Address) -> None:
        sql = "INSERT OR REPLACE INTO default_chats VALUES (?, ?)"
        await self._database.execute(sql, address.platform, to_json(address))

    async def progress(self, lane: str) -> Progress | None:
        """How much tool progress a chat shows; None if it was not set."""
        sql = "SELECT progress FROM chat_settings WHERE lane = ?"
        row = await self._database.fetch_one(sql, lane)
        return None if row is None else row[0]

    async def set_progress(self, lane: str, progress: Progress) -> None:
        await self._database.execute("INSERT OR REPLACE INTO chat_settings VALUES (?, ?)", lane, progress)


def _hash(salt: bytes, code: str) -> bytes:
    return hashlib.sha256(salt + code.encode()).digest()


def _find_by_code(db: Connection, code: str, since: float) -> PairingRequest | None:
    sql = f"SELECT salt, code_hash, {_REQUEST_COLUMNS} FROM pairing_requests WHERE created >= ?"
    for salt, hash, *row in db.execute(sql, (since,)).fetchall():
        if _hash(salt, code) == hash:
            return _request_from_row(row)
    return None


def _request_from_row(row: Sequence[Any]) -> PairingRequest:
    platform, person, name, address, created = row
    return PairingRequest(platform, person, name, Decoders.address.decode(address), created)
