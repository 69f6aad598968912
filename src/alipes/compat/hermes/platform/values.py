"""Value types of platform adapters: platforms, messages, send results."""

import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from alipes.compat.hermes.session_keys import SessionSource, source_of
from alipes.compat.hermes.state import RecentMap
from alipes.kernel.turns import Inbound

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_BUILT_IN = """local telegram discord whatsapp slack signal mattermost matrix homeassistant email sms
dingtalk api_server webhook feishu wecom weixin bluebubbles qqbot irc teams line google_chat a2a"""


class _PlatformName(Enum):
    """Enum that accepts any valid platform name."""

    @classmethod
    def _missing_(cls, value: object) -> "_PlatformName | None":
        name = str(value).strip().lower() if isinstance(value, str) else ""
        if not _NAME.fullmatch(name):
            return None
        member = cls._value2member_map_.get(name)
        if member is None:
            member = object.__new__(cls)
            member._name_, member._value_ = re.sub(r"\W", "_", name).upper(), name
            cls._value2member_map_[name] = cls._member_map_[member._name_] = member
        assert isinstance(member, cls)
        return member


_make: Any = _PlatformName
Platform: Any = _make("Platform", {name.upper(): name for name in _BUILT_IN.split()})
"""`Platform("anything")`, `Platform.TELEGRAM`; one object per name."""


class MessageType(Enum):
    TEXT = "text"
    LOCATION = "location"
    PHOTO = "photo"
    VIDEO = "video"
    AUDIO = "audio"
    VOICE = "voice"
    DOCUMENT = "document"
    STICKER = "sticker"
    COMMAND = "command"


class ProcessingOutcome(Enum):
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"


@dataclass
class HomeChannel:
    platform: Any
    chat_id: str
    name: str = "Home"
    thread_id: str | None = None


@dataclass
class PlatformConfig:
    """The operator's settings of a platform: `[plugins.entries.NAME]` or the plugin's variables."""

    enabled: bool = False
    token: str | None = None
    api_key: str | None = None
    home_channel: HomeChannel | None = None
    reply_to_mode: str = "first"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class MessageEvent:
    """One message from a platform."""

    text: str = ""
    message_type: MessageType = MessageType.TEXT
    source: SessionSource | None = None
    raw_message: Any = None
    message_id: str | None = None
    media_urls: list[str] = field(default_factory=list)
    """Paths of attached files."""
    media_types: list[str] = field(default_factory=list)
    reply_to_message_id: str | None = None
    reply_to_text: str | None = None
    reply_to_author_id: str | None = None
    reply_to_author_name: str | None = None
    reply_to_is_own_message: bool = False
    timestamp: datetime = field(default_factory=datetime.now)
    metadata: dict[str, Any] = field(default_factory=dict)
    internal: bool = False
    """Sent by alipes itself, so access is not checked."""
    platform_update_id: int | None = None
    auto_skill: str | list[str] | None = None
    channel_prompt: str | None = None
    channel_context: str | None = None

    def is_command(self) -> bool:
        return (self.text or "").startswith("/")

    def get_command(self) -> str | None:
        """`stop` for `/stop@mybot now`; None if it is not a command, such as a file path."""
        if not self.is_command():
            return None
        name = self.text.split(maxsplit=1)[0][1:].partition("@")[0].lower()
        return None if not name or "/" in name else name

    def get_command_args(self) -> str:
        if not self.is_command():
            return self.text or ""
        _, *rest = self.text.split(maxsplit=1)
        return rest[0] if rest else ""


@dataclass
class SendResult:
    """Result of a send."""

    success: bool
    message_id: str | None = None
    error: str | None = None
    raw_response: Any = None
    retryable: bool = False
    retry_after: float | None = None
    error_kind: str | None = None
    continuation_message_ids: tuple[str, ...] = ()


CURRENT_EVENT: ContextVar[MessageEvent | None] = ContextVar("alipes_hermes_heard", default=None)
"""The adapter message that is being handled."""
RECENT_EVENTS: RecentMap[str, MessageEvent] = RecentMap()
"""Recent adapter messages by the id of their inbound."""


def event_of(inbound: Inbound) -> MessageEvent:
    """A message as plugins know it; messages from adapters are returned as they came."""
    received = RECENT_EVENTS.get(inbound.id)
    if received is not None:
        return received
    source = source_of(inbound.address, inbound.sender)
    source.platform = Platform(inbound.address.platform)
    kind = MessageType.COMMAND if inbound.text.startswith("/") else MessageType.TEXT
    kind = MessageType.PHOTO if inbound.attachments else kind
    return MessageEvent(text=inbound.text, message_type=kind, source=source, message_id=inbound.id)
