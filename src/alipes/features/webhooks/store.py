"""Webhooks as the operator configured them, with their secrets and their use."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.kernel.messages import Json
from alipes.kernel.models import Secret
from alipes.store.sql.damage import RowDecoder
from alipes.store.sql.rows import SqlRows

SignatureStyle: TypeAlias = Literal["standard", "github"]


class Webhook(Struct, frozen=True, omit_defaults=True):
    """A webhook as the operator configured it. Its fields are stored as JSON: do not rename them."""

    name: str
    prompt: str
    """The task; `{body.path}` and `{headers.name}` are replaced by values of the request. Empty: it only starts jobs
    of the schedules."""
    style: SignatureStyle = "standard"
    """How requests are signed."""
    target: str = ""
    """The chat that gets the answer, as in `alipes send`; empty: none."""
    tools: tuple[str, ...] | None = None
    """The tools it may use. None, as in webhooks of earlier versions, where it meant all: none."""
    model: str = ""
    rate: int = 60
    """Deliveries per minute."""
    together: bool = False
    """All deliveries share one conversation; else each has its own."""
    output_schema: dict[str, Json] = {}
    """What the answer must match; empty: any text."""


class WebhookStatus(Struct, frozen=True, rename={"deliveries": "taken", "last_delivery": "last"}):
    """A webhook and its use; the JSON names are those of `alipes webhook list --json`."""

    webhook: Webhook
    created: float
    deliveries: int
    last_delivery: float | None


_decoder: RowDecoder[Webhook] = RowDecoder(Webhook)


class WebhookStore(SqlRows):
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
