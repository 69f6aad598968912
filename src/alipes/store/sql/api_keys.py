"""Named API keys (as hashes) and webhooks in SQLite."""

import msgspec
from msgspec import structs

from alipes.kernel.models import Secret
from alipes.store.ports.web import ApiKey, KeyScope, Webhook, WebhookStatus
from alipes.store.sql.damage import RowDecoder
from alipes.store.sql.rows import SqlRows

_COLUMNS = "name, scope, created, expires, requests_per_minute"


class SqlApiKeys(SqlRows):
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


_decoder: RowDecoder[Webhook] = RowDecoder(Webhook)


class SqlWebhooks(SqlRows):
    async def add(self, webhook: Webhook, secret: str) -> bool:
        """False if the name is already in use."""
        sql = "INSERT OR IGNORE INTO webhooks (name, settings, secret, created) VALUES (?, ?, ?, ?)"
        settings = msgspec.json.encode(webhook).decode()
        return bool(await self._database.execute(sql, webhook.name, settings, secret, self._clock()))

    async def find(self, name: str) -> tuple[Webhook, Secret] | None:
        sql = "SELECT settings, secret FROM webhooks WHERE name = ?"
        row = await self._database.fetch_one(sql, name)
        return None if row is None else (_decoder.decode(row[0]), Secret(row[1]))

    async def allow_tools(self, name: str, tools: tuple[str, ...]) -> bool:
        """False if there is no webhook with this name."""
        found = await self.find(name)
        if found is None:
            return False
        settings = msgspec.json.encode(structs.replace(found[0], tools=tools)).decode()
        return bool(await self._database.execute("UPDATE webhooks SET settings = ? WHERE name = ?", settings, name))

    async def set_secret(self, name: str, secret: str) -> bool:
        """False if there is no webhook with this name."""
        return bool(await self._database.execute("UPDATE webhooks SET secret = ? WHERE name = ?", secret, name))

    async def secrets(self) -> tuple[str, ...]:
        """The secrets of all webhooks, to mask them."""
        return tuple(row[0] for row in await self._database.fetch_all("SELECT secret FROM webhooks WHERE secret <> ''"))

    async def all(self) -> tuple[WebhookStatus, ...]:
        sql = "SELECT settings, created, deliveries, last_delivery FROM webhooks ORDER BY name"
        found = await self._database.fetch_all(sql)
        return tuple(WebhookStatus(_decoder.decode(settings), *rest) for settings, *rest in found)

    async def count_delivery(self, name: str) -> None:
        sql = "UPDATE webhooks SET deliveries = deliveries + 1, last_delivery = ? WHERE name = ?"
        await self._database.execute(sql, self._clock(), name)

    async def remove(self, name: str) -> bool:
        """False if there is no webhook with this name."""
        sql = "DELETE FROM webhooks WHERE name = ?"
        return bool(await self._database.execute(sql, name))
