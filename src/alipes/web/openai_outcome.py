"""How a turn ended, as OpenAI's clients are told: the words, the calls, why it ended, what failed. Pure."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.agent import guards
from alipes.kernel.errors import ContextTooLong, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.messages import Message, Text, Thinking, ToolCall
from alipes.kernel.turns import Event, Said, TurnEnded, Usage
from alipes.web.endpoints import Problem

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
        case "failed" if guards.cuts(tuple(said)) >= guards.MAX_CUTS:
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
