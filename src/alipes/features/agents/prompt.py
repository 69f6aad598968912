"""One prompt: what the program says and does about it, until it is taken as a model's answer."""

import asyncio
import hashlib
import os
import shlex
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ContentToolCallContent,
    FileEditToolCallContent,
    PromptResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
)
from acp.schema import ToolCallUpdate as WireCall
from msgspec import Struct, structs

from alipes.kernel.approvals import AGENT_TOOL
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import TextDelta, ThinkingDelta, Turn, Usage
from alipes.tools.files.text_file import diff_texts, display_path

MAX_TEXT_CHARS, MAX_CALLS = 5_000_000, 5_000
"""What one prompt may say and do; more is a program that floods."""
MAX_CHANGE_CHARS = 200_000_000
"""Of the files that its calls of one prompt change, as often as it sends them."""
MAX_INPUT_CHARS = 4_000
MAX_FILES, MAX_PLAN, MAX_PLAN_CHARS = 50, 100, 1_000
MAX_OUTPUT_CHARS = 50_000
READING = frozenset(("read", "search", "think", "fetch"))
"""Kinds of calls that change nothing."""
SHELL_WORDS = 3
_VERBS = {"read": "Read", "edit": "Edit", "delete": "Delete", "move": "Move", "search": "Search", "execute": "Run"}


class ProgramCall:
    """A tool call of the program, or several requests of it that belong to none."""

    def __init__(self, args: dict[str, Json], moved: asyncio.Event) -> None:
        """`moved`: set when it ends."""
        self.id, self._moved = os.urandom(6).hex(), moved
        self.args, self.title, self.kind = args, "", "other"
        self.input: dict[str, Any] = {}
        self.files: list[str] = []
        self.output, self.diffs = "", dict[str, tuple[str, str]]()
        self.shown = dict[str, tuple[str, str]]()
        """The changes that were shown."""
        self.ended = self.failed = False
        self.taken = self.has_run = False
        """It is in a model's answer; our tool has begun to wait for it."""
        self.is_complete = False
        """The program works on it, or something waits for it: nothing more about it is expected."""
        self.denial = ""
        """Why it was not allowed to run."""
        self.changed = asyncio.Event()

    @property
    def call(self) -> ToolCall:
        """As it is in our journal."""
        return ToolCall(self.id, AGENT_TOOL, self.args)

    @property
    def is_vague(self) -> bool:
        """More about it follows soon, as it was announced while its input was still being written."""
        known = self.find_command() if self.kind == "execute" else self.input
        return not (known or self.ended or self.diffs or self.is_complete)

    def find_command(self) -> str:
        """The command that it runs, if it says so."""
        return _find_command(self.input.get("command"))

    def deny(self, why: str) -> None:
        """It may not run; empty: it may."""
        self.denial = why

    def hurry(self) -> None:
        """Something waits for it."""
        self.is_complete = True
        self.changed.set()

    def describe_question(self, workdir: str) -> dict[str, Json]:
        """The arguments of our call as they are now: a person who is asked sees all that is known."""
        args = _describe(self, workdir)
        if self.kind == "execute" and "command" not in args:
            args["command"] = self.title[:MAX_OUTPUT_CHARS]  # its title is all that is known of it
        if self.diffs and not self.input:  # what is allowed for ever is this change, not every one of the file
            args["change"] = hashlib.sha256(repr(sorted(self.diffs.items())).encode(errors="replace")).hexdigest()[:16]
        return args

    def take(self) -> ToolCall:
        """It is in a model's answer from now on."""
        self.taken = True
        return self.call

    def begin(self) -> None:
        """Our tool begins to wait for it."""
        self.has_run = True
        self.changed.set()
        self._moved.set()

    def show(self, workdir: str) -> str:
        """Its changes so far as a diff, which count as shown."""
        self.shown = dict(self.diffs)
        return describe_diffs(self, workdir)[0]

    def describe(self, workdir: str) -> str:
        """Its result as a text."""
        return describe_diffs(self, workdir)[1] or self.output or "(no output)"

    def end(self, *, failed: bool, text: str = "") -> None:
        if self.denial and not text:  # some programs say nothing about it
            failed, text = True, f"not run: {self.denial}"
        if not self.ended:
            self.ended, self.failed, self.output = True, failed, text or self.output
        self.changed.set()
        self._moved.set()


class Done(Struct, frozen=True):
    """The end of a prompt."""

    stop: str
    usage: Usage


class Failed(Struct, frozen=True):
    """The prompt has no answer."""

    error: Exception


Item: TypeAlias = TextDelta | ThinkingDelta | ToolCall | ProgramCall | Done | Failed


