"""Functions of `gateway.platforms.base` on messages: channel prompts and skills, merging, threads, errors."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from alipes.compat.hermes.platform.values import MessageEvent, MessageType
from alipes.compat.hermes.session_keys import platform_name

_RETRYABLE_WORDS = (
    *("connecterror", "connectionerror", "connectionreset", "connectionrefused", "connecttimeout"),
    *("connection reset", "connection refused", "broken pipe", "remotedisconnected", "network"),
)
_TIMEOUT_WORDS = ("timed out", "timeout")
_ERROR_KINDS: dict[str, tuple[str, ...]] = {
    "rate_limited": ("rate limit", "too many requests", "retry after", "flood", "429"),
    "too_long": ("too long", "too large", "message_too_long"),
    "bad_format": ("can't parse", "parse entities", "bad format", "invalid markdown"),
    "not_found": ("not found", "deleted", "message_id_invalid"),
    "forbidden": ("forbidden", "blocked by the user", "not enough rights", "kicked", "unauthorized", "403"),
    "transient": (*_RETRYABLE_WORDS, *_TIMEOUT_WORDS, "temporarily", "502", "503"),
}


def resolve_channel_prompt(
    config_extra: Mapping[str, Any], channel_id: str, parent_id: str | None = None
) -> str | None:
    """The prompt of a channel, or of its parent, from `channel_prompts`."""
    prompts = config_extra.get("channel_prompts")
    if not isinstance(prompts, Mapping):
        return None
    found = (str(prompts.get(each) or "").strip() for each in (channel_id, parent_id) if each)
    return next(filter(None, found), None)


def resolve_channel_skills(
    config_extra: Mapping[str, Any], channel_id: str, parent_id: str | None = None
) -> list[str] | None:
    """The skills of a channel, or of its parent, from `channel_skill_bindings`."""
    bindings = config_extra.get("channel_skill_bindings")
    wanted = {str(each) for each in (channel_id, parent_id) if each}
    for binding in bindings if isinstance(bindings, list) else ():
        if isinstance(binding, Mapping) and str(binding.get("id", "")) in wanted:
            return _names(binding.get("skills") or binding.get("skill")) or None
    return None


def _names(given: Any) -> list[str]:
    listed: Iterable[Any] = [given] if isinstance(given, str) else given if isinstance(given, list) else ()
    return list(dict.fromkeys(each.strip() for each in listed if isinstance(each, str) and each.strip()))


def merge_pending_message_event(
    pending_messages: dict[str, MessageEvent], session_key: str, event: MessageEvent, *, merge_text: bool = False
) -> None:
    """Add a message to the one that waits under the key: media always, text only with `merge_text`."""
    waiting = pending_messages.get(session_key)
    both_text = waiting is not None and waiting.message_type is event.message_type is MessageType.TEXT
    if waiting is None or not (waiting.media_urls or event.media_urls or (merge_text and both_text)):
        pending_messages[session_key] = event
        return
    if both_text and not (waiting.media_urls or event.media_urls):
        waiting.text = "\n".join(filter(None, (waiting.text, event.text)))
        return
    waiting.media_urls.extend(event.media_urls)
    waiting.media_types.extend(event.media_types)
    if event.text:
        waiting.text = merge_caption(waiting.text, event.text)
    if MessageType.PHOTO in (waiting.message_type, event.message_type):
        waiting.message_type = MessageType.PHOTO
    elif waiting.message_type is MessageType.TEXT:
        waiting.message_type = event.message_type


def merge_caption(existing_text: str | None, new_text: str) -> str:
    """Both captions, unless the new one is there already."""
    if not existing_text:
        return new_text
    known = [each.strip() for each in existing_text.split("\n\n")]
    return existing_text if new_text.strip() in known else f"{existing_text}\n\n{new_text}"


def thread_metadata_for_source(source: Any, reply_to_message_id: str | None = None) -> dict[str, Any] | None:
    """Metadata for sending to the source's thread; None if it has none."""
    thread, platform = getattr(source, "thread_id", None), platform_name(getattr(source, "platform", None))
    metadata: dict[str, Any] = {} if thread is None else {"thread_id": thread}
    if platform == "slack" and getattr(source, "scope_id", None):
        metadata["slack_team_id"] = str(source.scope_id)
    if thread is not None and platform == "telegram" and getattr(source, "chat_type", None) == "dm":
        metadata["telegram_dm_topic_reply_fallback"] = True
        if str(thread) not in ("", "1"):
            metadata["direct_messages_topic_id"] = str(thread)
        if anchor := reply_to_message_id or getattr(source, "message_id", None):
            metadata["telegram_reply_to_message_id"] = str(anchor)
    return metadata or None


def classify_send_error(exc: BaseException | None, error_text: str = "") -> str:
    """The kind of a failed send: too_long, bad_format, forbidden, not_found, rate_limited, transient, unknown."""
    text = f"{type(exc).__name__ if exc else ''} {exc or ''} {error_text}".lower()
    return next((kind for kind, words in _ERROR_KINDS.items() if any(word in text for word in words)), "unknown")


def is_retryable_error(error: str | None) -> bool:
    """True if the message was surely not sent: the connection failed."""
    return any(word in (error or "").lower() for word in _RETRYABLE_WORDS)


def is_timeout_error(error: str | None) -> bool:
    """True if the message may have been sent."""
    text = (error or "").lower()
    return any(word in text for word in _TIMEOUT_WORDS) and "connecttimeout" not in text


def utf16_len(s: str) -> int:
    """The length in UTF-16 code units, as Telegram counts."""
    return len(s.encode("utf-16-le", "surrogatepass")) // 2


def prefix_within_utf16_limit(s: str, limit: int) -> str:
    """The longest prefix of at most `limit` UTF-16 code units."""
    cut = s.encode("utf-16-le", "surrogatepass")[: max(limit, 0) * 2]
    return cut.decode("utf-16-le", "ignore")


def custom_unit_to_cp(s: str, budget: int, len_fn: Callable[[str], int]) -> int:
    """How many characters fit into `budget` units."""
    low, high = 0, len(s)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len_fn(s[:middle]) <= budget else (low, middle - 1)
    return low
