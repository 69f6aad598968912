"""Named API keys, as hashes."""

from typing import Literal, TypeAlias

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


_COLUMNS = "name, scope, created, expires, requests_per_minute"


class ApiKeyStore(SqlRows):
    async def add(
        self, name: str, hash: bytes, scope: KeyScope, *, lifetime_s: float = 0.0, rate: int | None = None
    ) -> bool:
        """`lifetime_s` 0: it does not expire. False if the name is already in use."""
        now = self._clock()
        expires = now + lifetime_s if lifetime_s else None
        sql = "INSERT OR IGNORE INTO api_keys VALUES (?, ?, ?, ?, ?, ?)"
        return bool(await self._database.execute(sql, name, hash, scope, now, expires, rate))

    async def find(self, hash: bytes) -> ApiKey | None:
        """The key with this hash, unless it has expired."""
        sql = f"SELECT {_COLUMNS} FROM api_keys WHERE key_hash = ? AND (expires IS NULL OR expires > ?)"
        row = await self._database.fetch_one(sql, hash, self._clock())
        return None if row is None else ApiKey(*row)

    async def all(self) -> tuple[ApiKey, ...]:
        """All keys, including expired ones."""
        sql = f"SELECT {_COLUMNS} FROM api_keys ORDER BY name"
        return tuple(ApiKey(*row) for row in await self._database.fetch_all(sql))

    async def revoke(self, name: str) -> bool:
        """False if there is no key with this name."""
        sql = "DELETE FROM api_keys WHERE name = ?"
        return bool(await self._database.execute(sql, name))
