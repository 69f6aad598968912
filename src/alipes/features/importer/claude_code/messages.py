"""The messages of a session of Claude Code."""

import re
from collections import Counter
from collections.abc import Iterable

from msgspec import structs

from alipes.features.importer.content import Content, describe_pictures, read_call, read_content
from alipes.features.importer.conversations import merge
from alipes.features.importer.formats import read_time
from alipes.features.importer.json_lines import Row, get_count, get_row, get_rows, get_text
from alipes.features.importer.records import PastMessage
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json, Message, Part, Text, ToolResult, notice
from alipes.kernel.turns import Usage

_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_COMMAND = re.compile(r"<command-name>(/?[^<]*)</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_SHELL = re.compile(r"<bash-(input|stdout|stderr)>(.*?)</bash-\1>", re.DOTALL)
_RESULT = re.compile(r"<(summary|result)>(.*?)</\1>", re.DOTALL)
_SUMMARY = re.compile(r"^.*?\nSummary:\n|\n\nIf you need specific details from before compaction.*$", re.DOTALL)
_SILENT = ("<local-command-", "[Request interrupted by user")
_OWN_COMMANDS = (
    *("clear", "compact", "model", "config", "cost", "exit", "help", "login", "logout", "mcp", "resume", "status"),
    *("agents", "doctor", "memory", "permissions", "usage", "context", "rewind", "rename", "plugin", "hooks", "fast"),
)


class TranscriptMessages:
    """Folds rows, in order, into messages."""

    def __init__(self, session: str) -> None:
        self._session = session
        self.messages: list[PastMessage] = []
        self.summary = self.parent = ""
        self._covered = 0
        self._answer = ("", "")
        self._contents: list[Content] = []
        self._left: Counter[str] = Counter()

    def add_all(self, rows: Iterable[Row]) -> None:
        for row in rows:
            match row.get("type"):
                case "user":
                    self._add_user(row)
                case "assistant":
                    self._add_answer(row)
                case "system" if row.get("subtype") == "compact_boundary":
                    self._compact(row)

    def finish(self) -> list[PastMessage]:
        covered = [structs.replace(each, state="compacted") for each in self.messages[: self._covered]]
        return [*covered, *self.messages[self._covered :]]

    def notes(self) -> tuple[str, ...]:
        counted = [format_count(count, what) for what, count in sorted(self._left.items())]
        return (*counted, *describe_pictures(self._contents))

    def _compact(self, row: Row) -> None:
        """What is kept of the messages before is named by the row."""
        kept = get_row(row, "compactMetadata", "preservedMessages").get("uuids")
        names = set(kept) if isinstance(kept, list) else set()
        places = [place for place, each in enumerate(self.messages) if each.id in names]
        self._covered = min([len(self.messages), *(place for place in places if place >= self._covered)])

    def _add_user(self, row: Row) -> None:
        content = get_row(row, "message").get("content")
        if row.get("isCompactSummary") is True:
            self.summary = _SUMMARY.sub("", _REMINDER.sub("\n", read_content(content).text)).strip()
            return
        for block in get_rows(get_row(row, "message"), "content"):
            if block.get("type") == "tool_result":
                found = self._read(block.get("content"))
                outcome = "failed" if block.get("is_error") is True else "ok"
                result = ToolResult(get_text(block, "tool_use_id"), found.text, outcome, found.images)  # type: ignore[arg-type]
                self._append(row, Message("tool", (result,)))
        if row.get("isMeta") is not True:
            self._add_words(row, self._read(content).parts)

    def _add_words(self, row: Row, parts: tuple[Part, ...]) -> None:
        own: list[Part] = []
        for part in parts:
            if not isinstance(part, Text):
                own.append(part)
                continue
            text = _REMINDER.sub("\n", part.text).strip() if "<system-reminder>" in part.text else part.text
            if words := _read_notice(text):
                self._append(row, notice(words))
            elif (text := _read_command(text)) and not text.startswith(_SILENT):
                own.append(Text(text))
        if own:
            self._append(row, Message("user", tuple(own)))

    def _add_answer(self, row: Row) -> None:
        message = get_row(row, "message")
        if row.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
            self._left["error message"] += 1
            return
        answer = (get_text(message, "id"), get_text(row, "requestRef", "requestId"))
        is_new = answer != self._answer or not answer[0]
        is_own = self._is_own(row)
        made = PastMessage(
            Message("assistant", self._answer_parts(message.get("content"))),
            read_time(row.get("timestamp")),
            get_text(row, "uuid"),
            model=f"anthropic/{get_text(message, 'model')}",
            usage=_read_usage(message) if is_own else None,
        )
        last = self.messages[-1] if self.messages else None
        if not is_new and last is not None and last.message.role == "assistant" and len(self.messages) > self._covered:
            self.messages[-1] = merge(last, made)
        elif made.message.parts or made.usage:
            self.messages.append(made)
        self._answer = answer

    def _is_own(self, row: Row) -> bool:
        """False for a row that a fork copied: it was paid for once."""
        origin = get_text(get_row(row, "forkedFrom"), "sessionId") or get_text(row, "requestSessionId")
        if origin and origin != self._session:
            self.parent = self.parent or origin
            return False
        return True

    def _answer_parts(self, content: Json) -> tuple[Part, ...]:
        parts: list[Part] = []
        for block in content if isinstance(content, list) else [content]:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                parts.append(read_call(get_text(block, "id"), get_text(block, "name"), block.get("input")))
            else:
                parts += self._read(block).parts
        return tuple(parts)

    def _read(self, content: Json) -> Content:
        found = read_content(content)
        self._contents.append(found)
        return found

    def _append(self, row: Row, message: Message) -> None:
        self.messages.append(PastMessage(message, read_time(row.get("timestamp")), get_text(row, "uuid")))


def _read_command(text: str) -> str:
    """A command of the person as it was typed; empty for those of Claude Code itself."""
    if (found := _COMMAND.search(text)) is None:
        return text
    name = found[1].strip().removeprefix("/")
    arguments = _ARGUMENTS.search(text)
    return "" if name in _OWN_COMMANDS else f"/{name} {arguments[1] if arguments else ''}".strip()


def _read_notice(text: str) -> str:
    """What was said in the name of the person: the end of a subagent, the output of their own command."""
    if text.startswith("<task-notification>"):
        return "\n".join(value.strip() for _, value in _RESULT.findall(text))
    if text.startswith("<bash-"):
        lines = [f"The user ran {out}" if kind == "input" else out for kind, out in _SHELL.findall(text)]
        return "\n".join(lines).strip()
    return ""


def _read_usage(message: Row) -> Usage | None:
    given = get_row(message, "usage")
    cached, written = get_count(given, "cache_read_input_tokens"), get_count(given, "cache_creation_input_tokens")
    fresh, output = get_count(given, "input_tokens"), get_count(given, "output_tokens")
    total = fresh + cached + written
    thought = get_count(get_row(given, "output_tokens_details"), "thinking_tokens")
    return Usage(total, output, cached, written, thought) if total + output else None
