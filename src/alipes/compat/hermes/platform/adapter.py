"""`BasePlatformAdapter`: the base class of platform plugins."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, Protocol

from alipes.compat.hermes.call import PluginCallback
from alipes.compat.hermes.platform.adapter_defaults import AdapterDefaults
from alipes.compat.hermes.platform.values import MessageEvent, PlatformConfig, ProcessingOutcome, SendResult
from alipes.compat.hermes.session_keys import SessionSource, own_key, platform_name

TYPING_INTERVAL_S = 2.0
"""Interval of typing indicators."""
_POSITIONAL_FIELDS = (
    *("chat_name", "chat_type", "user_id", "user_name"),
    *("thread_id", "chat_topic", "user_id_alt", "chat_id_alt"),
)
_SOURCE_FIELDS = {each.name for each in fields(SessionSource)}


async def call_plugin(function: Callable[..., Any], *given: Any, **offered: Any) -> Any:
    """Call plugin code and await the result if needed. `given` is passed by position, `offered` only as far
    as the signature accepts it: old plugins know few of the keywords."""
    answer = PluginCallback(function)(*given, **offered)
    return await answer if inspect.isawaitable(answer) else answer


class AdapterHost(Protocol):
    """The object that runs an adapter."""

    async def handle_event(self, event: MessageEvent) -> None:
        """Handle a message; it is accepted when this returns."""
        ...

    async def cancel(self, key: str, *, waiting: bool) -> None:
        """Stop the turn under `key`, and with `waiting` also the queued ones."""
        ...

    def status_changed(self) -> None:
        """Called from any thread when the connection state has changed."""
        ...


class _ConnectionState:
    """Connection state and the last fatal error."""

    _running = False
    _fatal: tuple[str, str, bool] | None = None
    _adapter_host: AdapterHost | None = None

    def _mark_connected(self) -> None:
        self._running, self._fatal = True, None
        self._changed()

    def _mark_disconnected(self) -> None:
        self._running = False
        self._changed()

    def _set_fatal_error(self, code: str, message: str, *, retryable: bool = False) -> None:
        """The adapter cannot continue; `retryable`: it may be restarted later."""
        self._running, self._fatal = False, (code, message, retryable)
        self._changed()

    def _changed(self) -> None:
        if self._adapter_host is not None:
            self._adapter_host.status_changed()

    @property
    def is_connected(self) -> bool:
        return self._running

    @property
    def has_fatal_error(self) -> bool:
        return self._fatal is not None

    @property
    def fatal_error_code(self) -> str | None:
        return self._fatal[0] if self._fatal else None

    @property
    def fatal_error_message(self) -> str | None:
        return self._fatal[1] if self._fatal else None

    @property
    def fatal_error_retryable(self) -> bool:
        return self._fatal is None or self._fatal[2]

    @property
    def enforces_own_access_policy(self) -> bool:
        """True if the adapter checks access itself."""
        return False


class _SendMethods(ABC):
    """Sending beyond text. Unsupported calls return a failure."""

    name: str

    @abstractmethod
    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: dict[str, Any] | None = None
    ) -> SendResult: ...

    async def edit_message(self, chat_id: str, message_id: str, content: str, **_more: Any) -> SendResult:
        return self._cannot("edit a message")

    async def delete_message(self, chat_id: str, message_id: str) -> bool:
        return False

    async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
        """Show a typing indicator."""
        return

    async def stop_typing(self, chat_id: str, metadata: Any = None) -> None:
        """Hide the typing indicator."""
        return

    async def send_image(self, chat_id: str, image_url: str, caption: str | None = None, **more: Any) -> SendResult:
        """Send an image; the default sends its URL."""
        text = f"{caption}\n{image_url}" if caption else image_url
        return await self._say(chat_id, text, more)

    async def send_image_file(
        self, chat_id: str, image_path: str, caption: str | None = None, **_more: Any
    ) -> SendResult:
        return self._cannot("send an image file")

    async def send_voice(self, chat_id: str, audio_path: str, caption: str | None = None, **_more: Any) -> SendResult:
        return self._cannot("send a voice message")

    async def send_video(self, chat_id: str, video_path: str, caption: str | None = None, **_more: Any) -> SendResult:
        return self._cannot("send a video")

    async def send_document(self, chat_id: str, file_path: str, caption: str | None = None, **_more: Any) -> SendResult:
        return self._cannot("send a file")

    async def play_tts(self, chat_id: str, audio_path: str, **more: Any) -> SendResult:
        """Play speech; the default sends a voice message."""
        result: SendResult = await call_plugin(self.send_voice, chat_id, audio_path, **more)
        return result

    async def send_clarify(
        self, chat_id: str, question: str, choices: list[str] | None = None, **more: Any
    ) -> SendResult:
        """Ask a question; the default sends text with a numbered list."""
        lines = [f"{number}. {choice}" for number, choice in enumerate(choices or [], 1)]
        return await self._say(chat_id, "\n".join([question, *lines]), more)

    async def _say(self, chat_id: str, text: str, more: dict[str, Any]) -> SendResult:
        fields_given = {name: more[name] for name in ("reply_to", "metadata") if name in more}
        result: SendResult = await call_plugin(self.send, chat_id, text, **fields_given)
        return result

    def _cannot(self, what: str) -> SendResult:
        return SendResult(False, error=f"{self.name} cannot {what}", error_kind="not_supported")


class BasePlatformAdapter(_ConnectionState, _SendMethods, AdapterDefaults):
    """Base class of platform plugins. Subclasses connect, send, and call `handle_message`."""

    MAX_MESSAGE_LENGTH = 4096

    def __init__(self, config: PlatformConfig, platform: Any) -> None:
        self.config, self.platform = config, platform
        self._message_handler: Callable[[MessageEvent], Awaitable[str | None]] | None = None
        self._active_sessions: dict[str, asyncio.Event] = {}
        """By key, for each running turn: set when it is interrupted. Maintained by the host."""
        self._pending_messages: dict[str, MessageEvent] = {}
        """Messages that a subclass keeps until the running turn ends; the host handles them then."""
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._auto_tts_disabled_chats: set[str] = set()
        self._auto_tts_enabled_chats: set[str] = set()

    @property
    def name(self) -> str:  # type: ignore[override]
        return platform_name(self.platform).replace("_", " ").title()

    @abstractmethod
    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Connect and start to receive; False on failure."""

    @abstractmethod
    async def disconnect(self) -> None: ...

    @abstractmethod
    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """`{"name": ..., "type": "dm"}`."""

    def set_message_handler(self, handler: Callable[[MessageEvent], Awaitable[str | None]]) -> None:
        """Pass messages to `handler` and send its answer, while no gateway runs the adapter."""
        self._message_handler = handler

    async def handle_message(self, event: MessageEvent) -> None:
        """Handle a message. It is accepted when this returns; the answer comes later through `send`."""
        if self._adapter_host is not None:
            await self._adapter_host.handle_event(event)
        elif self._message_handler is not None:
            answer = await call_plugin(self._message_handler, event)
            if answer and event.source is not None:
                await call_plugin(self.send, event.source.chat_id, answer)
        else:
            raise RuntimeError(f"{self.name} is not running, so this message cannot be handled")

    async def cancel_session_processing(self, session_key: str, **more: Any) -> None:
        """Stop the turn under the key; `discard_pending=False` keeps the queued ones."""
        if self._adapter_host is not None:
            await self._adapter_host.cancel(own_key(session_key), waiting=bool(more.get("discard_pending", True)))

    async def interrupt_session_activity(self, session_key: str, chat_id: str) -> None:
        """Called when the turn under the key was interrupted."""

    def build_source(self, chat_id: Any, *positional: Any, **named: Any) -> SessionSource:
        """A source on this platform. Positional after the chat: `chat_name`, `chat_type`, `user_id`,
        `user_name`, `thread_id`, `chat_topic`, `user_id_alt`, `chat_id_alt`; others by keyword."""
        fields_given = {**dict(zip(_POSITIONAL_FIELDS, positional, strict=False)), **named}
        fields_given = {name: value for name, value in fields_given.items() if name in _SOURCE_FIELDS}
        made = SessionSource(self.platform, str(chat_id), **fields_given)
        made.user_id = None if made.user_id is None else str(made.user_id)
        made.thread_id = str(made.thread_id) if made.thread_id else None
        return made

    def format_message(self, content: str) -> str:
        """Convert text to the platform's format."""
        return content

    @staticmethod
    def truncate_message(content: str, max_length: int = 4096, **more: Any) -> list[str]:
        """Split text into parts that fit; `len_fn` measures as the platform does."""
        return split_text(content, max_length, more.get("len_fn") or len)

    async def on_processing_start(self, event: MessageEvent) -> None:
        """The turn of this message starts."""

    async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
        """The turn of this message has ended."""

    async def _keep_typing(self, chat_id: str, interval: float = TYPING_INTERVAL_S, metadata: Any = None) -> None:
        """Show the typing indicator until cancelled."""
        while True:
            await call_plugin(self.send_typing, chat_id, metadata=metadata)
            await asyncio.sleep(interval)


