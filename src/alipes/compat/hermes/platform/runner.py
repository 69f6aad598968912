"""Platforms registered by plugins: builds the adapter, connects it, and watches its connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal

from msgspec import structs

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.hook_arguments import final_text
from alipes.compat.hermes.platform.adapter import call_plugin
from alipes.compat.hermes.platform.inbound import INTERNAL, TurnNotifier, address_from_event, message_from_event
from alipes.compat.hermes.platform.platform import OPEN_APPROVALS, AdapterSender
from alipes.compat.hermes.platform.values import (
    CURRENT_EVENT,
    RECENT_EVENTS,
    HomeChannel,
    MessageEvent,
    Platform,
    PlatformConfig,
)
from alipes.compat.hermes.platform.voice_replies import VoiceReplies
from alipes.compat.hermes.state import PlatformEntry, RecentMap
from alipes.config.reader import read_config
from alipes.kernel.errors import ConfigError, DeliveryError, PluginError, StoreError
from alipes.kernel.messages import Message
from alipes.kernel.platform import OnMessage, OnStatus
from alipes.kernel.ports import Request
from alipes.kernel.turns import AnswerApproval, ApprovalAnswered, ApprovalAsked, Event, Stop, Turn, TurnStarted
from alipes.plugins.context import Context
from alipes.plugins.dispatch import guard
from alipes.plugins.interruption.attribution import on_behalf_of
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import SkillContribution
from alipes.runtime.tasks import unwrap_error_group

CALL_TIMEOUT_S = 30.0
MAX_BLOCK_S = 5.0
"""How long one of its functions may block the event loop."""
_TRUE_WORDS = ("1", "true", "yes", "on")


_TOKEN_VARIABLES = {"telegram": "TELEGRAM_BOT_TOKEN", "discord": "DISCORD_BOT_TOKEN", "slack": "SLACK_BOT_TOKEN"}
_TOKEN_VARIABLES |= {"mattermost": "MATTERMOST_TOKEN", "matrix": "MATRIX_ACCESS_TOKEN", "homeassistant": "HASS_TOKEN"}
_EXTRA_VARIABLES: dict[str, dict[str, str]] = {
    "mattermost": {"url": "MATTERMOST_URL"},
    "homeassistant": {"url": "HASS_URL"},
    "matrix": {
        **{"homeserver": "MATRIX_HOMESERVER", "user_id": "MATRIX_USER_ID", "password": "MATRIX_PASSWORD"},
        **{"device_id": "MATRIX_DEVICE_ID", "e2ee_mode": "MATRIX_E2EE_MODE"},
    },
    "email": {**{"address": "EMAIL_ADDRESS", "imap_host": "EMAIL_IMAP_HOST", "smtp_host": "EMAIL_SMTP_HOST"}},
    "wecom": {"bot_id": "WECOM_BOT_ID", "secret": "WECOM_SECRET", "websocket_url": "WECOM_WEBSOCKET_URL"},
    "wecom_callback": {
        **{"corp_id": "WECOM_CALLBACK_CORP_ID", "corp_secret": "WECOM_CALLBACK_CORP_SECRET"},
        **{"agent_id": "WECOM_CALLBACK_AGENT_ID", "token": "WECOM_CALLBACK_TOKEN"},
        **{"encoding_aes_key": "WECOM_CALLBACK_ENCODING_AES_KEY"},
    },
    "feishu": {"app_id": "FEISHU_APP_ID", "app_secret": "FEISHU_APP_SECRET", "domain": "FEISHU_DOMAIN"},
    "dingtalk": {"client_id": "DINGTALK_CLIENT_ID", "client_secret": "DINGTALK_CLIENT_SECRET"},
}
"""Variables that Hermes itself, not the plugin, puts into the configuration of its own platforms."""


def known_variables(bridge: Bridge, platform: str) -> dict[str, Any]:
    """The part of a platform's configuration that is in its usual variables; the key `token` is its token."""
    extra = {key: bridge.variable(name) for key, name in _EXTRA_VARIABLES.get(platform, {}).items()}
    token = bridge.variable(_TOKEN_VARIABLES.get(platform, ""))
    return {key: value for key, value in {**extra, "token": token or extra.get("token", "")}.items() if value}


