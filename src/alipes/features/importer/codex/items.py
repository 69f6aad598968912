"""The messages of a session of Codex."""

import re
from collections import Counter

from msgspec import structs

from alipes.features.importer.content import Content, describe_pictures, read_call, read_content
from alipes.features.importer.conversations import merge
from alipes.features.importer.formats import read_time
from alipes.features.importer.json_lines import Row, get_count, get_row, get_text, get_texts, read_row
from alipes.features.importer.records import PastMessage, PastUsage
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json, Message, Outcome, Part, ToolCall, ToolResult
from alipes.kernel.turns import Usage

_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions|turn_aborted|skill|skills_instructions|"
    r"subagent_notification|user_shell_command|personality_spec|collaboration_mode)\b|# AGENTS\.md instructions)"
)
"""What Codex says in the name of the user."""
_SUMMARY = re.compile(r"^Another language model started to solve this problem.*?own analysis:\n", re.DOTALL)
_KNOWN = ("session_meta", "world_state")
_FIELDS = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_output_tokens")


class RolloutMessages:
    """Folds the lines of a session, in order, into messages."""

    def __init__(self) -> None:
        self.provider = self.summary = ""
        self._model = ""
        self._messages: list[PastMessage] = []
        self._usage: dict[str, PastUsage] = {}
        self._total: dict[str, int] = {}
        self._covered = 0
        self._contents: list[Content] = []
        self._left: Counter[tuple[str, str]] = Counter()

    @property
    def usage(self) -> tuple[PastUsage, ...]:
        return tuple(self._usage.values())

    def forget_usage(self) -> None:
        """What was copied from another session is on its bill."""
        self._usage = {}

    def finish(self) -> tuple[PastMessage, ...]:
        covered = [structs.replace(each, state="compacted") for each in self._messages[: self._covered]]
        return (*covered, *self._messages[self._covered :])

    def notes(self) -> tuple[str, ...]:
        counted = [format_count(count, noun) + more for (noun, more), count in sorted(self._left.items())]
        return (*counted, *describe_pictures(self._contents))

    def add(self, row: Row) -> None:
        kind, payload = get_text(row, "type"), get_row(row, "payload")
        at = read_time(row.get("timestamp"))
        if kind == "response_item":
            self._add_item(payload, at)
        elif kind == "turn_context":
            self._model = get_text(payload, "model") or self._model
        elif kind == "compacted":
            self._compact(_SUMMARY.sub("", get_text(payload, "message")))
        elif kind == "token_usage_record":
            self._add_usage(get_row(payload, "thread_token_usage"), at)
        elif kind == "event_msg":
            self._add_event(payload, at)
        elif kind not in _KNOWN:
            self._left["line", f" of the unknown kind {kind[:40]}"] += 1

    def _compact(self, summary: str) -> None:
        if self._messages and self._messages[-1].message.text.strip() == summary.strip():
            self._messages.pop()  # the answer that is the summary
        self._covered, self.summary = len(self._messages), summary

    def _add_event(self, payload: Row, at: float) -> None:
        if payload.get("type") == "token_count":
            self._add_usage(get_row(payload, "info", "total_token_usage"), at)
        elif payload.get("type") == "thread_rolled_back":
            self._take_back(get_count(payload, "num_turns"))

    def _add_item(self, item: Row, at: float) -> None:
        match item.get("type"):
            case "message" if item.get("role") == "user":
                parts = self._read(self._own_words(item))
                if parts:
                    self._messages.append(PastMessage(Message("user", parts), at))
            case "message" if item.get("role") == "assistant":
                self._answer(self._read(item.get("content")), at)
            case "function_call" | "custom_tool_call":
                given = item.get("arguments") if "arguments" in item else {"input": item.get("input")}
                self._answer((read_call(get_text(item, "call_id"), get_text(item, "name"), given),), at)
            case "local_shell_call":
                words = " ".join(get_texts(get_row(item, "action"), "command"))
                self._answer((ToolCall(get_text(item, "call_id", "id"), "shell", {"command": words}),), at)
            case "function_call_output" | "custom_tool_call_output":
                self._add_result(item, at)
            case "web_search_call" | "image_generation_call":
                self._left["call", " of a tool of the server"] += 1

    def _own_words(self, item: Row) -> list[Json]:
        """The content without what Codex added, which newer versions mark."""
        content = item.get("content")
        blocks = content if isinstance(content, list) else [content]
        kinds = get_row(item, "internal_chat_message_metadata_passthrough").get("content_item_kinds")
        if isinstance(kinds, list) and len(kinds) == len(blocks):
            is_own = [str(kind).startswith(("user.", "unknown")) for kind in kinds]
            blocks = [block for block, own in zip(blocks, is_own, strict=True) if own]
        return [block for block in blocks if not (isinstance(block, dict) and _CONTEXT.match(get_text(block, "text")))]

    def _answer(self, parts: tuple[Part, ...], at: float) -> None:
        """Text and calls of one answer are several items."""
        if not parts:
            return
        made = PastMessage(Message("assistant", parts), at, model=self._name_model())
        last = self._messages[-1] if len(self._messages) > self._covered else None
        if last is not None and last.message.role == "assistant" and isinstance(parts[0], ToolCall):
            self._messages[-1] = merge(last, made)
        else:
            self._messages.append(made)

    def _add_result(self, item: Row, at: float) -> None:
        output: Json = item.get("output")
        outcome: Outcome = "ok"
        given = read_row(output, "") if isinstance(output, str) and output.startswith('{"') else None
        if given and "output" in given:
            outcome = "failed" if get_count(get_row(given, "metadata"), "exit_code") else "ok"
            output = get_text(given, "output")
        if isinstance(output, dict):
            outcome = "failed" if output.get("success") is False else "ok"
            output = output.get("content") if "content" in output else output.get("body")
        found = read_content(output)
        self._contents.append(found)
        result = ToolResult(get_text(item, "call_id"), found.text, outcome, found.images)
        self._messages.append(PastMessage(Message("tool", (result,)), at))

    def _read(self, content: Json) -> tuple[Part, ...]:
        found = read_content(content)
        self._contents.append(found)
        return found.parts

    def _add_usage(self, total: Row, at: float) -> None:
        """Totals grow with each call, and are repeated."""
        now = {field: get_count(total, field) for field in _FIELDS}
        grown = {field: max(0, now[field] - self._total.get(field, 0)) for field in _FIELDS}
        if not total or not any(grown.values()):
            return
        self._total = now
        model = self._name_model()
        read, written, cached, thought = (grown[field] for field in _FIELDS)
        usage = Usage(read, written, cached, reasoning=thought)
        old = self._usage.get(model) or PastUsage(model, Usage(), at, calls=0)
        self._usage[model] = PastUsage(model, old.usage + usage, at or old.at, calls=old.calls + 1)

    def _name_model(self) -> str:
        return "/".join(filter(None, (self.provider, self._model)))

    def _take_back(self, turns: int) -> None:
        """The last turns were undone."""
        for place in range(len(self._messages) - 1, self._covered - 1, -1):
            each = self._messages[place]
            if turns <= 0:
                return
            if each.state == "shown":
                self._messages[place] = structs.replace(each, state="undone")
                turns -= each.message.role == "user"
