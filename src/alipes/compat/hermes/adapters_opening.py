"""From a platform that a plugin registered to an adapter, and who may speak through it. It connects none."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from alipes.compat.hermes.adapters import call
from alipes.compat.hermes.adapters_values import HomeChannel, MessageEvent, Platform, PlatformConfig
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.entries import PlatformEntry
from alipes.config.reading import read
from alipes.hooks.owners import Owner
from alipes.hooks.relay import guard
from alipes.hooks.tracking import on_behalf_of
from alipes.kernel.errors import PluginError

MaySpeak: TypeAlias = Callable[[MessageEvent], bool]
PATIENCE = 30.0
_YES = ("1", "true", "yes", "on")


def registered(bridge: Bridge, name: str) -> PlatformEntry:
    """Raises PluginError where no plugin that is open has such a platform."""
    entry = bridge.platforms.get(name)
    if entry is None:
        known = ", ".join(bridge.platforms) or "none"
        raise PluginError(name, "platform", f"no plugin that is open serves it; there are: {known}")
    return entry


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


def access(bridge: Bridge, entry: PlatformEntry, adapter: Any) -> MaySpeak:
    """Who may speak: whom the plugin's variables name. Where they name nobody, nobody may.

    An adapter that asks by itself is believed, and so is the house itself.
    """

    def may_speak(event: MessageEvent) -> bool:
        if event.internal or getattr(adapter, "enforces_own_access_policy", False):
            return True
        if entry.allow_all_env and bridge.variable(entry.allow_all_env).lower() in _YES:
            return True
        named = bridge.variable(entry.allowed_users_env) if entry.allowed_users_env else ""
        allowed = {each.strip() for each in named.split(",")} - {""}
        source = event.source
        known = (source.user_id, source.user_id_alt, source.user_name) if source is not None else ()
        return "*" in allowed or any(str(each) in allowed for each in known if each)

    return may_speak


async def _asked(entry: PlatformEntry, what: str, *given: Any) -> Any:
    """What a function of the plugin's says; None where it has none."""
    function = getattr(entry, what)
    if function is None:
        return None

    async def ask() -> Any:
        with on_behalf_of(entry.owner):
            return await call(function, *given)

    return await guard(Owner(entry.owner.name, lasting=True), what, ask(), deadline=PATIENCE)