async def build_config(bridge: Bridge, entry: PlatformEntry, given: PlatformConfig | None = None) -> PlatformConfig:
    """The platform's configuration: `given` over `[plugins.entries.NAME]` over the plugin's variables.
    Raises PluginError if its code fails."""
    config = given or PlatformConfig(enabled=True)
    with on_behalf_of(entry.owner):
        own = bridge.context().config
    table = dict(own) if isinstance(own, dict) else {}
    seed = await _call_entry(entry, "env_enablement_fn") or {}
    tables = read_config(bridge.home).tables
    bridged = await _call_entry(entry, "apply_yaml_config_fn", tables, table) or {}
    known = known_variables(bridge, entry.name)
    config.token = config.token or known.pop("token", None)
    extra = {**known, **seed, **bridged, **table, **config.extra}
    home = extra.pop("home_channel", None)
    if isinstance(home, dict) and config.home_channel is None:
        home = {name: home[name] for name in ("chat_id", "name", "thread_id") if name in home}
        config.home_channel = HomeChannel(Platform(entry.name), **home)
    config.extra = extra
    config.token = config.token or extra.get("token")
    config.api_key = config.api_key or extra.get("api_key")
    return config


async def build_adapter(entry: PlatformEntry, config: PlatformConfig) -> Any:
    """The adapter, not yet connected. Raises PluginError if something is missing."""
    if not await _call_entry(entry, "check_fn"):
        hint = f": {entry.install_hint}" if entry.install_hint else ""
        needs = f" (it needs {', '.join(entry.required_env)})" if entry.required_env else ""
        raise PluginError(entry.owner.name, entry.name, f"requirements not met{hint}{needs}")
    if entry.validate_config is not None and not await _call_entry(entry, "validate_config", config):
        raise PluginError(entry.owner.name, entry.name, "the configuration is incomplete")
    if entry.is_connected is not None and not await _call_entry(entry, "is_connected", config):
        raise PluginError(entry.owner.name, entry.name, "the platform is not set up")
    return await _call_entry(entry, "adapter_factory", config)


def role_from_variables(bridge: Bridge, entry: PlatformEntry, person: str) -> Literal["owner", "user"] | None:
    """The role that the plugin's variables give a person: listed people are owners, everyone else a user."""
    listed = bridge.variable(entry.allowed_users_env) if entry.allowed_users_env else ""
    allowed = {each.strip() for each in listed.split(",")} - {""}
    if person in allowed and person != "*":
        return "owner"
    everyone = entry.allow_all_env and bridge.variable(entry.allow_all_env).lower() in _TRUE_WORDS
    return "user" if everyone or "*" in allowed else None


async def _call_entry(entry: PlatformEntry, what: str, *given: Any) -> Any:
    """Call a function of the registration; None if it has none."""
    function = getattr(entry, what)
    if function is None:
        return None

    async def ask() -> Any:
        with on_behalf_of(entry.owner):
            return await call_plugin(function, *given)

    owner = PluginOwner(entry.owner.name, permanent=True)
    return await guard(owner, what, ask(), deadline=CALL_TIMEOUT_S, max_block=MAX_BLOCK_S)


CONNECT_TIMEOUT_S = 60.0
DISCONNECT_TIMEOUT_S = 5.0
CHECK_INTERVAL_S = 20.0
"""Interval of connection checks."""
RECONNECT_TIMEOUT_S = 10.0
"""Seconds in which an adapter may reconnect by itself; then it is rebuilt."""


