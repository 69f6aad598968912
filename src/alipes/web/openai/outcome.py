"""The outcome of a turn for OpenAI clients: text, tool calls, finish reason, error."""

import copy
from collections import OrderedDict
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.agent import loop
from alipes.kernel.errors import ContextTooLong, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.messages import Json, Message, Text, Thinking, ToolCall
from alipes.kernel.turns import Event, Said, TextDelta, ToolFinished, ToolProgress, ToolStarted, Turn, TurnEnded, Usage
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.web.endpoint import PLATFORM, HttpProblem

MAX_ERRORS = 1000
"""Turns whose last provider error is kept; it is asked for at once."""


class ProviderErrors:
    def __init__(self) -> None:
        self._last: OrderedDict[str, ProviderError] = OrderedDict()

    def register(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_failed)

    async def request_failed(self, error: ProviderError, again: bool, turn: Turn) -> None:
        if again or turn.inbound.address.platform != PLATFORM:
            return
        self._last[turn.id] = copy.copy(error)  # without its traceback, which would keep the whole turn alive
        while len(self._last) > MAX_ERRORS:
            self._last.popitem(last=False)

    def take(self, turn: str) -> ProviderError | None:
        """Remove and return the last error of a turn."""
        return self._last.pop(turn, None)


Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
MESSAGE_SEPARATOR = "\n\n"
"""Between two messages of one turn, where the client sees only one."""
_DO_NOT_RETRY = {"x-should-retry": "false"}
"""The turn may have done something already: clients must not retry automatically."""


class TurnRecord:
    """The messages and the ending of a turn, collected from its events."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.ended: TurnEnded | None = None

    def add(self, event: Event) -> None:
        match event:
            case Said(message):
                self.said.append(message)
            case TurnEnded():
                self.ended = event


class OpenAiOutcome(Struct, frozen=True):
    texts: tuple[tuple[int, str], ...]
    """Texts with their index among the model's messages."""
    thinking: str
    calls: tuple[ToolCall, ...]
    """Calls that the client has to run."""
    usage: Usage
    finish: Finish
    refusal: str = ""
    stopped: bool = False
    problem: HttpProblem | None = None

    @property
    def text(self) -> str:
        return MESSAGE_SEPARATOR.join(text for _, text in self.texts)

    def message(self, text: str | None = None) -> Message:
        """The answer as the client received it."""
        body = self.text if text is None else text
        return Message("assistant", (*((Text(body),) if body else ()), *self.calls))


def build_outcome(record: TurnRecord, offered: frozenset[str], error: ProviderError | None = None) -> OpenAiOutcome:
    """`offered`: names of the client's tools."""
    answers = [message for message in record.said if message.role == "assistant"]
    ended = record.ended or TurnEnded("", "failed", "the answer was cut off")
    calls = _client_calls(record.said, ended, offered)
    refused = ended.ending == "failed" and isinstance(error, Refused)
    finish = _finish(ended, record.said, calls, refused)
    return OpenAiOutcome(
        texts=tuple((place, each.text) for place, each in enumerate(answers) if each.text.strip()),
        thinking=MESSAGE_SEPARATOR.join(
            part.text for each in answers for part in each.parts if isinstance(part, Thinking) and part.text
        ),
        calls=calls,
        usage=ended.usage or Usage(),
        finish=finish or "stop",
        refusal=ended.detail if refused else "",
        stopped=ended.ending == "stopped",
        problem=None if finish else _find_problem(ended, error, acted=any(each.calls for each in answers)),
    )


def _client_calls(said: list[Message], ended: TurnEnded, offered: frozenset[str]) -> tuple[ToolCall, ...]:
    """The calls that ended the turn: the client has to run them."""
    if ended.ending != "answered" or not said or said[-1].role != "tool":
        return ()
    calls = next((message.calls for message in reversed(said) if message.calls), ())
    return tuple(call for call in calls if call.name in offered)


def _finish(ended: TurnEnded, said: list[Message], calls: tuple[ToolCall, ...], refused: bool) -> Finish | None:
    """None if the turn failed."""
    match ended.ending:
        case "answered" | "steered":
            return "tool_calls" if calls else "stop"
        case "out_of_steps":
            return "length"
        case "failed" if refused:
            return "content_filter"
        case "failed" if loop.count_cutoffs(tuple(said)) >= loop.MAX_CUTOFFS:
            return "length"
    return None


def _find_problem(ended: TurnEnded, error: ProviderError | None, *, acted: bool) -> HttpProblem:
    once = _DO_NOT_RETRY if acted else {}
    if ended.ending == "stopped":
        return HttpProblem(409, f"the turn was stopped: {ended.detail}", code="stopped", headers=_DO_NOT_RETRY)
    match error:
        case ContextTooLong():
            return HttpProblem(400, ended.detail, code="context_length_exceeded")
        case OutOfCredit():
            return HttpProblem(429, ended.detail, code="insufficient_quota", headers=_DO_NOT_RETRY)
        case Transient():
            return HttpProblem(503, ended.detail, code="model_unavailable", headers=once)
        case ProviderError():
            return HttpProblem(502, ended.detail, code="model_failed", headers=_DO_NOT_RETRY)
    return HttpProblem(500, ended.detail or "the turn failed", code="turn_failed", headers=_DO_NOT_RETRY)


MAX_RESULT_CHARS = 2000
"""Characters of a tool result that are sent to the client; the model sees all of it."""
TOOL_EVENT = "alipes.tool"
"""Event about the agent's own tools, an extension of OpenAI's events."""


class MessageText:
    """Text of the current message as far as it was sent. Sent text cannot be retracted."""

    def __init__(self) -> None:
        self.current = ""
        """The part of the unfinished message that was sent."""

    def add(self, delta: TextDelta) -> str:
        self.current += delta.text
        return delta.text

    def complete(self, text: str) -> str:
        """The message is complete: return what was not sent yet. The bus may have dropped deltas."""
        current, self.current = self.current, ""
        if text.startswith(current):
            return text[len(current) :]
        return "" if text.strip() == current.strip() else text

    def drop(self) -> bool:
        """The message was retracted; True if some of it was sent."""
        current, self.current = self.current, ""
        return bool(current)


def tool_progress(event: Event, offered: frozenset[str]) -> dict[str, Json] | None:
    """Event data about one of the agent's tools; None for other events and for the client's tools."""
    match event:
        case ToolStarted(call) if call.name not in offered:
            return {"status": "started", "call_id": call.id, "name": call.name, "arguments": dict(call.args)}
        case ToolProgress(call_id, text):
            return {"status": "progress", "call_id": call_id, "text": _cut(text)}
        case ToolFinished(call, result, seconds) if call.name not in offered:
            record: dict[str, Json] = {"status": "finished", "call_id": call.id, "name": call.name}
            return {**record, "outcome": result.outcome, "text": _cut(result.text), "seconds": round(seconds, 3)}
    return None


def _cut(text: str) -> str:
    return text if len(text) <= MAX_RESULT_CHARS else text[:MAX_RESULT_CHARS] + "…"
