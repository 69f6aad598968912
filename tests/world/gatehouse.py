"""A gateway on a real house: store, sessions and commands are ours, the messenger and the model the test's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.owed import Owing
from alipes.gateway.policy import Manners, Rules
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address
from alipes.plugins.registry import Offers
from alipes.providers.registry import Choice
from alipes.sessions.commands import BY_NAME
from alipes.sessions.commands.context import Context
from tests.world.house import House, One, open_house
from tests.world.messenger import Messenger

RULES: dict[str, Any] = {"first": 0.02, "poll": 0.05, "burst": 0.4, "edits": 1000.0, "linger": 60.0}
_numbers = count(1)


class Models(One):
    def names(self) -> tuple[str, ...]:
        return ("test/m",)


class Gatehouse:
    """What the gateway needs of an app, and a few words for tests."""

    def __init__(self, house: House, provider: Any) -> None:
        self.house, self.lobby, self.store, self.hooks = house, house.lobby, house.store, house.hooks
        self.offers = Offers(lambda: BY_NAME)
        self._models = Models(provider)
        self.gateway: Gateway
        self.messenger: Messenger
        self.restarted = 0

    def context(self, inbound, *, files=True):
        return Context(
            inbound=inbound,
            lobby=self.lobby,
            store=self.store,
            models=self._models,
            choice=self._choice,
            offers=self.offers,
            hooks=self.hooks,
            files=files,
        )

    async def _choice(self):
        return Choice(model="test/m", why="The test says so.")

    def restart(self):
        self.restarted += 1

    async def take(self, text: str = "", *, id: str = "", sender: str = "me", **more: Any) -> None:
        await self.gateway.take("test", arrival(text, id=id, sender=sender, **more))

    async def quiet(self) -> None:
        """Return once nothing lives and nothing that can be sent is owed."""
        await self.lobby.settled()
        await self.gateway.delivery.drained()


def arrival(text: str = "", *, id: str = "", sender: str = "me", chat: str = "me", **more: Any) -> Arrival:
    place = {name: more.pop(name) for name in ("chat_type", "thread", "user") if name in more}
    return Arrival(id or f"a{next(_numbers)}", Address("test", chat, **place), sender, text=text, **more)


@asynccontextmanager
async def open_gatehouse(
    home: Path,
    provider: Any,
    *tools: Any,
    messenger: Messenger | None = None,
    manners: Manners | None = None,
    rules: dict[str, Any] | None = None,
    transcribe: Any = None,
    **habits: Any,
) -> AsyncIterator[Gatehouse]:
    """At the end the gateway is cancelled, then the lobby, as by a signal."""
    messenger = messenger or Messenger()
    owing = Owing(["test"], [str(home / "outgoing")])
    habits = {"interactive": True, "owes": owing, **habits}
    manners = manners or Manners(allow=("me",), busy="queue", progress="off")
    how = Rules(manners={"test": manners}, outgoing=str(home / "outgoing"), **{**RULES, **(rules or {})})
    async with open_house(home, provider, *tools, **habits) as house:
        gatehouse = Gatehouse(house, provider)
        gatehouse.messenger = messenger
        gatehouse.gateway = Gateway(
            gatehouse,
            {"test": messenger},
            how,
            owing=owing,
            restart=gatehouse.restart,
            transcribe=transcribe,
        )
        serving = asyncio.create_task(gatehouse.gateway.run())
        try:
            await messenger.connected.wait()
            yield gatehouse
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            if not serving.cancelled() and serving.exception() is not None:
                raise serving.exception()
