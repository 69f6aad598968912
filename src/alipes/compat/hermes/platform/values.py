"""Value types of platform adapters: platforms, messages, send results."""

import os
import re
import time
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from alipes.compat.hermes.session_keys import SessionSource, source_of
from alipes.compat.hermes.state import ScopedMap
from alipes.config.paths import find_home, has_own_environ, make_private
from alipes.kernel.turns import Inbound

MAX_AGE_HOURS = 24.0
"""Files older than this may be deleted."""
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*", b"\x00\x00\x01\x00")
_MAX_NAME_CHARS = 120

_home: list[Path] = []


def set_cache_home(home: Path | None) -> None:
    """Set the home of the cache; None means the default home."""
    _home[:] = [] if home is None else [home]


def cache_folder(kind: str) -> Path:
    """The folder for `images`, `audio`, `video` or `documents`, created if needed."""
    home = _home[0] if _home and not has_own_environ() else find_home()
    make_private(make_private(home) / "cache")
    return make_private(home / "cache" / kind)


def cache_image_from_bytes(data: bytes, ext: str = ".jpg") -> str:
    """Write an image and return its path. Raises ValueError if it is not one."""
    if not _is_image(data):
        raise ValueError(f"not an image, so it is not saved as {ext}: it starts with {data[:12]!r}")
    return _write_file("images", "img", data, _extension(ext, ".jpg"))


def cache_audio_from_bytes(data: bytes, ext: str = ".ogg") -> str:
    return _write_file("audio", "audio", data, _extension(ext, ".ogg"))


def cache_video_from_bytes(data: bytes, ext: str = ".mp4") -> str:
    return _write_file("video", "video", data, _extension(ext, ".mp4"))


def cache_document_from_bytes(data: bytes, filename: str) -> str:
    """Write a file whose name ends with `filename` and return its path; folders in the name are dropped."""
    name = re.sub(r"[\x00-\x1f\x7f]", "", os.path.basename((filename or "").replace("\\", "/"))).strip()
    stem, dot, ext = name.rpartition(".")
    name = f"{stem[: _MAX_NAME_CHARS - len(ext)]}{dot}{ext}"[-_MAX_NAME_CHARS:] if dot else name[:_MAX_NAME_CHARS]
    return _write_file("documents", "doc", data, "_" + ("document" if name in ("", ".", "..") else name))


def cleanup(kind: str, max_age_hours: float = MAX_AGE_HOURS) -> int:
    """Delete older files and return how many."""
    oldest, deleted = time.time() - max_age_hours * 3600, 0
    for file in cache_folder(kind).iterdir():
        with suppress(OSError):  # another process may clean up at the same time
            if file.is_file() and file.stat().st_mtime < oldest:
                file.unlink()
                deleted += 1
    return deleted


def cleanup_image_cache(max_age_hours: float = MAX_AGE_HOURS) -> int:
    return cleanup("images", max_age_hours)


def cleanup_document_cache(max_age_hours: float = MAX_AGE_HOURS) -> int:
    return cleanup("documents", max_age_hours)


def _write_file(kind: str, what: str, data: bytes, end: str) -> str:
    file = cache_folder(kind) / f"{what}_{os.urandom(6).hex()}{end}"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(data)
    return str(file)


def _extension(ext: str, usual: str) -> str:
    ext = ext if ext.startswith(".") else f".{ext}"
    return ext if re.fullmatch(r"\.\w{1,10}", ext) else usual


def _is_image(data: bytes) -> bool:
    riff = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    brand = data[4:8] == b"ftyp" and data[8:12] in (b"heic", b"heix", b"avif", b"mif1")
    return riff or brand or data.startswith(_IMAGES) or b"<svg" in data[:512]


_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_BUILT_IN = """local telegram discord whatsapp slack signal mattermost matrix homeassistant email sms
dingtalk api_server webhook feishu wecom wecom_callback weixin bluebubbles qqbot yuanbao irc teams line google_chat
ntfy photon raft simplex whatsapp_cloud msgraph_webhook relay a2a"""


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
PLATFORM_NAMES = frozenset(_BUILT_IN.split())


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
    gateway_restart_notification: bool = True
    typing_indicator: bool = True
    typing_status_text: str | None = None
    channel_overrides: dict[str, Any] = field(default_factory=dict)
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

    def __post_init__(self) -> None:
        self.media_urls, self.media_types = self.media_urls or [], self.media_types or []  # adapters may give None

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


class EphemeralReply(str):
    """A reply that may be deleted after `ttl_seconds`; sent like any other."""

    ttl_seconds: int

    def __new__(cls, text: str, ttl_seconds: int = 0) -> "EphemeralReply":
        made = super().__new__(cls, text)
        made.ttl_seconds = ttl_seconds
        return made


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
RECENT_EVENTS: ScopedMap[str, MessageEvent] = ScopedMap()
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