def _skill_lines(context: Context, wanted: str | list[str] | None) -> list[str]:
    """Tell the model where the skills of a channel are."""
    names = [wanted] if isinstance(wanted, str) else wanted or []
    known = context.contributions.all(SkillContribution)
    return [
        f"Use the skill {name}: read {each.path} before you answer."
        for name in names
        for each in known
        if name in (each.name, each.name.rpartition(":")[2])
    ]


class PlatformRegistration:
    """A registered platform. Calling it opens an adapter, which is notified of the turns in its chats."""

    def __init__(self, bridge: Bridge, context: Context, entry: PlatformEntry) -> None:
        self.entry = entry
        self._bridge, self._context = bridge, context
        self._platform: AdapterPlatform | None = None
        self._open_count = 0

    def attach(self) -> None:
        """Observe turns while the plugin is open."""
        for hook in (self.on_event, self.turn_ended, self.before_request):
            self._context.hook(hook)
            self._context.registered.pop()  # not listed to users

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator["AdapterPlatform"]:
        """Build the adapter, not yet connected. Raises ConfigError if something is missing."""
        try:
            config = await build_config(self._bridge, self.entry)
            adapter = await build_adapter(self.entry, config)
        except PluginError as error:
            raise ConfigError(str(error)) from error
        self._platform = AdapterPlatform(self._bridge, self.entry, adapter, again=self._open_count > 0)
        self._open_count += 1
        try:
            yield self._platform
        finally:
            self._platform = None

    def on_event(self, event: Event, turn: Turn) -> None:
        if not isinstance(event, TurnStarted | ApprovalAsked | ApprovalAnswered) or not self._is_mine(turn):
            return
        match event:
            case TurnStarted() if self._platform is not None:
                self._platform.notifier.begin(turn)
            case ApprovalAsked():
                OPEN_APPROVALS.put(turn.key, event, partial(self._answer, turn.key))
            case ApprovalAnswered():
                OPEN_APPROVALS.drop(turn.key, event.ask)

    async def before_request(self, request: Request, turn: Turn) -> Request | None:
        """Add the platform's hint, and the prompt and skills of the channel."""
        if not self._is_mine(turn):
            return None
        event = RECENT_EVENTS.get(turn.inbound.id)
        skills = _skill_lines(self._context, getattr(event, "auto_skill", None))
        texts = (self.entry.platform_hint, getattr(event, "channel_prompt", None), *skills)
        more = "\n\n".join(text.strip() for text in texts if text and text.strip())
        return structs.replace(request, system=f"{request.system}\n\n{more}") if more else None

    def turn_ended(self, turn: Turn, ending: str, said: tuple[Message, ...]) -> None:
        if self._is_mine(turn):
            OPEN_APPROVALS.drop(turn.key)
            if self._platform is not None:
                self._platform.notifier.end(turn, ending)
                voices = self._platform.voice_replies
                if ending == "answered" and voices.is_wanted(turn):
                    self._context.run(voices.send(turn, final_text(said)), "speaking an answer")

    def _is_mine(self, turn: Turn) -> bool:
        return turn.inbound.address.platform == self.entry.name

    def _answer(self, key: str, answer: AnswerApproval) -> None:
        """Callable from any thread."""
        self._bridge.soon(lambda: self._context.run(self._bridge.host.post(key, answer), "answering"))


