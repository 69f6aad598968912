"""Attributes and optional methods that adapters expect of their base class."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from alipes.compat.hermes.modules.locks import acquire_scoped_lock, release_scoped_lock
from alipes.compat.hermes.platform.events import is_retryable_error, is_timeout_error, merge_caption
from alipes.compat.hermes.platform.media_cache import validate_media_delivery_path
from alipes.compat.hermes.platform.message_text import strip_markdown
from alipes.compat.hermes.platform.values import MessageEvent, SendResult
from alipes.compat.hermes.session_keys import platform_name


class AccountLock:
    """Makes sure that only one process uses an account."""

    platform: Any
    _set_fatal_error: Callable[..., None]
    _platform_lock: tuple[str, str] | None = None

    def _acquire_platform_lock(self, scope: str, identity: str, resource_desc: str) -> bool:
        """Lock the account; on failure, set a fatal error that names the other process."""
        acquired, holder = acquire_scoped_lock(scope, identity, {"platform": platform_name(self.platform)})
        if acquired:
            self._platform_lock = scope, identity
            return True
        pid = (holder or {}).get("pid")
        where = f" by process {pid}" if pid else ""
        self._set_fatal_error(
            f"{scope}_lock", f"{resource_desc} is already in use{where}; stop it first", retryable=True
        )
        return False

    def _release_platform_lock(self) -> None:
        if self._platform_lock is not None:
            release_scoped_lock(*self._platform_lock)
            self._platform_lock = None


class VoiceReplyRules:
    """Which chats get spoken answers to voice notes."""

    _auto_tts_enabled_chats: set[str]
    _auto_tts_disabled_chats: set[str]
    _auto_tts_default = False
    """Set by the host: `auto_tts` in the plugin's table."""

    def _should_auto_tts_for_chat(self, chat_id: str) -> bool:
        if chat_id in self._auto_tts_enabled_chats:
            return True
        return chat_id not in self._auto_tts_disabled_chats and bool(self._auto_tts_default)

    def prepare_tts_text(self, text: str) -> str:
        """The text to be spoken."""
        return strip_markdown(text)


class AdapterDefaults(AccountLock, VoiceReplyRules):
    """Defaults of optional methods. What the host does itself has no effect here."""

    supports_code_blocks = False
    supports_status_text = False
    supports_async_delivery = True
    supports_inchannel_continuable = False
    splits_long_messages = False
    interactive_resume = True
    typed_command_prefix = "/"
    REQUIRES_EDIT_FINALIZE = False
    gateway_runner: Any = None
    _fatal: tuple[str, str, bool] | None
    _adapter_host: Any
    _background_tasks: set[Any]
    _fatal_error_handler: Callable[..., Awaitable[None] | None] | None = None
    _session_store: Any = None
    send: Callable[..., Any]
    send_image: Callable[..., Any]

    _is_retryable_error = staticmethod(is_retryable_error)
    _is_timeout_error = staticmethod(is_timeout_error)
    _merge_caption = staticmethod(merge_caption)
    validate_media_delivery_path = staticmethod(validate_media_delivery_path)

    @property
    def message_len_fn(self) -> Callable[[str], int]:
        return len

    @property
    def streaming_overflow_limit(self) -> int | None:
        return None

    @property
    def authorization_is_upstream(self) -> bool:
        return False

    @staticmethod
    def _is_animation_url(url: str) -> bool:
        return url.partition("?")[0].lower().endswith(".gif")

    def set_fatal_error_handler(self, handler: Callable[..., Awaitable[None] | None]) -> None:
        self._fatal_error_handler = handler

    async def _notify_fatal_error(self) -> None:
        """Report a fatal error that was set; the host watches for it as well."""
        handler = self._fatal_error_handler
        answer = handler(self) if handler is not None and self._fatal is not None else None
        if inspect.isawaitable(answer):
            await answer

    def _is_sender_authorized(
        self, user_id: str | None, chat_type: str | None = None, chat_id: str | None = None
    ) -> bool | None:
        """True if the plugin's variables allow the person; None if only the gateway can tell."""
        role = getattr(self._adapter_host, "role", None)
        return True if user_id and callable(role) and role(str(user_id)) is not None else None

    def _apply_topic_recovery(self, event: MessageEvent) -> None:
        """Threads are kept as the platform names them."""

    async def _send_with_retry(self, chat_id: str, content: str, **options: Any) -> SendResult:
        """Send once: the outbox retries."""
        known = {name: options[name] for name in ("reply_to", "metadata") if name in options}
        result: SendResult = await self.send(chat_id, content, **known)
        return result

    async def cancel_background_tasks(self) -> None:
        for task in [*self._background_tasks]:
            task.cancel()
        self._background_tasks.clear()

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        return None

    def supports_draft_streaming(self, *_given: Any, **_more: Any) -> bool:
        return False

    def prefers_fresh_final_streaming(self, *_given: Any, **_more: Any) -> bool:
        return False

    async def send_animation(self, chat_id: str, animation_url: str, caption: str | None = None, **more: Any) -> Any:
        return await self.send_image(chat_id, animation_url, caption=caption, **more)

    async def send_multiple_images(
        self, chat_id: str, images: list[tuple[str, str]], metadata: Any = None, human_delay: float = 0.0
    ) -> None:
        for url, caption in images:
            await self.send_image(chat_id, url, caption=caption or None, metadata=metadata)

    async def send_private_notice(self, chat_id: str, user_id: str | None, content: str, **more: Any) -> Any:
        return await self._send_with_retry(chat_id, content, **more)

    def pause_typing_for_chat(self, chat_id: str) -> None:
        """The host stops typing indicators itself."""

    def resume_typing_for_chat(self, chat_id: str) -> None:
        """The host starts typing indicators itself."""
