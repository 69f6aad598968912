"""Platforms that plugins registered, as the gateway serves them: connected, listened to, let go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.platform.adapter import call
from alipes.compat.hermes.platform.inbound import INTERNAL, Attendance, arrival_of, place_of
from alipes.compat.hermes.platform.platform import Sending
from alipes.compat.hermes.platform.questions import ASKING
from alipes.compat.hermes.platform.values import (
    HEARD,
    REMEMBERED,
    HomeChannel,
    MessageEvent,
    Platform,
    PlatformConfig,
)
from alipes.compat.hermes.state import PlatformEntry, Recent
from alipes.config.loader import read
from alipes.kernel.errors import ConfigError, DeliveryError, PluginError, StoreError
from alipes.kernel.platform import Take, Tell
from alipes.kernel.turns import Answer, ApprovalAnswered, ApprovalAsked, Event, Stop, Turn, TurnStarted
from alipes.plugins.attribution import on_behalf_of
from alipes.plugins.context import Context
from alipes.plugins.dispatch import guard
from alipes.plugins.owner import Owner
from alipes.runtime.tasks import ungrouped

PATIENCE = 30.0
HOLDING = 5.0
"""Seconds for which one of its functions may hold the loop."""
_YES = ("1", "true", "yes", "on")


async def config_of(
    bridge: Bridge, entry: PlatformEntry, given: PlatformConfig | None = None
) -> PlatformConfig:
    """What was given; under it the plugin's own table, `[plugins.entries.NAME]`; under that what the plugin
    reads from its variables. Raises PluginError where its code breaks."""
    config = given or PlatformConfig(enabled=True)
    with on_behalf_of(entry.owner):
        own = bridge.context().config
    table = dict(own) if isinstance(own, dict) else {}
    seed = await _asked(entry, "env_enablement_fn") or {}
    tables = read(bridge.home).tables
    bridged = await _asked(entry, "apply_yaml_config_fn", tables, table) or {}
    extra = {**seed, **bridged, **table, **config.extra}
    home = extra.pop("home_channel", None)
    if isinstance(home, dict) and config.home_channel is None:
        home = {name: home[name] for name in ("chat_id", "name", "thread_id") if name in home}
        config.home_channel = HomeChannel(Platform(entry.name), **home)
    config.extra = extra
    config.token = config.token or extra.get("token")
    config.api_key = config.api_key or extra.get("api_key")
    return config


async def adapter_of(entry: PlatformEntry, config: PlatformConfig) -> Any:
    """The adapter, made but not connected. Raises PluginError with what is missing or breaks."""
    if not await _asked(entry, "check_fn"):
        hint = f": {entry.install_hint}" if entry.install_hint else ""
        needs = f" (it needs {', '.join(entry.required_env)})" if entry.required_env else ""
        raise PluginError(entry.owner.name, entry.name, f"its requirements are not met{hint}{needs}")
    if entry.validate_config is not None and not await _asked(entry, "validate_config", config):
        raise PluginError(entry.owner.name, entry.name, "the plugin finds its configuration incomplete")
    if entry.is_connected is not None and not await _asked(entry, "is_connected", config):
        raise PluginError(entry.owner.name, entry.name, "the plugin says that it is not set up")
    return await _asked(entry, "adapter_factory", config)


def named(bridge: Bridge, entry: PlatformEntry, person: str) -> Literal["owner", "user"] | None:
    """As what the plugin's variables let a person speak: by name as an owner, with all others as a user."""
    told = bridge.variable(entry.allowed_users_env) if entry.allowed_users_env else ""
    allowed = {each.strip() for each in told.split(",")} - {""}
    if person in allowed and person != "*":
        return "owner"
    everyone = entry.allow_all_env and bridge.variable(entry.allow_all_env).lower() in _YES
    return "user" if everyone or "*" in allowed else None


async def _asked(entry: PlatformEntry, what: str, *given: Any) -> Any:
    """What a function of the plugin's says; None where it has none."""
    function = getattr(entry, what)
    if function is None:
        return None

    async def ask() -> Any:
        with on_behalf_of(entry.owner):
            return await call(function, *given)

    blamed = Owner(entry.owner.name, lasting=True)
    return await guard(blamed, what, ask(), deadline=PATIENCE, holding=HOLDING)


CONNECTING = 60.0
"""Seconds in which an adapter must be connected."""
LEAVING = 5.0
BEAT = 20.0
"""Seconds between two looks at a connection of which nothing is heard."""
RETURN = 10.0
"""Seconds in which an adapter that lost its connection may have it again; then it is made anew."""


