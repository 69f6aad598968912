"""What Hermes plugins register, as they know it. Values only; what becomes of them is told elsewhere."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from alipes.hooks.owners import Owner


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
