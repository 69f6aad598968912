"""What a platform plugin builds on: `BasePlatformAdapter`. It serves nobody itself."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, Protocol

from alipes.compat.hermes.call import Fit
from alipes.compat.hermes.platform.questions import pieces
from alipes.compat.hermes.platform.values import MessageEvent, PlatformConfig, ProcessingOutcome, SendResult
from alipes.compat.hermes.session_keys import SessionSource, platform_name

TYPING = 2.0
"""Seconds between two signs that we are at work."""
_AFTER_CHAT = (
    *("chat_name", "chat_type", "user_id", "user_name"),
    *("thread_id", "chat_topic", "user_id_alt", "chat_id_alt"),
)
_OF_A_SOURCE = {each.name for each in fields(SessionSource)}


async def call(function: Callable[..., Any], *given: Any, **offered: Any) -> Any:
    """What plugin code gives, awaited if need be. `given` by position, as all versions of the contract
    have it; of `offered` only what its signature takes, for the oldest know few of these words."""
    answer = Fit(function)(*given, **offered)
    return await answer if inspect.isawaitable(answer) else answer


class Hearing(Protocol):
    """Whoever serves an adapter."""

    async def hear(self, event: MessageEvent) -> None:
        """A message came; it is accepted once this returns."""
        ...

    async def cancel(self, key: str, *, waiting: bool) -> None:
        """End what lives under `key`, and with `waiting` what waits there."""
        ...

    def stands(self) -> None:
        """Whether it is connected has changed; from any thread."""
        ...


class _Standing:
    """Is it connected, and if not, why?"""

    _running = False
    _fatal: tuple[str, str, bool] | None = None
    _hearing: Hearing | None = None

    def _mark_connected(self) -> None:
        self._running, self._fatal = True, None
        self._changed()

    def _mark_disconnected(self) -> None:
        self._running = False
        self._changed()

    def _set_fatal_error(self, code: str, message: str, *, retryable: bool = False) -> None:
        """It cannot go on; `retryable`: it may be tried again later."""
        self._running, self._fatal = False, (code, message, retryable)
        self._changed()

    def _changed(self) -> None:
        if self._hearing is not None:
            self._hearing.stands()

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
        """It asks by itself who may speak."""
        return False


class _Sending(ABC):
    """What may be sent besides text. What the platform cannot do is told as a failure, never passed over."""

    name: str

    @abstractmethod
    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult: ...

    async def edit_message(self, chat_id: str, message_id: str, content: str, **_more: Any) -> SendResult:
        return self._cannot("edit a message")

    async def delete_message(self, chat_id: str, message_id: str) -> bool:
        return False

    async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
        """Show that we are at work."""
        return

    async def stop_typing(self, chat_id: str, metadata: Any = None) -> None:
        """Show it no longer."""
        return

    async def send_image(
        self, chat_id: str, image_url: str, caption: str | None = None, **more: Any
    ) -> SendResult:
        """As a picture; here, as its address."""
        words = f"{caption}\n{image_url}" if caption else image_url
        return await self._say(chat_id, words, more)

    async def send_image_file(
        self, chat_id: str, image_path: str, caption: str | None = None, **_more: Any
    ) -> SendResult:
        return self._cannot("send a picture from a file")

    async def send_voice(
        self, chat_id: str, audio_path: str, caption: str | None = None, **_more: Any
    ) -> SendResult:
        return self._cannot("send a voice message")

    async def send_video(
        self, chat_id: str, video_path: str, caption: str | None = None, **_more: Any
    ) -> SendResult:
        return self._cannot("send a video")

    async def send_document(
        self, chat_id: str, file_path: str, caption: str | None = None, **_more: Any
    ) -> SendResult:
        return self._cannot("send a file")

    async def play_tts(self, chat_id: str, audio_path: str, **more: Any) -> SendResult:
        """Let it be heard; here, as a voice message."""
        result: SendResult = await call(self.send_voice, chat_id, audio_path, **more)
        return result

    async def send_clarify(
        self, chat_id: str, question: str, choices: list[str] | None = None, **more: Any
    ) -> SendResult:
        """Ask something back; here, as text with a numbered list."""
        lines = [f"{number}. {choice}" for number, choice in enumerate(choices or [], 1)]
        return await self._say(chat_id, "\n".join([question, *lines]), more)

    async def _say(self, chat_id: str, words: str, more: dict[str, Any]) -> SendResult:
        known = {name: more[name] for name in ("reply_to", "metadata") if name in more}
        result: SendResult = await call(self.send, chat_id, words, **known)
        return result

    def _cannot(self, what: str) -> SendResult:
        return SendResult(False, error=f"{self.name} cannot {what}", error_kind="not_supported")


class BasePlatformAdapter(_Standing, _Sending):
    """One platform, as a plugin speaks to it. Subclasses connect, send, and call `handle_message`."""

    MAX_MESSAGE_LENGTH = 4096

    def __init__(self, config: PlatformConfig, platform: Any) -> None:
        self.config, self.platform = config, platform
        self._message_handler: Callable[[MessageEvent], Awaitable[str | None]] | None = None
        self._active_sessions: dict[str, asyncio.Event] = {}
        """By key, for each turn that lives: set once it is interrupted. Whoever serves us keeps it."""
        self._pending_messages: dict[str, MessageEvent] = {}
        """Always empty: what waits is in the store."""
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._auto_tts_disabled_chats: set[str] = set()
        self._auto_tts_enabled_chats: set[str] = set()

    @property
    def name(self) -> str:  # type: ignore[override]
        return platform_name(self.platform).replace("_", " ").title()

    @abstractmethod
    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Begin to listen; False when that cannot be done."""

    @abstractmethod
    async def disconnect(self) -> None: ...

    @abstractmethod
    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """`{"name": ..., "type": "dm"}`."""

    def set_message_handler(self, handler: Callable[[MessageEvent], Awaitable[str | None]]) -> None:
        """Hand messages to `handler`, and send what it answers, as long as no gateway serves us."""
        self._message_handler = handler

    async def handle_message(self, event: MessageEvent) -> None:
        """A message came. It is accepted once this returns; its answer comes later, through `send`."""
        if self._hearing is not None:
            await self._hearing.hear(event)
        elif self._message_handler is not None:
            answer = await call(self._message_handler, event)
            if answer and event.source is not None:
                await call(self.send, event.source.chat_id, answer)
        else:
            raise RuntimeError(f"nobody serves {self.name} now, so this message cannot be heard")

    async def cancel_session_processing(self, session_key: str, **more: Any) -> None:
        """End the turn that lives under the key; `discard_pending=False` leaves what waits behind it."""
        if self._hearing is not None:
            await self._hearing.cancel(session_key, waiting=bool(more.get("discard_pending", True)))

    async def interrupt_session_activity(self, session_key: str, chat_id: str) -> None:
        """Told when the turn under the key was interrupted; for whoever shows something of it."""

    def build_source(self, chat_id: Any, *positional: Any, **named: Any) -> SessionSource:
        """Of this platform. After the chat come, in this order or by name: `chat_name`, `chat_type`,
        `user_id`, `user_name`, `thread_id`, `chat_topic`, `user_id_alt`, `chat_id_alt`, and more by name."""
        known = {**dict(zip(_AFTER_CHAT, positional, strict=False)), **named}
        known = {name: value for name, value in known.items() if name in _OF_A_SOURCE}
        made = SessionSource(self.platform, str(chat_id), **known)
        made.user_id = None if made.user_id is None else str(made.user_id)
        made.thread_id = str(made.thread_id) if made.thread_id else None
        return made

    def format_message(self, content: str) -> str:
        """Text as the platform writes it."""
        return content

    @staticmethod
    def truncate_message(content: str, max_length: int = 4096, **more: Any) -> list[str]:
        """In pieces that fit; `len_fn`: as the platform counts."""
        return pieces(content, max_length, more.get("len_fn") or len)

    async def on_processing_start(self, event: MessageEvent) -> None:
        """The turn of this message begins."""

    async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
        """The turn of this message is over."""

    async def _keep_typing(self, chat_id: str, interval: float = TYPING, metadata: Any = None) -> None:
        """Show that we are at work until cancelled; that is when the turn is over."""
        while True:
            await call(self.send_typing, chat_id, metadata=metadata)
            await asyncio.sleep(interval)
