"""Modules of Hermes's gateway that adapters import: the platform registry, access, stickers, sent texts."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from alipes.compat.hermes.context import provide_platform
from alipes.compat.hermes.modules.current_app import NotAvailable, bridge, is_bound
from alipes.compat.hermes.modules.utils import atomic_json_write
from alipes.compat.hermes.platform.runner import role_from_variables
from alipes.compat.hermes.platform.values import PlatformConfig
from alipes.compat.hermes.state import PlatformEntry, ScopedMap


class PlatformRegistry:
    """The platforms that plugins have registered. `ctx.register_platform` adds to it."""

    def get(self, name: str) -> PlatformEntry | None:
        return bridge().platforms.get(name) if is_bound() else None

    def is_registered(self, name: str) -> bool:
        return self.get(name) is not None

    def all_entries(self) -> list[PlatformEntry]:
        return [*bridge().platforms.values()] if is_bound() else []

    def plugin_entries(self) -> list[PlatformEntry]:
        return self.all_entries()

    def create_adapter(self, name: str, config: Any) -> Any:
        """A new adapter that is not connected; None if the platform is unknown or its requirements are not met."""
        entry = self.get(name)
        return entry.adapter_factory(config) if entry is not None and entry.check_fn() else None

    def register(self, entry: PlatformEntry) -> None:
        """Register a platform for the calling plugin, like `ctx.register_platform`."""
        current = bridge()
        fields = {name: getattr(entry, name) for name in PlatformEntry.__struct_fields__ if name not in _HOST_FIELDS}
        provide_platform(current, current.context(entry.adapter_factory), **fields)

    def unregister(self, name: str) -> bool:
        raise NotAvailable("platform_registry.unregister", "the platform is removed with its plugin")


platform_registry = PlatformRegistry()
_HOST_FIELDS = ("owner", "more")


class PairingStore:
    """Who may use a platform, by the variables of its plugin. Read-only: approve with `alipes pair`."""

    def __init__(self, profile: str | None = None) -> None:
        self.profile = profile

    def is_approved(self, platform: str, user_id: str) -> bool:
        entry = platform_registry.get(platform)
        return entry is not None and role_from_variables(bridge(), entry, str(user_id)) is not None

    def list_approved(self, platform: str | None = None) -> list[dict[str, Any]]:
        return []


class _GatewayConfig:
    """The value of `load_gateway_config()`: platforms by name."""

    def __init__(self) -> None:
        gateway = bridge().gateway
        self.platforms: dict[Any, Any] = {name: each.config for name, each in gateway.adapters.items()}

    def get_platform_config(self, platform: Any) -> PlatformConfig:
        found: PlatformConfig = self.platforms.get(platform) or PlatformConfig()
        return found


def load_gateway_config() -> _GatewayConfig:
    return _GatewayConfig()


def coerce_id_list(raw: Any) -> frozenset[str]:
    """Ids from a list, a text with commas, or one value."""
    if raw is None:
        return frozenset()
    listed: Iterable[Any] = (
        raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list | tuple | set) else [raw]
    )
    return frozenset(str(each).strip() for each in listed if str(each).strip())


def lookup_channel_type(platform: str, chat_id: str) -> str | None:
    """Channel types are not stored."""
    return None


_SENT: ScopedMap[tuple[str, str], str] = ScopedMap(1000)
MAX_SENT_CHARS = 2000


def record_sent_text(chat_id: Any, message_id: Any, text: str | None) -> None:
    """`gateway.rich_sent_store.record`: remember a sent text, so that replies to it can quote it."""
    if text:
        _SENT[str(chat_id), str(message_id)] = text[:MAX_SENT_CHARS]


def lookup_sent_text(chat_id: Any, message_id: Any) -> str | None:
    return _SENT.get((str(chat_id), str(message_id)))


STICKER_VISION_PROMPT = "Describe this sticker in one or two short sentences: what it shows and the mood."


def _sticker_file() -> Path:
    return bridge().home / "cache" / "stickers.json"


def _stickers() -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(_sticker_file().read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def get_cached_description(file_unique_id: str) -> dict[str, Any] | None:
    return _stickers().get(file_unique_id)


def cache_sticker_description(file_unique_id: str, description: str, emoji: str = "", set_name: str = "") -> None:
    fact = {"description": description, "emoji": emoji, "set_name": set_name}
    atomic_json_write(_sticker_file(), {**_stickers(), file_unique_id: fact})


def build_sticker_injection(description: str, emoji: str = "", set_name: str = "") -> str:
    about = ", ".join(filter(None, (emoji, f"from the set {set_name}" if set_name else "")))
    return f"[The user sent a sticker{f' ({about})' if about else ''}: {description}]"


def build_animated_sticker_injection(emoji: str = "") -> str:
    return f"[The user sent an animated sticker{f' ({emoji})' if emoji else ''}, which cannot be shown]"


_PHONE = re.compile(r"\+?[\d\s().-]+")


def normalize_whatsapp_identifier(value: str) -> str:
    """The number in a WhatsApp address."""
    return str(value or "").strip().removeprefix("+").partition("@")[0].partition(":")[0]


def to_whatsapp_jid(value: str) -> str:
    """The WhatsApp address of a phone number; addresses stay as they are."""
    text = str(value or "").strip()
    return f"{re.sub(r'[^0-9]', '', text)}@s.whatsapp.net" if _PHONE.fullmatch(text) else text


def send_error(message: Any) -> dict[str, str]:
    """`tools.send_message_tool._error`."""
    return {"error": str(message)}


def register_env_passthrough(var_names: Iterable[str]) -> None:
    """Expose variables to the plugin. Programs that tools start do not get them."""
    bridge().environment.expose(*var_names)
