"""How a turn ended, as OpenAI's clients are told: the words, the calls, why it ended, what failed. Pure."""

import copy
from collections import OrderedDict
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.agent import limits
from alipes.kernel.errors import ContextTooLong, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.messages import Json, Message, Text, Thinking, ToolCall
from alipes.kernel.turns import (
    Event,
    Said,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Turn,
    TurnEnded,
    Usage,
)
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.web.endpoint import PLATFORM, Problem

MOST = 1000
"""Turns whose mishap is remembered: whoever asks does so at once."""


class Mishaps:
    def __init__(self) -> None:
        self._last: OrderedDict[str, ProviderError] = OrderedDict()

    def listen(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_failed)

    async def request_failed(self, error: ProviderError, again: bool, turn: Turn) -> None:
        if again or turn.inbound.address.platform != PLATFORM:
            return
        self._last[turn.id] = copy.copy(error)  # as it was raised, it holds on to the whole turn
        while len(self._last) > MOST:
            self._last.popitem(last=False)

    def take(self, turn: str) -> ProviderError | None:
        """The last one, once."""
        return self._last.pop(turn, None)


Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
BREAK = "\n\n"
"""Between two messages of one turn, where the client knows only one."""
_ONCE = {"x-should-retry": "false"}
"""Something was done already: a client must not repeat it by itself."""


class Told:
    """What a turn has told, folded from its events."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.ended: TurnEnded | None = None

    def hear(self, event: Event) -> None:
        match event:
            case Said(message):
                self.said.append(message)
            case TurnEnded():
                self.ended = event


class Outcome(Struct, frozen=True):
    texts: tuple[tuple[int, str], ...]
    """What was said, each with its place among the model's messages."""
    thinking: str
    calls: tuple[ToolCall, ...]
    """Those that the client is to run."""
    usage: Usage
    finish: Finish
    refusal: str = ""
    stopped: bool = False
    trouble: Problem | None = None

    @property
    def text(self) -> str:
        return BREAK.join(text for _, text in self.texts)

    def message(self, text: str | None = None) -> Message:
        """The answer as the client has it."""
        words = self.text if text is None else text
        return Message("assistant", (*((Text(words),) if words else ()), *self.calls))


def outcome(told: Told, offered: frozenset[str], mishap: ProviderError | None = None) -> Outcome:
    """`offered`: the names of the client's own tools."""
    spoken = [message for message in told.said if message.role == "assistant"]
    ended = told.ended or TurnEnded("", "failed", "the answer broke off")
    calls = _handed(told.said, ended, offered)
    refused = ended.ending == "failed" and isinstance(mishap, Refused)
    finish = _finish(ended, told.said, calls, refused)
    return Outcome(
        texts=tuple((place, each.text) for place, each in enumerate(spoken) if each.text.strip()),
        thinking=BREAK.join(
            part.text for each in spoken for part in each.parts if isinstance(part, Thinking) and part.text
        ),
        calls=calls,
        usage=ended.usage or Usage(),
        finish=finish or "stop",
        refusal=ended.detail if refused else "",
        stopped=ended.ending == "stopped",
        trouble=None if finish else _trouble(ended, mishap, acted=any(each.calls for each in spoken)),
    )


def _handed(said: list[Message], ended: TurnEnded, offered: frozenset[str]) -> tuple[ToolCall, ...]:
    """The calls with which the turn ended: it did not go on by itself, so they are the client's to run."""
    if ended.ending != "answered" or not said or said[-1].role != "tool":
        return ()
    calls = next((message.calls for message in reversed(said) if message.calls), ())
    return tuple(call for call in calls if call.name in offered)


def _finish(
    ended: TurnEnded, said: list[Message], calls: tuple[ToolCall, ...], refused: bool
) -> Finish | None:
    """None: no answer, but trouble."""
    match ended.ending:
        case "answered" | "steered":
            return "tool_calls" if calls else "stop"
        case "out_of_steps":
            return "length"
        case "failed" if refused:
            return "content_filter"
        case "failed" if limits.cuts(tuple(said)) >= limits.MAX_CUTS:
            return "length"
    return None


def _trouble(ended: TurnEnded, mishap: ProviderError | None, *, acted: bool) -> Problem:
    once = _ONCE if acted else {}
    if ended.ending == "stopped":
        return Problem(409, f"the turn was stopped: {ended.detail}", code="stopped", headers=_ONCE)
    match mishap:
        case ContextTooLong():
            return Problem(400, ended.detail, code="context_length_exceeded")
        case OutOfCredit():
            return Problem(429, ended.detail, code="insufficient_quota", headers=_ONCE)
        case Transient():
            return Problem(503, ended.detail, code="model_unavailable", headers=once)
        case ProviderError():
            return Problem(502, ended.detail, code="model_failed", headers=_ONCE)
    return Problem(500, ended.detail or "the turn failed", code="turn_failed", headers=_ONCE)


LONGEST = 2000
"""Letters of a tool's result that are told; the model has all of it."""
TOOL = "alipes.tool"
"""The event that tells of the agent's own tools; clients of OpenAI's need not know it."""


class Speech:
    """One message after the other. What was sent cannot be taken back."""

    def __init__(self) -> None:
        self.current = ""
        """What was sent of the message that is not whole yet."""

    def hear(self, delta: TextDelta) -> str:
        self.current += delta.text
        return delta.text

    def complete(self, text: str) -> str:
        """The message is whole: what of it was not sent. The bus may have lost some."""
        current, self.current = self.current, ""
        if text.startswith(current):
            return text[len(current) :]
        return "" if text.strip() == current.strip() else text

    def drop(self) -> bool:
        """The message was taken back; True when some of it was sent."""
        current, self.current = self.current, ""
        return bool(current)


def progress(event: Event, offered: frozenset[str]) -> dict[str, Json] | None:
    """What is told of a tool of the agent's; None for all else, and for the client's own tools."""
    match event:
        case ToolStarted(call) if call.name not in offered:
            return {"status": "started", "call_id": call.id, "name": call.name, "arguments": dict(call.args)}
        case ToolProgress(call_id, text):
            return {"status": "progress", "call_id": call_id, "text": _cut(text)}
        case ToolFinished(call, result, seconds) if call.name not in offered:
            told: dict[str, Json] = {"status": "finished", "call_id": call.id, "name": call.name}
            return {
                **told,
                "outcome": result.outcome,
                "text": _cut(result.text),
                "seconds": round(seconds, 3),
            }
    return None


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
