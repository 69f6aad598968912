"""Platforms that plugins provide: opened while they listen, closed when that ends."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Capabilities, IncomingMessage, MayFetch, MessagePart, OnMessage, OnStatus, Platform
from alipes.kernel.turns import Address, BusyMode
from alipes.plugins.interruption.attribution import TURN, as_coroutine, call_as, on_behalf_of, run_as
from alipes.plugins.interruption.stepped_coroutine import WatchedCoroutine
from alipes.plugins.owner import CORE, PluginOwner
from alipes.plugins.registry import Contributions, ProviderContribution
from alipes.runtime.tasks import unwrap_error_group
from alipes.sessions.sessions import Sessions
from alipes.store.sql.people import PersonRole

KIND = "platform"
"""`ctx.provide("platform", name, open)`; `open()` is an async context manager of a `Platform`."""
CHECK_INTERVAL = 1.0
"""Seconds between two checks whether the plugin was reloaded or closed."""
STOP_TIMEOUT = 10.0
"""Seconds that the turns of a removed platform have to end."""
_CLOSED = Capabilities()


def plugin_platform_names(contributions: Contributions) -> tuple[str, ...]:
    return tuple(each.name for each in contributions.all(ProviderContribution) if each.kind == KIND)


class PluginPlatform:
    """A platform of a plugin. Each `listen` opens what the plugin offers at that time, so reloads work."""

    webhook_path = ""

    def __init__(
        self, name: str, contributions: Contributions, sessions: Sessions, *, check_interval: float = CHECK_INTERVAL
    ) -> None:
        self.name = name
        self._contributions, self._sessions, self._check_interval = contributions, sessions, check_interval
        self._platform: Platform | None = None
        self._owner = CORE
        """The plugin that provides the open platform."""
        self._may_fetch: MayFetch | None = None

    def set_fetch_policy(self, may_fetch: MayFetch) -> None:
        """Passed on to platforms that support it; one that downloads nothing need not."""
        self._may_fetch = may_fetch

    @property
    def capabilities(self) -> Capabilities:
        return _CLOSED if self._platform is None else self._platform.capabilities

    def role(self, person: str) -> PersonRole | None:
        """The role the platform itself gives a person; most platforms give none."""
        ask: Any = getattr(self._platform, "role", None)
        if not callable(ask):
            return None
        role = call_as(self._owner, f"{self.name}.role", lambda: ask(person))
        return role if role in ("owner", "user") else None

    def wanted_busy(self) -> BusyMode | None:
        """What a message does while a turn is running, if the plugin asks for something."""
        return getattr(self.capabilities, "busy", None)

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        while (offer := self._offer()) is None:
            on_status("broken", "no loaded plugin provides it")
            await asyncio.sleep(self._check_interval)

        async def receive(message: IncomingMessage) -> None:
            turn = TURN.set(None)
            try:
                with on_behalf_of(None):  # the plugin is not responsible for what the message causes
                    await WatchedCoroutine(as_coroutine(on_message(message)), None)
            finally:
                TURN.reset(turn)

        with unwrap_error_group():
            async with asyncio.TaskGroup() as group:
                group.create_task(self._serve(offer, receive, on_status), name=f"plugin platform {self.name}")
                while self._offer() is offer:  # noqa: ASYNC110
                    await asyncio.sleep(self._check_interval)
                await self._end_turns(offer.owner)
                raise DeliveryError("its plugin was closed or reloaded")

    async def _end_turns(self, owner: PluginOwner) -> None:
        """Before it is disconnected: turns of a reloaded plugin end as usual, those of a removed one are stopped."""
        if self._offer() is not None:
            await owner.wait_unused()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._sessions.stop_platform(self.name)

    async def _serve(self, offer: ProviderContribution, on_message: OnMessage, on_status: OnStatus) -> None:
        with on_behalf_of(offer.owner):
            async with offer.thing() as platform:
                self._platform, self._owner = platform, offer.owner
                set_policy: Any = getattr(platform, "set_fetch_policy", None)
                if callable(set_policy):
                    set_policy(self._may_fetch)
                try:
                    await run_as(self._owner, f"{self.name}.listen", platform.listen(on_message, on_status))
                finally:
                    self._platform = None
        raise DeliveryError("it stopped listening")

    def _offer(self) -> ProviderContribution | None:
        return self._contributions.find(ProviderContribution, f"{KIND}:{self.name}")

    @property
    def _open(self) -> Platform:
        if self._platform is None:
            raise DeliveryError(f"{self.name} is not connected")
        return self._platform

    async def on_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        return 404

    async def run_sender(self, on_status: OnStatus) -> None:
        await run_as(self._owner, f"{self.name}.run_sender", self._open.run_sender(on_status))

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        platform = self._open
        return call_as(self._owner, f"{self.name}.format_message", lambda: platform.format_message(text))

    async def send(self, address: Address, part: MessagePart) -> str:
        return await run_as(self._owner, f"{self.name}.send", self._open.send(address, part))

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        await run_as(self._owner, f"{self.name}.edit", self._open.edit(address, message, part))

    async def delete(self, address: Address, message: str) -> None:
        await run_as(self._owner, f"{self.name}.delete", self._open.delete(address, message))

    async def typing(self, address: Address) -> None:
        await run_as(self._owner, f"{self.name}.typing", self._open.typing(address))

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        await run_as(self._owner, f"{self.name}.set_commands", self._open.set_commands(commands))
