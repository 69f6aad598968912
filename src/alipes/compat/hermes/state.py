"""Values kept between the hooks of a turn, entries of registered tools and platforms, plugin variables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from alipes.config.environment import Variables, export_variables, process_environment, read_variables, unset_variables
from alipes.config.paths import current_scope
from alipes.kernel.turns import ApprovalAsked, Inbound
from alipes.plugins.owner import CORE, PluginOwner


class ToolEntry(Struct, frozen=True, kw_only=True):
    """A tool, as returned by `tools.registry.registry.get_entry(name)`."""

    owner: PluginOwner
    name: str
    toolset: str
    schema: dict[str, Any]
    handler: Callable[..., Any]
    check_fn: Callable[[], Any] | None = None
    requires_env: tuple[str, ...] = ()
    is_async: bool = False
    description: str = ""
    emoji: str = ""
    override: bool = False
    effect: Literal["read", "write"] = "write"


class PlatformEntry(Struct, frozen=True):
    """A platform with all fields of `register_platform`."""

    name: str
    label: str
    adapter_factory: Callable[..., Any]
    check_fn: Callable[[], Any]
    validate_config: Callable[..., Any] | None = None
    is_connected: Callable[..., Any] | None = None
    required_env: tuple[str, ...] | list[str] = ()
    install_hint: str = ""
    setup_fn: Callable[..., Any] | None = None
    source: str = "plugin"
    plugin_name: str = ""
    allowed_users_env: str = ""
    allow_all_env: str = ""
    max_message_length: int = 0
    pii_safe: bool = False
    emoji: str = ""
    allow_update_command: bool = True
    platform_hint: str = ""
    env_enablement_fn: Callable[..., Any] | None = None
    apply_yaml_config_fn: Callable[..., Any] | None = None
    cron_deliver_env_var: str = ""
    standalone_sender_fn: Callable[..., Any] | None = None
    owner: PluginOwner = CORE
    """The plugin that registered it."""
    more: dict[str, Any] = {}
    """Unknown fields."""


class PluginEnvironment:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._exposed: set[str] = set()

    def read(self) -> Variables:
        """The current variables."""
        return read_variables(self._file, process_environment())

    def expose(self, *names: str) -> None:
        """Put the variables that a plugin declares into the environment."""
        self._exposed |= export_variables(self.read(), names)

    def restore(self) -> None:
        unset_variables(self._exposed)
        self._exposed.clear()


K = TypeVar("K")
V = TypeVar("V")
MAX_ENTRIES = 256


class RecentMap(Generic[K, V]):
    """A mapping that drops its oldest entries."""

    def __init__(self, size: int = MAX_ENTRIES) -> None:
        self._kept = size
        self._entries: dict[K, V] = {}

    def __setitem__(self, key: K, value: V) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        while len(self._entries) > self._kept:
            del self._entries[next(iter(self._entries))]

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def latest(self) -> V | None:
        return next(reversed(self._entries.values()), None)


class ScopedMap(Generic[K, V]):
    """A `RecentMap` that all apps of the process use: each profile sees only its own entries."""

    def __init__(self, size: int = MAX_ENTRIES) -> None:
        self._entries: RecentMap[tuple[str, K], V] = RecentMap(size)

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[current_scope(), key] = value

    def get(self, key: K) -> V | None:
        return self._entries.get((current_scope(), key))


class HookState:
    """Shared by all Hermes plugins of an app; used on the loop's thread."""

    def __init__(self) -> None:
        self.requests: RecentMap[str, tuple[str, str]] = RecentMap()
        """Id and model of the last request, by turn."""
        self.outcomes: RecentMap[str, tuple[float, Exception | None]] = RecentMap()
        """Duration and error, by call."""
        self.traces: RecentMap[str, list[dict[str, Any]]] = RecentMap()
        """Changes made by middleware, by call or turn."""
        self.approvals: RecentMap[str, ApprovalAsked] = RecentMap()
        self.inbounds: RecentMap[str, Inbound] = RecentMap()
        """Latest message by session key."""
        self._replaced: RecentMap[int, tuple[Any, Any]] = RecentMap(64)

    def replace(self, original: Any, replacement: Any) -> None:
        """Remember that a Hermes callback replaced a value; later callbacks may not replace it again."""
        self._replaced[id(replacement)] = replacement, original

    def original(self, value: Any) -> Any | None:
        """The original of a value that a Hermes callback produced; the entry keeps both alive."""
        known = self._replaced.get(id(value))
        return known[1] if known is not None and known[0] is value else None
