"""Messages of Hermes from the rows of its database."""

import base64
import binascii
import json
from typing import Any

from msgspec import structs

from alipes.features.importer.formats import plain_text, plain_value, read_time
from alipes.features.importer.records import MessageState, PastMessage
from alipes.kernel.messages import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult, image_type

PARTS = "\0json:"
"""The start of a content that is a list of parts. SQL sees an empty text."""
SUMMARY = "[CONTEXT COMPACTION"
MAX_IMAGE_BYTES = 20_000_000


def read_message(row: dict[str, Any], model: str, sender: str) -> PastMessage | None:
    """None if nothing in it was said. Raises ValueError if it cannot be read."""
    role, at, id = row.get("role"), read_time(row.get("timestamp")), str(row.get("id"))
    parts = read_content(row.get("content"))
    state: MessageState = "undone" if not row.get("active", 1) and not row.get("compacted", 0) else "shown"
    if role == "user":
        return PastMessage(Message("user", parts), at, id, state=state, sender=sender)
    if role == "assistant":
        thought = plain_text(row.get("reasoning")) or plain_text(row.get("reasoning_content"))
        thinking = (Thinking(thought),) if thought else ()
        said = Message("assistant", (*thinking, *parts, *read_calls(row.get("tool_calls"))))
        return PastMessage(said, at, id, state=state, model=model) if said.parts else None
    if role == "tool":
        text = "".join(part.text for part in parts if isinstance(part, Text))
        images = tuple(part for part in parts if isinstance(part, Image))
        result = ToolResult(plain_text(row.get("tool_call_id")), text, images=images)
        return PastMessage(Message("tool", (result,)), at, id, state=state)
    if role == "session_meta":
        return None
    raise ValueError(f"unknown role {plain_text(role)[:20]!r}")


def read_content(content: object) -> tuple[Part, ...]:
    """Raises ValueError."""
    if isinstance(content, bytes):
        content = content.decode("utf-8", "replace")
    if not isinstance(content, str):
        return ()
    if not content.startswith(PARTS):
        text = plain_text(content)
        return (Text(text),) if text else ()
    listed = json.loads(content[len(PARTS) :])
    return tuple(part for each in listed if (part := _read_part(each)) is not None) if isinstance(listed, list) else ()


def _read_part(part: object) -> Part | None:
    match part:
        case str():
            return Text(plain_text(part))
        case {"type": "text" | "input_text", "text": str(text)}:
            return Text(plain_text(text))
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
            return _read_image(url)
    return None


def _read_image(url: str) -> Part:
    head, _, data = url.partition(",")
    if not head.startswith("data:"):
        return Text(f"[picture at {plain_text(url)[:500]}: not fetched]")
    try:
        found = base64.b64decode(data, validate=False) if len(data) < MAX_IMAGE_BYTES * 4 // 3 else b""
    except (binascii.Error, ValueError):
        found = b""
    kind = image_type(found)
    return Image(kind, found) if kind else Text("[a picture that cannot be read]")


def read_calls(text: object) -> tuple[ToolCall, ...]:
    """Calls in OpenAI's shape. Raises ValueError."""
    listed = json.loads(text) if isinstance(text, str) and text.strip() else []
    return tuple(_read_call(each, place) for place, each in enumerate(listed)) if isinstance(listed, list) else ()


def _read_call(call: object, place: int) -> ToolCall:
    if not isinstance(call, dict):
        raise ValueError("a tool call is no object")  # noqa: TRY004
    function = call.get("function")
    given = function if isinstance(function, dict) else {}
    id = plain_text(call.get("id")) or plain_text(call.get("call_id")) or f"call_{place}"
    name, raw = plain_text(given.get("name")) or "unknown", given.get("arguments")
    args = parse_args(raw)
    return ToolCall(id, name, args) if args is not None else ToolCall(id, name, {}, raw=plain_text(raw))


def parse_args(raw: object) -> dict[str, Json] | None:
    if isinstance(raw, dict):
        parsed = plain_value(raw)
    else:
        try:
            parsed = plain_value(json.loads(raw)) if isinstance(raw, str) and raw.strip() else {}
        except (ValueError, RecursionError):
            return None
    return parsed if isinstance(parsed, dict) else None


def drop_repeats(rows: list[PastMessage]) -> tuple[tuple[PastMessage, ...], str]:
    """The messages in order, and the last summary.

    Compaction writes a summary and repeats the tail that it keeps: the repeated messages are dropped, and the first
    copies are shown. What is before them is compacted.
    """
    found: list[PastMessage] = []
    covered, summary, place = 0, "", 0
    while place < len(rows):
        each = rows[place]
        place += 1
        if each.message.role != "user" or not each.message.text.startswith(SUMMARY):
            found.append(each)
            continue
        summary = each.message.text.partition("]")[2].strip() or each.message.text
        repeated = _count_repeated(found, rows[place:])
        place += repeated
        covered = len(found) - repeated
    compacted = [
        structs.replace(each, state="compacted") if number < covered and each.state == "shown" else each
        for number, each in enumerate(found)
    ]
    return tuple(compacted), summary if covered else ""


def _count_repeated(before: list[PastMessage], after: list[PastMessage]) -> int:
    """How many of the first messages after a summary repeat the last ones before it."""
    said = [_key(each) for each in before]
    again = [_key(each) for each in after[: len(said)]]
    return next((count for count in range(len(again), 0, -1) if said[-count:] == again[:count]), 0)


def _key(each: PastMessage) -> object:
    message = each.message
    return [message.role, message.text, [[call.id, call.name] for call in message.calls]]