class Registration:
    """`open()` makes an adapter that is a `Platform`; turns in its chats are told to the one that is open."""

    def __init__(self, bridge: Bridge, context: Context, entry: PlatformEntry) -> None:
        self.entry = entry
        self._bridge, self._context = bridge, context
        self._served: Adapter | None = None
        self._opened = 0

    def attach(self) -> None:
        """Hear of turns, as long as the plugin is open."""
        for hook in (self.on_event, self.turn_ended):
            self._context.hook(hook)
            self._context.registered.pop()  # nobody looks for these

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator["Adapter"]:
        """An adapter that is not connected yet. Raises ConfigError where something is missing."""
        try:
            config = await config_of(self._bridge, self.entry)
            adapter = await adapter_of(self.entry, config)
        except PluginError as error:
            raise ConfigError(str(error)) from error
        self._served = Adapter(self._bridge, self.entry, adapter, again=self._opened > 0)
        self._opened += 1
        try:
            yield self._served
        finally:
            self._served = None

    def on_event(self, event: Event, turn: Turn) -> None:
        if not isinstance(event, TurnStarted | ApprovalAsked | ApprovalAnswered) or not self._mine(turn):
            return
        match event:
            case TurnStarted() if self._served is not None:
                self._served.attendance.begin(turn)
            case ApprovalAsked():
                ASKING.put(turn.key, event, partial(self._answer, turn.key))
            case ApprovalAnswered():
                ASKING.drop(turn.key, event.ask)

    def turn_ended(self, turn: Turn, ending: str) -> None:
        if self._mine(turn):
            ASKING.drop(turn.key)
            if self._served is not None:
                self._served.attendance.end(turn, ending)

    def _mine(self, turn: Turn) -> bool:
        return turn.inbound.address.platform == self.entry.name

    def _answer(self, key: str, answer: Answer) -> None:
        """From any thread."""
        self._bridge.soon(lambda: self._context.run(self._bridge.host.post(key, answer), "answering"))


class Adapter(Sending):
    """One adapter, while it is open. What it hears, it hands over."""

    def __init__(self, bridge: Bridge, entry: PlatformEntry, adapter: Any, *, again: bool) -> None:
        """`again`: one before it was open."""
        super().__init__(entry, adapter)
        self._bridge, self._again = bridge, again
        self._take: Take
        self._stirred, self._failed = asyncio.Event(), list[StoreError]()
        self._vouched: Recent[str, Literal["owner", "user"] | None] = Recent()
        self.attendance = Attendance(entry, adapter)

    async def listen(self, take: Take, tell: Tell) -> None:
        self._take = take
        runner, platform = self._bridge.gateway, Platform(self.name)
        with ungrouped():
            async with asyncio.TaskGroup() as group, self.attendance.open(group):
                self.adapter._hearing = self
                try:
                    await self._connect()
                    runner.adapters[platform] = self.adapter
                    await self._watch(tell)
                finally:
                    self.adapter._hearing = None
                    if runner.adapters.get(platform) is self.adapter:
                        del runner.adapters[platform]
                    await self.attendance.tried("disconnect", patience=LEAVING)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECTING):
                connected = await self.do("connect", is_reconnect=self._again)
        except TimeoutError as error:
            raise DeliveryError(f"it was not connected in {CONNECTING:g} s") from error
        self._check()
        if connected is False:
            raise DeliveryError("it could not be connected, and does not say why")

    async def _watch(self, tell: Tell) -> None:
        """Return never: raise why it cannot go on."""
        marked = False
        while True:
            self._stirred.clear()
            self._check()
            running = bool(getattr(self.adapter, "is_connected", True))
            marked = marked or running
            if running or not marked:  # the oldest never mark it
                tell("ready", "")
                await self._stir(BEAT)
            else:
                tell("broken", "it lost its connection")
                if not await self._stir(RETURN):
                    raise DeliveryError(f"it lost its connection, and has none after {RETURN:g} s")

    async def _stir(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
                return True
        return False

    def _check(self) -> None:
        if self._failed:
            raise self._failed[0]
        if not getattr(self.adapter, "has_fatal_error", False):
            return
        why = f"{self.adapter.fatal_error_message} ({self.adapter.fatal_error_code})"
        raise DeliveryError(why) if self.adapter.fatal_error_retryable else ConfigError(why)

    def stands(self) -> None:
        self._bridge.soon(self._stirred.set)

    async def hear(self, event: MessageEvent) -> None:
        address = place_of(event, self.adapter)
        event.metadata = {**(event.metadata or {}), "session_key": address.key}
        arrival = await arrival_of(event, address)
        REMEMBERED[arrival.id] = event
        self._vouched[arrival.sender] = self._voucher(event)
        token = HEARD.set(event)
        try:
            await self._take(arrival)
        except StoreError as error:  # whatever the adapter makes of it: who cannot remember must not listen
            self._failed.append(error)
            self._stirred.set()
            raise
        finally:
            HEARD.reset(token)

    async def cancel(self, key: str, *, waiting: bool) -> None:
        turns = await self._bridge.host.unfinished(key)
        ended = turns if waiting else turns[:1]
        for turn in reversed(ended):  # those that wait first, so that none of them begins
            await self._bridge.host.post(key, Stop("user_stop", "session_interrupt", turn))
        await self.attendance.over(ended)

    def role(self, person: str) -> Literal["owner", "user"] | None:
        """Whom the plugin's variables name, as they are now; and whom the adapter answers for."""
        if person.startswith(INTERNAL):
            return "user"
        return named(self._bridge, self._entry, person) or self._vouched.get(person)

    def _voucher(self, event: MessageEvent) -> Literal["owner", "user"] | None:
        if getattr(self.adapter, "enforces_own_access_policy", False):
            return "user"
        source = event.source
        others = (source.user_id_alt, source.user_name) if source is not None else ()
        found = [named(self._bridge, self._entry, str(each)) for each in others if each]
        return "owner" if "owner" in found else "user" if "user" in found else None
