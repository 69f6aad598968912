"""From a platform that a plugin registered to an adapter, and who may speak through it. It connects none."""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from alipes.compat.hermes.adapters_values import HomeChannel, MessageEvent, Platform, PlatformConfig
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.calling import Fit
from alipes.compat.hermes.entries import PlatformEntry
from alipes.kernel.errors import PluginError

MaySpeak: TypeAlias = Callable[[MessageEvent], bool]
_YES = ("1", "true", "yes", "on")


def registered(bridge: Bridge, name: str) -> PlatformEntry:
    """Raises PluginError where no plugin that is open has such a platform."""
    entry = bridge.platforms.get(name)
    if entry is None:
        known = ", ".join(bridge.platforms) or "none"
        raise PluginError(name, "platform", f"no plugin that is open serves it; there are: {known}")
    return entry


def config_of(entry: PlatformEntry, given: PlatformConfig | None = None) -> PlatformConfig:
    """What was given, with what the plugin reads from its variables under it."""
    config = given or PlatformConfig(enabled=True)
    seed = entry.env_enablement_fn() if entry.env_enablement_fn is not None else None
    if isinstance(seed, dict):
        home = seed.pop("home_channel", None)
        if isinstance(home, dict) and config.home_channel is None:
            home = {name: home[name] for name in ("chat_id", "name", "thread_id") if name in home}
            config.home_channel = HomeChannel(Platform(entry.name), **home)
        config.extra = {**seed, **config.extra}
    return config


async def adapter_of(entry: PlatformEntry, config: PlatformConfig) -> Any:
    """The adapter, made but not connected. Raises PluginError with what is missing."""
    if not await _asked(entry.check_fn):
        hint = f": {entry.install_hint}" if entry.install_hint else ""
        needs = f" (it needs {', '.join(entry.required_env)})" if entry.required_env else ""
        raise PluginError(entry.owner.name, entry.name, f"its requirements are not met{hint}{needs}")
    if entry.validate_config is not None and not await _asked(entry.validate_config, config):
        raise PluginError(entry.owner.name, entry.name, "the plugin finds its configuration incomplete")
    return await _asked(entry.adapter_factory, config)


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


async def _asked(function: Callable[..., Any], *given: Any) -> Any:
    answer = Fit(function)(*given)
    return await answer if inspect.isawaitable(answer) else answer
