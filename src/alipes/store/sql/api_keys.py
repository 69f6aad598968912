"""Named API keys, as hashes."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.store.sql.rows import SqlRows

KeyScope: TypeAlias = Literal["read", "run", "admin"]


class ApiKey(Struct, frozen=True):
    """A named key, without its value, which is shown only once when it is created."""

    name: str
    scope: KeyScope
    created: float
    expires: float | None = None
    """When it expires, in seconds since the epoch; None: never."""
    rate: int | None = None
    """Requests per minute; None: the default."""
    unlisted: bool = False
    """Its conversations are not shown on the page."""


_COLUMNS = "name, scope, created, expires, requests_per_minute, unlisted"


class ApiKeyStore(SqlRows):
    async def add(
        self,
        name: str,
        hash: bytes,
        scope: KeyScope,
        *,
        lifetime_s: float = 0.0,
        rate: int | None = None,
        unlisted: bool = False,
    ) -> bool:
        """`lifetime_s` 0: it does not expire. False if the name is already in use."""
        now = self._clock()
        expires = now + lifetime_s if lifetime_s else None
        sql = f"INSERT OR IGNORE INTO api_keys ({_COLUMNS}, key_hash) VALUES (?, ?, ?, ?, ?, ?, ?)"
        return bool(await self._database.execute(sql, name, scope, now, expires, rate, int(unlisted), hash))

    async def find(self, hash: bytes) -> ApiKey | None:
        """The key with this hash, unless it has expired."""
        sql = f"SELECT {_COLUMNS} FROM api_keys WHERE key_hash = ? AND (expires IS NULL OR expires > ?)"
        row = await self._database.fetch_one(sql, hash, self._clock())
        return None if row is None else _to_key(row)

    async def all(self) -> tuple[ApiKey, ...]:
        """All keys, including expired ones."""
        sql = f"SELECT {_COLUMNS} FROM api_keys ORDER BY name"
        return tuple(_to_key(row) for row in await self._database.fetch_all(sql))

    async def revoke(self, name: str) -> bool:
        """False if there is no key with this name."""
        sql = "DELETE FROM api_keys WHERE name = ?"
        return bool(await self._database.execute(sql, name))


def _to_key(row: tuple[Any, ...]) -> ApiKey:
    *facts, unlisted = row
    name, scope, created, expires, rate = facts
    return ApiKey(name, scope, created, expires, rate, bool(unlisted))
