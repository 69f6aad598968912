"""From a platform that a plugin registered to an adapter, and who may speak through it. It connects none."""

from typing import Any, Literal

from alipes.compat.hermes.adapters import call
from alipes.compat.hermes.adapters_values import HomeChannel, Platform, PlatformConfig
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.entries import PlatformEntry
from alipes.config.reading import read
from alipes.hooks.owners import Owner
from alipes.hooks.relay import guard
from alipes.hooks.tracking import on_behalf_of
from alipes.kernel.errors import PluginError

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
