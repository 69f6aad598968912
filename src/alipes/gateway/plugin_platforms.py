"""A platform that a plugin brings: opened to be listened to, closed when that ends. What it does, it says."""

import asyncio
from typing import Any

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Arrival, Piece, Platform, Take, Talents, Tell, Welcome
from alipes.kernel.turns import Address
from alipes.plugins.attribution import TURN, as_coroutine, called_by, done_by, on_behalf_of
from alipes.plugins.owner import CORE
from alipes.plugins.registry import Offers, ProviderOffer
from alipes.plugins.stepped_coroutine import Watched
from alipes.runtime.tasks import ungrouped
from alipes.store.people import Role

KIND = "platform"
"""`ctx.provide("platform", name, open)`; `open()` is an async context manager of a `Platform`."""
LOOK = 1.0
"""Seconds between two looks whether its plugin is still the one that was opened."""
_CLOSED = Talents()


def guests(offers: Offers) -> tuple[str, ...]:
    """The platforms that plugins offer now."""
    return tuple(each.name for each in offers.all(ProviderOffer) if each.kind == KIND)


class Guest:
    """Each time it is listened to it is what its plugin offers then: a plugin may be loaded anew."""

    def __init__(self, name: str, offers: Offers, *, look: float = LOOK) -> None:
        self.name = name
        self._offers, self._look = offers, look
        self._platform: Platform | None = None
        self._owner = CORE
        """Of the platform: the plugin that brings it."""
        self._welcome: Welcome | None = None

    def fetch_only_for(self, welcome: Welcome) -> None:
        """Passed on to a platform that asks; one that fetches nothing need not."""
        self._welcome = welcome

    @property
    def talents(self) -> Talents:
        return _CLOSED if self._platform is None else self._platform.talents

    def role(self, person: str) -> Role | None:
        """Whom the platform itself knows; most know nobody."""
        asked: Any = getattr(self._platform, "role", None)
        if not callable(asked):
            return None
        role = called_by(self._owner, f"{self.name}.role", lambda: asked(person))
        return role if role in ("owner", "user") else None

    async def listen(self, take: Take, tell: Tell) -> None:
        offer = await self._offered(tell)

        async def taking(arrival: Arrival) -> None:
            turn = TURN.set(None)
            try:
                with on_behalf_of(None):  # what becomes of it is not the plugin's doing
                    await Watched(as_coroutine(take(arrival)), None)
            finally:
                TURN.reset(turn)

        with ungrouped():
            async with asyncio.TaskGroup() as group:
                group.create_task(self._served(offer, taking, tell), name=f"plugin platform {self.name}")
                while self._offer() is offer:  # noqa: ASYNC110
                    await asyncio.sleep(self._look)
                raise DeliveryError("its plugin was closed, or loaded anew")

    async def _served(self, offer: ProviderOffer, take: Take, tell: Tell) -> None:
        with on_behalf_of(offer.owner):
            async with offer.thing() as platform:
                self._platform, self._owner = platform, offer.owner
                asks: Any = getattr(platform, "fetch_only_for", None)
                if callable(asks):
                    asks(self._welcome)
                try:
                    await done_by(self._owner, f"{self.name}.listen", platform.listen(take, tell))
                finally:
                    self._platform = None
        raise DeliveryError("it stopped listening")

    async def _offered(self, tell: Tell) -> ProviderOffer:
        while (offer := self._offer()) is None:
            tell("broken", "no plugin that is open brings it")
            await asyncio.sleep(self._look)
        return offer

    def _offer(self) -> ProviderOffer | None:
        return self._offers.find(ProviderOffer, f"{KIND}:{self.name}")

    @property
    def _open(self) -> Platform:
        if self._platform is None:
            raise DeliveryError(f"{self.name} is not connected")
        return self._platform

    def pieces(self, text: str) -> tuple[Piece, ...]:
        platform = self._open
        return called_by(self._owner, f"{self.name}.pieces", lambda: platform.pieces(text))

    async def send(self, address: Address, piece: Piece) -> str:
        return await done_by(self._owner, f"{self.name}.send", self._open.send(address, piece))

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        await done_by(self._owner, f"{self.name}.edit", self._open.edit(address, message, piece))

    async def delete(self, address: Address, message: str) -> None:
        await done_by(self._owner, f"{self.name}.delete", self._open.delete(address, message))

    async def typing(self, address: Address) -> None:
        await done_by(self._owner, f"{self.name}.typing", self._open.typing(address))

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        await done_by(self._owner, f"{self.name}.menu", self._open.menu(commands))