FENCE = "```"
_FENCE_CHARS = 24
"""Reserved for closing and reopening a code block."""


def split_text(text: str, max_length: int, length: Callable[[str], int] = len) -> list[str]:
    """Split text into parts of at most `most`, at lines, spaces, or anywhere.

    A split code block is closed and reopened in the next part. `length` measures as the platform does.
    """
    if max_length <= 0 or length(text) <= max_length:
        return [text]
    room = max(max_length - _FENCE_CHARS if FENCE in text else max_length, 1)
    found: list[str] = []
    opened = ""
    while text:
        piece, text = _split_once(text, room, length)
        part = f"{opened}{piece}"
        opened = _open_fence(part)
        found.append(f"{part.rstrip()}\n{FENCE}" if opened and text else part.rstrip())
    return [piece for piece in found if piece.strip()]


def _split_once(text: str, room: int, length: Callable[[str], int]) -> tuple[str, str]:
    if length(text) <= room:
        return text, ""
    at = room
    while length(text[:at]) > room:  # the platform may count differently
        at -= 1
    head = text[: max(at, 1)]
    for mark in ("\n\n", "\n", " "):
        cut = head.rfind(mark)
        if cut >= len(head) // 4:
            return text[:cut], text[cut:].lstrip("\n" if "\n" in mark else " ")
    return head, text[len(head) :]


def _open_fence(text: str) -> str:
    """The line that reopens the code block in which `text` ends; empty if there is none."""
    opened = ""
    for line in text.split("\n"):
        if line.lstrip().startswith(FENCE):
            opened = "" if opened else f"{line.strip()[: _FENCE_CHARS - len(FENCE) - 2]}\n"
    return opened
