"""What Hermes plugins offer for features of the house: kept by kind and name until one asks for it."""

from collections.abc import Callable
from typing import Any

from alipes.compat.hermes.adapters_serving import Registration
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.entries import PlatformEntry
from alipes.compat.hermes.memory import Memory
from alipes.hooks.context import Context
from alipes.kernel.errors import PluginError

FAMILIES = ("tts", "transcription", "image_gen", "video_gen", "web_search", "browser")
"""`ctx.register_<family>_provider(provider)`."""
PLATFORM, MEMORY, CONTEXT_ENGINE, AUXILIARY_TASK = "platform", "memory", "context_engine", "auxiliary_task"
_FIELDS = set(PlatformEntry.__struct_fields__) - {"more"}


def keep(bridge: Bridge, context: Context, kind: str, thing: Any, name: str = "") -> bool:
    """Offer it, from any thread. False, and a word in the log, if another plugin has that name."""
    name = name or str(getattr(thing, "name", "") or context.name)
    try:
        bridge.call(lambda: context.provide(kind, name, thing))
    except PluginError as error:
        context.log.warning("%s", error)
        return False
    return True


def family(bridge: Bridge, context: Context, kind: str) -> Callable[..., bool | None]:
    """The method of `ctx` that registers something of this kind."""

    def register(provider: Any, *_: Any, **__: Any) -> bool | None:
        return keep(bridge, context, kind, provider) or None

    return register


def platform(bridge: Bridge, context: Context, **told: Any) -> bool:
    """Keep a platform with all that was said of it."""
    known = {name: value for name, value in told.items() if name in _FIELDS and value is not None}
    known["required_env"] = tuple(known.get("required_env") or ())
    more = {name: value for name, value in told.items() if name not in _FIELDS}
    if more:
        context.log.warning(
            "platform %s: unknown fields %s are kept, and mean nothing", told["name"], sorted(more)
        )
    entry = PlatformEntry(owner=context.owner, more=more, **known)
    registration = Registration(bridge, context, entry)
    kept = keep(bridge, context, PLATFORM, registration, entry.name)
    if kept:
        bridge.platforms[entry.name] = entry
        bridge.call(registration.attach)
    return kept


def memory(bridge: Bridge, context: Context, provider: Any) -> bool:
    """Attach a memory provider, if it is available and the only one."""
    if bridge.memory is not None and bridge.memory.owner.name != context.owner.name:
        context.log.warning("memory is kept by %s already; disable one of the two", bridge.memory.name)
        return False
    kept = keep(bridge, context, MEMORY, provider)
    if not provider.is_available():
        why = getattr(provider, "unavailable_reason", str)()
        context.log.warning("memory provider %s is not available. %s", provider.name, why)
        return False
    attached = Memory(bridge, context, provider)
    bridge.memory = attached
    bridge.call(attached.attach)
    return kept
