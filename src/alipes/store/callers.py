"""Keys that were given names, kept as hashes: rows of SQLite. Whoever shows one is judged elsewhere."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.store.database import Database

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
