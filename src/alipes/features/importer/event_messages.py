"""The messages of a path of events, in the format that pi and OpenClaw share."""

from collections import Counter
from collections.abc import Iterable

from msgspec import structs

from alipes.features.importer.content import Content, describe_pictures, read_call, read_content
from alipes.features.importer.formats import read_time
from alipes.features.importer.json_lines import Row, get_count, get_row, get_text
from alipes.features.importer.records import PastMessage, PastUsage
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json, Message, Outcome, Part, ToolResult, notice
from alipes.kernel.turns import Usage

_SILENT = (
    *("session", "custom", "thinking_level_change", "model_change", "label", "leaf", "link", "context_edit", "reset"),
)
"""Events that add nothing to a conversation."""


class EventMessages:
    """Folds events, in order, into messages. What it leaves out is counted in `notes`."""

    def __init__(self) -> None:
        self.messages: list[PastMessage] = []
        self.usage: list[PastUsage] = []
        self.title = self.summary = ""
        self._starts: dict[str, int] = {}
        self._covered = 0
        self._contents: list[Content] = []
        self._left: Counter[tuple[str, str]] = Counter()

    def add_all(self, events: Iterable[Row]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Row) -> None:
        self._starts.setdefault(get_text(event, "id"), len(self.messages))
        match event.get("type"):
            case "message":
                self.add_message(event, get_row(event, "message"))
            case "custom_message":
                self.add_notice(event, self.read(event.get("content")).text)
            case "compaction":
                self._compact(event)
            case "branch_summary":
                self.add_notice(event, f"What was said on another branch: {get_text(event, 'summary')}")
                self.add_usage(event, "compaction")
            case "session_info":
                self.title = get_text(event, "name")
            case "usage":
                self.add_usage(event, get_text(event, "kind"))
            case kind if kind not in _SILENT:
                self.leave_out("event", f" of the unknown kind {str(kind)[:40]}")

    def finish(self) -> tuple[PastMessage, ...]:
        """All messages; those that a summary replaces come first."""
        covered = [structs.replace(each, state="compacted") for each in self.messages[: self._covered]]
        return (*covered, *self.messages[self._covered :])

    def notes(self) -> tuple[str, ...]:
        counted = [format_count(count, noun) + more for (noun, more), count in sorted(self._left.items())]
        return (*counted, *describe_pictures(self._contents))

    def leave_out(self, noun: str, more: str = "") -> None:
        self._left[noun, more] += 1

    def read(self, content: Json) -> Content:
        found = read_content(content)
        self._contents.append(found)
        return found

    def add_message(self, event: Row, message: Row) -> None:
        match message.get("role"):
            case "user":
                self.add_user(event, message, self.read(message.get("content")).parts)
            case "assistant":
                self.add_answer(event, message)
            case "toolResult":
                self._add_result(event, message)
                self.add_usage(message | {"timestamp": event.get("timestamp")}, "tool")
            case "bashExecution" if message.get("excludeFromContext") is not True:
                output = get_text(message, "output")
                self.add_notice(event, f"The user ran {get_text(message, 'command')}:\n{output}")
            case "branchSummary" | "compactionSummary" | "custom" | "hookMessage":
                self.add_notice(event, get_text(message, "summary") or self.read(message.get("content")).text)
            case "system" | "bashExecution":
                pass
            case role:
                self.leave_out("message", f" of the unknown role {str(role)[:40]}")

    def add_user(self, event: Row, _message: Row, parts: tuple[Part, ...], sender: str = "") -> None:
        self._append(event, Message("user", parts), sender=sender)

    def add_answer(self, event: Row, message: Row) -> None:
        parts, usage = self.answer_parts(message), read_usage(message)
        if parts:
            self._append(event, Message("assistant", parts), model=read_model(message), usage=usage)
        elif usage is not None:
            self.usage.append(PastUsage(read_model(message), usage, message_time(event)))

    def answer_parts(self, message: Row) -> tuple[Part, ...]:
        """Texts and calls, in order."""
        content = message.get("content")
        if not isinstance(content, list):
            return self.read(content).parts
        parts: list[Part] = []
        for block in content:
            if isinstance(block, dict) and block.get("type") == "toolCall":
                parts.append(read_call(get_text(block, "id"), get_text(block, "name"), block.get("arguments")))
            else:
                parts += self.read(block).parts
        return tuple(parts)

    def _add_result(self, event: Row, message: Row) -> None:
        found = self.read(message.get("content"))
        outcome: Outcome = "failed" if message.get("isError") is True else "ok"
        result = ToolResult(get_text(message, "toolCallId"), found.text, outcome, found.images)
        self._append(event, Message("tool", (result,)))

    def add_notice(self, event: Row, text: str) -> None:
        if text.strip():
            self._append(event, notice(text))

    def add_usage(self, row: Row, task: str) -> None:
        """Usage of a model call that made no message."""
        if (usage := read_usage(row)) is not None:
            self.usage.append(PastUsage(read_model(row), usage, message_time(row), task))

    def _compact(self, event: Row) -> None:
        kept = get_text(event, "firstKeptEntryId")
        self._covered = max(self._covered, self._starts.get(kept, len(self.messages)))
        self.summary = get_text(event, "summary")
        self.add_usage(event, "compaction")

    def _append(self, event: Row, message: Message, **more: object) -> None:
        past = PastMessage(message, message_time(event), get_text(event, "id"))
        self.messages.append(structs.replace(past, **more))


def message_time(event: Row) -> float:
    return read_time(get_row(event, "message").get("timestamp")) or read_time(event.get("timestamp"))


def read_model(message: Row) -> str:
    return "/".join(filter(None, (get_text(message, "provider"), get_text(message, "model", "modelId"))))


def read_usage(message: Row) -> Usage | None:
    """What `usage` of a message says; None if it says nothing."""
    given = get_row(message, "usage")
    cached, written = get_count(given, "cacheRead"), get_count(given, "cacheWrite")
    fresh, output = get_count(given, "input"), get_count(given, "output")
    if not fresh + output + cached + written:
        return None
    cost = get_row(given, "cost").get("total")
    price = float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0 else None
    reasoning = get_count(given, "reasoning")
    return Usage(fresh + cached + written, output, cached, written, reasoning, price)


def find_header(rows: Iterable[Row]) -> Row:
    """The `session` line."""
    return next((row for row in rows if row.get("type") == "session"), {})
