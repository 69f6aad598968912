"""Sessions of nanobot: a line with facts, then messages in the shape of OpenAI's chat API."""

import base64
import binascii
import re

from alipes.features.importer.content import Content, describe_pictures, read_call, read_content
from alipes.features.importer.conversations import build_conversation
from alipes.features.importer.formats import read_time
from alipes.features.importer.json_lines import JsonRows, Row, get_count, get_row, get_rows, get_text
from alipes.features.importer.records import PastConversation, PastMessage
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.turns import Address

FOLDER = "sessions"
_BY_THE_SYSTEM = re.compile(r"(?:cron|heartbeat|dream|subagent|system|api)(?::|$)")
_HIDDEN, _COMMAND = "_hidden_history", "_command"
_TIME = re.compile(r"\[Message Time: [^\]]+\]\n?")


def list_files(home: SourceHome) -> list[str]:
    """Of all workspaces, and of versions before 0.3."""
    files = []
    for name in home.list_names(FOLDER):
        inner = [] if name.endswith(".jsonl") else home.list_names(f"{FOLDER}/{name}")
        files += [
            f"{FOLDER}/{path}" for path in (name, *(f"{name}/{each}" for each in inner)) if path.endswith(".jsonl")
        ]
    return files


def read_key(home: SourceHome, file: str) -> str:
    """The key of a session, such as `telegram:1001`: its first line has it, and so has its name."""
    first = next(iter(JsonRows(home, file)), {})
    return get_text(first, "key") if first.get("_type") == "metadata" else _decode_name(file)


def is_of_the_system(key: str) -> bool:
    return bool(_BY_THE_SYSTEM.match(key))


def read_address(key: str) -> Address | None:
    """The chat of a key; None for the terminal and for platforms whose chats have other ids here."""
    platform, _, chat = key.partition(":")
    chat, _, topic = chat.partition(":topic:")
    if platform not in ("telegram", "discord", "slack", "matrix") or not chat:
        return None
    is_group = chat.startswith("-") if platform == "telegram" else platform != "telegram"
    return Address(platform, chat, "group" if is_group else "dm", topic)


def read_session(home: SourceHome, file: str) -> PastConversation | None:
    lines = JsonRows(home, file)
    facts: Row = {}
    contents: list[Content] = []
    messages: list[PastMessage] = []
    covered = hidden = rows = 0
    for row in lines:
        if "_type" in row:
            facts = row if row["_type"] == "metadata" else facts
            continue
        rows += 1
        made = None if row.get(_HIDDEN) or row.get(_COMMAND) else _read_message(row, len(messages), contents)
        if made is not None:
            messages.append(made)
        hidden += bool(row.get(_COMMAND))
        covered = len(messages) if rows <= get_count(facts, "last_archived", "last_consolidated") else covered
    if not messages:
        return None
    key = get_text(facts, "key") or _decode_name(file)
    about = get_row(facts, "metadata")
    summary = get_text(get_row(about, "_last_summary"), "text")
    if summary:
        messages[:covered] = [_as_compacted(each) for each in messages[:covered]]
    commands = [format_count(hidden, "command") + " of nanobot"] if hidden else []
    return build_conversation(
        file,
        file.rpartition("/")[2].removesuffix(".jsonl"),
        messages,
        title=get_text(about, "title"),
        chat=read_address(key),
        summary=summary,
        notes=(*commands, *describe_pictures(contents), *lines.notes()),
    )


def _read_message(row: Row, number: int, contents: list[Content]) -> PastMessage | None:
    role = row.get("role")
    given = row.get("content")
    found = read_content(_TIME.sub("", given, count=1) if isinstance(given, str) else given)
    contents.append(found)
    at, name = read_time(row.get("timestamp")), str(number)
    match role:
        case "user":
            return PastMessage(Message("user", found.parts), at, name)
        case "assistant":
            calls = [_read_call(call) for call in get_rows(row, "tool_calls")]
            return PastMessage(Message("assistant", (*found.parts, *calls)), at, name) if found.parts or calls else None
        case "tool":
            result = ToolResult(get_text(row, "tool_call_id"), found.text, images=found.images)
            return PastMessage(Message("tool", (result,)), at, name)
    return None


def _read_call(call: Row) -> ToolCall:
    function = get_row(call, "function")
    return read_call(get_text(call, "id"), get_text(function, "name"), function.get("arguments"))


def _as_compacted(message: PastMessage) -> PastMessage:
    return PastMessage(message.message, message.at, message.id, "compacted")


def _decode_name(file: str) -> str:
    name = file.rpartition("/")[2].removesuffix(".jsonl")
    try:
        return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (binascii.Error, ValueError):
        return name.replace("_", ":", 1)