class Prompt:
    """Collects updates until they are read; texts that nobody has read yet are joined."""

    def __init__(self, turn: Turn, cost: float | None) -> None:
        self.turn, self._cost_before = turn, cost
        self.dropped = self.has_ended = False
        """It was stopped: nothing of it counts any longer."""
        self.items: deque[Item] = deque()
        self.changed = asyncio.Event()
        self.moved = asyncio.Event()
        """Set when a call of it begins to run or ends, or it is stopped: requests may wait for that."""
        self.changed_calls = asyncio.Event()
        """Set when a call begins."""
        self.calls: dict[str, ProgramCall] = {}
        """By the program's id."""
        self.ours: dict[str, ProgramCall] = {}
        """By our id."""
        self.cost = cost
        self._chars = self._changed = 0
        self._message = ""
        """The id of the message whose text came last; empty after a call."""
        self._used: Usage | None = None
        """What its model used, if it says so with its texts."""
        self._tasks = set[asyncio.Task[None]]()

    @property
    def has_waiting_calls(self) -> bool:
        """True if a call will run soon."""
        return any(not each.ended and not each.has_run for each in self.ours.values())

    def put(self, item: Item) -> None:
        last = self.items[-1] if self.items else None
        if isinstance(item, TextDelta) and isinstance(last, TextDelta):
            self.items[-1] = TextDelta(last.text + item.text)
        elif isinstance(item, ThinkingDelta) and isinstance(last, ThinkingDelta):
            self.items[-1] = ThinkingDelta(last.text + item.text)
        else:
            self.items.append(item)
            if isinstance(last, ProgramCall):  # that it has gone on says that nothing more follows about it
                last.changed.set()
        self.changed.set()

    def take(self, update: object, workdir: str) -> bool:
        """Take an update. False if the program floods."""
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=""), field_meta={"usage": dict() as used}):
                self._used = _add_usage(self._used, used)
            case AgentMessageChunk(content=TextContentBlock(text=text), message_id=message) if text:
                self._chars += len(text)
                begins = bool(self._message and message and message != self._message)
                self._message = message or self._message
                self.put(TextDelta(f"\n\n{text}" if begins else text))
            case AgentThoughtChunk(content=TextContentBlock(text=text)) if text:
                self._chars += len(text)
                self.put(ThinkingDelta(text))
            case ToolCallStart() | ToolCallProgress():
                self.take_call(update, workdir)
            case AgentPlanUpdate(entries=entries):
                self._take_plan([(each.content, each.status) for each in entries])
            case UsageUpdate(cost=cost) if cost is not None and cost.currency.upper() == "USD":
                self.cost = cost.amount
        return self._chars <= MAX_TEXT_CHARS and self._changed <= MAX_CHANGE_CHARS and len(self.calls) <= MAX_CALLS

    def take_call(self, update: "ToolCallStart | ToolCallProgress | WireCall", workdir: str) -> ProgramCall:
        """The call, with what is new about it. One that was not announced begins now."""
        found = self.calls.get(update.tool_call_id) or self.begin({}, update.tool_call_id)
        found.kind, found.title = update.kind or found.kind, update.title or found.title
        if isinstance(update.raw_input, dict) and update.raw_input:
            found.input = update.raw_input
        places = (update.locations or ())[:MAX_FILES]
        found.files = [display_path(each.path, workdir) for each in places] or found.files
        for each in update.content or ():
            if isinstance(each, FileEditToolCallContent):
                found.diffs[each.path] = each.old_text or "", each.new_text
                self._changed += len(each.old_text or "") + len(each.new_text)
        if not found.taken:
            found.args = _describe(found, workdir)
        # what it says when it asks for permission is no output
        text = _text_of(update) if isinstance(update, ToolCallStart | ToolCallProgress) else ""
        found.is_complete = found.is_complete or update.status == "in_progress"
        if update.status in ("completed", "failed"):
            found.end(failed=update.status == "failed", text=text)
        else:
            found.output = text or found.output
        found.changed.set()
        return found

    def begin(self, args: dict[str, Json], id: str = "") -> ProgramCall:
        found, self._message = ProgramCall(args, self.moved), ""
        self.calls[id or found.id] = self.ours[found.id] = found
        self.put(found)
        self.changed_calls.set()
        return found

    async def wait_for_call(self, seconds: float) -> None:
        """Wait until a call runs or will run, at most for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.has_waiting_calls and not self.dropped:
                    self.changed_calls.clear()
                    await self.changed_calls.wait()

    def _take_plan(self, entries: list[tuple[str, str]]) -> None:
        """The plan as our todo list: the whole list each time."""
        todos: list[Json] = [
            {"id": str(n), "content": text[:MAX_PLAN_CHARS], "status": status}
            for n, (text, status) in enumerate(entries[:MAX_PLAN], 1)
        ]
        if todos:
            self.put(ToolCall(os.urandom(6).hex(), "todo", {"todos": todos}))

    def finish(self, answer: PromptResponse) -> None:
        self.has_ended = True
        self.end_calls("")
        self.put(Done(answer.stop_reason, self._usage(answer)))

    def fail(self, error: Exception) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        self.end_calls("the program ended; whether this took effect is not known")
        self.put(Failed(error))

    def drop(self) -> None:
        self.dropped = True
        self.items.clear()
        self.end_calls("stopped")
        self.moved.set()
        for task in self._tasks:
            task.cancel()

    @contextmanager
    def owns(self, task: "asyncio.Task[None]") -> Iterator[None]:
        """A stop cancels the task."""
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def end_calls(self, why: str) -> None:
        for each in self.ours.values():
            each.end(failed=bool(why), text=why)

    def _usage(self, answer: PromptResponse) -> Usage:
        cost = None if self.cost is None else max(0.0, self.cost - (self._cost_before or 0.0))
        used = answer.usage
        if used is None:
            return structs.replace(self._used or _read_quota(answer.field_meta), cost=cost)
        cached, written = used.cached_read_tokens or 0, used.cached_write_tokens or 0
        return Usage(
            input=used.input_tokens + cached + written,
            output=used.output_tokens + (used.thought_tokens or 0),
            cached=cached,
            cache_write=written,
            reasoning=used.thought_tokens or 0,
            cost=cost,
        )


def _add_usage(before: Usage | None, used: dict[str, Any]) -> Usage:
    """Qwen Code says what each answer of its model used."""
    known = before or Usage()
    return structs.replace(
        known,
        input=known.input + _count(used.get("inputTokens")),
        output=known.output + _count(used.get("outputTokens")) + _count(used.get("thoughtTokens")),
        cached=known.cached + _count(used.get("cachedReadTokens")),
        reasoning=known.reasoning + _count(used.get("thoughtTokens")),
    )


def _read_quota(meta: object) -> Usage:
    """Gemini CLI says it at the end."""
    match meta:
        case {"quota": {"token_count": dict() as used}}:
            return Usage(input=_count(used.get("input_tokens")), output=_count(used.get("output_tokens")))
    return Usage()


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _describe(found: ProgramCall, workdir: str) -> dict[str, Json]:
    """The arguments of our call: what people see, and what the program said about it."""
    title = found.title.strip().strip("`").replace(f"{workdir}/", "")
    verb = _VERBS.get(found.kind, title or "Use a tool")
    if found.files and " " not in title:  # the name of a tool
        title = f"{verb} {', '.join(found.files)}"
    command = found.find_command() if found.kind in ("execute", "other") else ""
    args: dict[str, Json] = {"title": format_excerpt(command or title or verb, 400)[1:-1], "kind": found.kind}
    if command:
        args["command"] = command[:MAX_OUTPUT_CHARS]
    elif found.input:
        args["input"] = _shorten(found.input)
    if found.files:
        args["files"] = [*found.files]
    return args


def _find_command(given: object) -> str:
    """A command that is a text, the words of one, or those of a shell that runs it."""
    if not isinstance(given, list):
        return given if isinstance(given, str) else ""
    words = [str(each) for each in given]
    is_shell = len(words) == SHELL_WORDS and words[0].endswith("sh") and words[1] in ("-c", "-lc")
    return words[-1] if is_shell else shlex.join(words)


def _shorten(value: Any, depth: int = 4) -> Json:
    """What the program gave its tool, at a size for the journal."""
    if isinstance(value, dict) and depth:
        return {str(key)[:100]: _shorten(each, depth - 1) for key, each in list(value.items())[:50]}
    if isinstance(value, list) and depth:
        return [_shorten(each, depth - 1) for each in value[:50]]
    if isinstance(value, bool | int | float | None):
        return value
    text = value if isinstance(value, str) else "..."
    return text if len(text) <= MAX_INPUT_CHARS else f"{text[:MAX_INPUT_CHARS]} ..."


def _text_of(update: "ToolCallStart | ToolCallProgress") -> str:
    texts = []
    for each in update.content or ():
        if isinstance(each, ContentToolCallContent) and isinstance(each.content, TextContentBlock):
            texts.append(each.content.text)
    raw = update.raw_output
    if not texts and isinstance(raw, dict):
        raw = next((raw[name] for name in ("aggregated_output", "output", "stdout") if raw.get(name)), "")
    if not texts and isinstance(raw, str):
        texts.append(raw)
    return "\n".join(texts)[-MAX_OUTPUT_CHARS:]


def describe_diffs(found: ProgramCall, workdir: str) -> tuple[str, str]:
    """The changes of a call as a unified diff, and as one line for each file."""
    diffs, lines = [], []
    for path, (old, new) in found.diffs.items():
        name = display_path(path, workdir)
        diff = diff_texts(old, new, before=name if old else "", after=name)
        if diff.text:
            diffs.append(diff.text)
            lines.append(f"{'updated' if old else 'created'} {name} (+{diff.added} -{diff.removed})")
    return "\n".join(diffs), "\n".join(lines)
