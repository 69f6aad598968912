"""What a program knows of a conversation: which of its sessions belongs to it, and how much of ours it has seen."""

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.kernel.formatting import format_excerpt
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.tool_labels import describe_tool
from alipes.runtime.sandbox.policy import short_hash

KEEP_S = 90 * 86400.0
MAX_TRANSCRIPT_CHARS, MAX_MESSAGE_CHARS = 30_000, 6_000
CHANGED = "The conversation was changed (undone or branched)"


class SessionState(Struct, frozen=True):
    """Stored for each conversation with an agent."""

    session: str
    """The program's id of its session."""
    seen: int = 0
    """How many messages of ours it knows."""
    digest: str = ""
    """Of these messages."""
    running: str = ""
    """The turn that was running; empty if none was."""
    settings: dict[str, str] = {}
    """Its mode and options, as a person chose them here."""


class SessionStates:
    """The states in files of one folder: the sessions of a program are on this machine too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, conversation: str) -> SessionState | None:
        try:
            return msgspec.json.decode(self._path(conversation).read_bytes(), type=SessionState)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, conversation: str, state: SessionState) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(conversation)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(msgspec.json.encode(state))
        draft.replace(path)

    def remove_old(self) -> None:
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path.stat().st_mtime < time.time() - KEEP_S:
                    path.unlink(missing_ok=True)

    def _path(self, conversation: str) -> Path:
        return self._folder / f"{short_hash(conversation)}.json"


def digest(messages: Iterable[Message]) -> str:
    found = hashlib.sha256()
    for message in messages:
        found.update(repr((message.role, message.text, [call.name for call in message.calls])).encode(errors="replace"))
    return found.hexdigest()


def knows(state: SessionState, messages: tuple[Message, ...]) -> bool:
    """True if the messages begin with those that the program has seen."""
    return len(messages) >= state.seen and digest(messages[: state.seen]) == state.digest


def describe_transcript(messages: tuple[Message, ...], summary: str = "") -> str:
    """The messages as a text: the first request, and as many of the latest as there is room for. `summary`: of what was
    compacted before."""
    lines = list(filter(None, map(_describe_message, messages)))
    kept, room = list[str](), MAX_TRANSCRIPT_CHARS - sum(map(len, lines[:1]))
    for line in reversed(lines[1:]):
        room -= len(line)
        if room < 0:
            break
        kept.insert(0, line)
    left = len(lines) - 1 - len(kept)
    gap = [f"[{left:,} messages left out]"] if left > 0 else []
    return "\n\n".join(filter(None, [summary[:MAX_TRANSCRIPT_CHARS], *lines[:1], *gap, *kept]))


def _describe_message(message: Message) -> str:
    who = {"user": "User", "assistant": "Assistant", "notice": "Note", "tool": "Results"}[message.role]
    parts = []
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                parts.append(_shorten(text.strip()))
            case ToolCall():
                parts.append(f"({describe_tool(part).text[:200]})")
            case ToolResult(text=text, outcome=outcome):
                parts.append(f"({outcome}: {format_excerpt(text, 300)})")
    return f"{who}: {' '.join(parts)}" if parts else ""


def _shorten(text: str) -> str:
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    half = MAX_MESSAGE_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
