"""Webhooks that lead in: what each is for, its secret, and how often it was used. Rows; it judges nothing."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.models import Secret
from alipes.store.database.database import Database

KeyScope: TypeAlias = Literal["read", "run", "admin"]
_COLUMNS = "name, scope, created, expires, rate"


class NamedKey(Struct, frozen=True):
    """A key, but for itself: that was shown once, when it was made."""

    name: str
    scope: KeyScope
    created: float
    expires: float | None = None
    """Seconds since the epoch after which it opens nothing; None: never."""
    rate: int | None = None
    """Requests a minute; None: as many as everyone has."""


class SqliteCallers:
    """The named keys of a home; what time it is is asked of `clock`."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def add(
        self, name: str, hash: bytes, scope: KeyScope, *, lasts: float = 0.0, rate: int | None = None
    ) -> bool:
        """`lasts`: seconds; zero: for good. False where the name is taken."""
        now = self._clock()
        row = (name, hash, scope, now, now + lasts if lasts else None, rate)

        def work(db: sqlite3.Connection) -> bool:
            sql = "INSERT OR IGNORE INTO callers VALUES (?, ?, ?, ?, ?, ?)"
            return bool(db.execute(sql, row).rowcount)

        return await self._database.run(work)

    async def find(self, hash: bytes) -> NamedKey | None:
        """The key with this hash, unless it is too old."""
        sql = f"SELECT {_COLUMNS} FROM callers WHERE hash = ? AND (expires IS NULL OR expires > ?)"
        row = await self._database.read(lambda db: db.execute(sql, (hash, self._clock())).fetchone())
        return None if row is None else _key(row)

    async def all(self) -> tuple[NamedKey, ...]:
        """Those that are too old as well."""
        sql = f"SELECT {_COLUMNS} FROM callers ORDER BY name"
        return tuple(map(_key, await self._database.read(lambda db: db.execute(sql).fetchall())))

    async def revoke(self, name: str) -> bool:
        """It opens nothing from now on; False where there is none of this name."""
        sql = "DELETE FROM callers WHERE name = ?"
        return bool(await self._database.run(lambda db: db.execute(sql, (name,)).rowcount))


def _key(row: Sequence[Any]) -> NamedKey:
    return NamedKey(*row)


Style: TypeAlias = Literal["standard", "github"]


class Webhook(Struct, frozen=True, omit_defaults=True):
    """A named way in, as the operator made it."""

    name: str
    prompt: str
    """What is to be done; `{body.path}` and `{headers.name}` stand for what arrives."""
    style: Style = "standard"
    """How what arrives is signed."""
    target: str = ""
    """The chat that is told the answer, as `alipes send` names one; empty: none."""
    tools: tuple[str, ...] | None = None
    """What may be used for it; None: all that the platform `webhook` has."""
    model: str = ""
    rate: int = 60
    """Deliveries a minute."""
    together: bool = False
    """All deliveries in one conversation; else each has its own."""


class Standing(Struct, frozen=True):
    webhook: Webhook
    created: float
    taken: int
    """How often it was used."""
    last: float | None
    """When it was used last."""


_decoder = msgspec.json.Decoder(Webhook)


class SqliteWebhooks:
    """The webhooks of a home; what time it is is asked of `clock`."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def add(self, webhook: Webhook, secret: str) -> bool:
        """False where the name is taken."""
        row = (webhook.name, msgspec.json.encode(webhook).decode(), secret, self._clock())

        def work(db: sqlite3.Connection) -> bool:
            sql = "INSERT OR IGNORE INTO webhooks (name, hook, secret, created) VALUES (?, ?, ?, ?)"
            return bool(db.execute(sql, row).rowcount)

        return await self._database.run(work)

    async def find(self, name: str) -> tuple[Webhook, Secret] | None:
        sql = "SELECT hook, secret FROM webhooks WHERE name = ?"
        row = await self._database.read(lambda db: db.execute(sql, (name,)).fetchone())
        return None if row is None else (_decoder.decode(row[0]), Secret(row[1]))

    async def all(self) -> tuple[Standing, ...]:
        sql = "SELECT hook, created, taken, last FROM webhooks ORDER BY name"
        found = await self._database.read(lambda db: db.execute(sql).fetchall())
        return tuple(Standing(_decoder.decode(hook), *rest) for hook, *rest in found)

    async def used(self, name: str) -> None:
        """Something was taken that it brought."""
        sql = "UPDATE webhooks SET taken = taken + 1, last = ? WHERE name = ?"
        values = (self._clock(), name)
        await self._database.run(lambda db: db.execute(sql, values).rowcount)

    async def remove(self, name: str) -> bool:
        """False where there is none of this name."""
        sql = "DELETE FROM webhooks WHERE name = ?"
        return bool(await self._database.run(lambda db: db.execute(sql, (name,)).rowcount))