class AdapterPlatform(AdapterSender):
    """One open adapter as a `Platform`."""

    def __init__(self, bridge: Bridge, entry: PlatformEntry, adapter: Any, *, again: bool) -> None:
        """`again`: it was open before."""
        super().__init__(entry, adapter)
        self._bridge, self._is_reconnect = bridge, again
        self._take: OnMessage
        self._changed, self._failed = asyncio.Event(), list[StoreError]()
        self._roles: RecentMap[str, Literal["owner", "user"] | None] = RecentMap()
        self.notifier = TurnNotifier(entry, adapter)
        self.voice_replies = VoiceReplies(bridge, entry, adapter)

    async def listen(self, take: OnMessage, tell: OnStatus) -> None:
        self._take = take
        runner, platform = self._bridge.gateway, Platform(self.name)
        with unwrap_error_group():
            async with asyncio.TaskGroup() as group, self.notifier.open(group):
                self.adapter._adapter_host = self
                self.adapter._message_handler = getattr(self.adapter, "_message_handler", None) or self.handle_event
                try:
                    await self._connect()
                    runner.adapters[platform] = self.adapter
                    await self._watch(tell)
                finally:
                    self.adapter._adapter_host = None
                    if self.adapter._message_handler == self.handle_event:
                        self.adapter._message_handler = None
                    if runner.adapters.get(platform) is self.adapter:
                        del runner.adapters[platform]
                    await self.notifier.try_call("disconnect", patience=DISCONNECT_TIMEOUT_S)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connected = await self.call("connect", is_reconnect=self._is_reconnect)
        except TimeoutError as error:
            raise DeliveryError(f"not connected after {CONNECT_TIMEOUT_S:g} s") from error
        self._check()
        if connected is False:
            raise DeliveryError("the adapter could not connect and gave no reason")

    async def _watch(self, tell: OnStatus) -> None:
        """Watch the connection; raises when it is lost."""
        marked = False
        while True:
            self._changed.clear()
            self._check()
            running = bool(getattr(self.adapter, "is_connected", True))
            marked = marked or running
            if running or not marked:  # old adapters never set it
                tell("ready", "")
                await self._wait_for_change(CHECK_INTERVAL_S)
            else:
                tell("broken", "connection lost")
                if not await self._wait_for_change(RECONNECT_TIMEOUT_S):
                    raise DeliveryError(f"connection lost for more than {RECONNECT_TIMEOUT_S:g} s")

    async def _wait_for_change(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                return True
        return False

    def _check(self) -> None:
        if self._failed:
            raise self._failed[0]
        if not getattr(self.adapter, "has_fatal_error", False):
            return
        why = f"{self.adapter.fatal_error_message} ({self.adapter.fatal_error_code})"
        raise DeliveryError(why) if self.adapter.fatal_error_retryable else ConfigError(why)

    def status_changed(self) -> None:
        self._bridge.soon(self._changed.set)

    async def handle_event(self, event: MessageEvent) -> None:
        address = address_from_event(event, self.adapter)
        event.metadata = {**(event.metadata or {}), "session_key": address.key}
        arrival = await message_from_event(event, address)
        RECENT_EVENTS[arrival.id] = event
        self._roles[arrival.sender] = self._role_of(event)
        token = CURRENT_EVENT.set(event)
        try:
            await self._take(arrival)
        except (
            StoreError
        ) as error:  # stop receiving if messages cannot be stored, whatever the adapter does with the error
            self._failed.append(error)
            self._changed.set()
            raise
        finally:
            CURRENT_EVENT.reset(token)

    async def cancel(self, key: str, *, waiting: bool) -> None:
        turns = await self._bridge.host.unfinished(key)
        ended = turns if waiting else turns[:1]
        for turn in reversed(ended):  # queued ones first, so that none of them starts
            await self._bridge.host.post(key, Stop("user_stop", "session_interrupt", turn))
        await self.notifier.wait_for_end(ended)

    def role(self, person: str) -> Literal["owner", "user"] | None:
        """The role of a person from the plugin's variables or the adapter's own access policy."""
        if person.startswith(INTERNAL):
            return "user"
        return role_from_variables(self._bridge, self._entry, person) or self._roles.get(person)

    def _role_of(self, event: MessageEvent) -> Literal["owner", "user"] | None:
        if getattr(self.adapter, "enforces_own_access_policy", False):
            return "user"
        source = event.source
        others = (source.user_id_alt, source.user_name) if source is not None else ()
        found = [role_from_variables(self._bridge, self._entry, str(each)) for each in others if each]
        return "owner" if "owner" in found else "user" if "user" in found else None
