"""What the Hermes door remembers between two moments of a turn. The last few hundred of each, no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from alipes.config.environment import Variables, inherited, lend, read_variables, take_back
from alipes.kernel.turns import ApprovalAsked, Inbound
from alipes.plugins.owner import Owner


class ToolEntry(Struct, frozen=True, kw_only=True):
    """As `tools.registry.registry.get_entry(name)` gives it."""

    owner: Owner
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


class PlatformEntry(Struct, frozen=True, kw_only=True):
    """All that `register_platform` may say of a platform."""

    owner: Owner
    name: str
    label: str
    adapter_factory: Callable[..., Any]
    check_fn: Callable[[], Any]
    validate_config: Callable[..., Any] | None = None
    required_env: tuple[str, ...] = ()
    install_hint: str = ""
    is_connected: Callable[..., Any] | None = None
    setup_fn: Callable[..., Any] | None = None
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
    more: dict[str, Any] = {}
    """Fields that we do not know."""


class Lending:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._lent: set[str] = set()

    def now(self) -> Variables:
        """The variables as they are at this moment."""
        return read_variables(self._file, inherited())

    def lend(self, *names: str) -> None:
        """What a plugin says it needs, and nothing else."""
        self._lent |= lend(self.now(), names)

    def end(self) -> None:
        take_back(self._lent)
        self._lent.clear()


K = TypeVar("K")
V = TypeVar("V")
KEPT = 256


class Recent(Generic[K, V]):
    """A mapping that forgets its oldest entries."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
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


class Notes:
    """Shared by all Hermes plugins of an app; written and read on the loop's thread."""

    def __init__(self) -> None:
        self.requests: Recent[str, tuple[str, str]] = Recent()
        """By turn: id and model of its last question."""
        self.outcomes: Recent[str, tuple[float, Exception | None]] = Recent()
        """By call: how long it took, and what it raised."""
        self.traces: Recent[str, list[dict[str, Any]]] = Recent()
        """By call or question: who changed it, and why they say they did."""
        self.asked: Recent[str, ApprovalAsked] = Recent()
        self.heard: Recent[str, Inbound] = Recent()
        """By session key: what a person said there last."""
        self._replaced: Recent[int, tuple[Any, Any]] = Recent(64)

    def replace(self, original: Any, replacement: Any) -> None:
        """A Hermes callback has its say about a value; no other one after it has."""
        self._replaced[id(replacement)] = replacement, original

    def original(self, value: Any) -> Any | None:
        """What `value` stands for, if a Hermes callback made it; the pair keeps both alive."""
        known = self._replaced.get(id(value))
        return known[1] if known is not None and known[0] is value else None
