"""What keeps a turn from going in circles: counts over what it said, and the words it is then told. Pure."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from alipes.kernel.messages import Message, Text, ToolCall, ToolResult

WARN_AFTER = 3
"""An identical call that failed this often is not run again."""
GIVE_UP_AFTER = 5
MAX_CUTS = 3

SUM_UP = Message(
    "notice",
    (
        Text(
            "The limit of steps for this turn is reached and no tool can be called any more. "
            "Say in a few sentences what was done, what was found, and what is left to do."
        ),
    ),
)
GO_ON = Message(
    "notice",
    (Text("Your answer was cut off at the output limit. Go on exactly where you stopped; repeat nothing."),),
)
SMALLER = Message(
    "notice",
    (
        Text(
            "Your answer was cut off at the output limit in the middle of a tool call, so that call was not "
            "run. Make it again in smaller pieces, for instance a long file in several writes."
        ),
    ),
)
BRIEFLY = Message(
    "notice",
    (Text("The output limit was reached before you said anything. Think less this time, and answer."),),
)
CUTS = (GO_ON, SMALLER, BRIEFLY)

Effect: TypeAlias = Callable[[ToolCall], Literal["read", "write"]]


def failures(said: tuple[Message, ...], effect: Effect) -> dict[bytes, int]:
    """How often each call failed in a row, by `sameness`.

    A write that succeeded clears all counts: the world changed, so trying again makes sense.
    """
    counts: dict[bytes, int] = {}
    calls: dict[str, ToolCall] = {}
    for message in said[_last_change(said, effect) :]:
        calls.update((call.id, call) for call in message.calls)
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in calls:
                _count(counts, calls[part.call_id], part, effect)
    return counts


def _last_change(said: tuple[Message, ...], effect: Effect) -> int:
    """Where the calls stand of which a write last succeeded: nothing before them counts."""
    for place in range(len(said) - 1, 0, -1):
        writes = {call.id for call in said[place - 1].calls if effect(call) == "write"}
        if any(
            isinstance(part, ToolResult) and part.outcome == "ok" and part.call_id in writes
            for part in said[place].parts
        ):
            return place - 1
    return 0


def _count(counts: dict[bytes, int], call: ToolCall, result: ToolResult, effect: Effect) -> None:
    if result.outcome in ("failed", "denied"):
        key = sameness(call)
        counts[key] = counts.get(key, 0) + 1
    elif result.outcome == "ok" and effect(call) == "write":
        counts.clear()
    elif counts:
        counts.pop(sameness(call), None)


def sameness(call: ToolCall) -> bytes:
    """Equal for calls of the same tool with the same arguments, in whatever order they were given."""
    return msgspec.json.encode((call.name, call.args, call.raw), order="sorted")


def refusals(calls: tuple[ToolCall, ...], counts: Mapping[bytes, int]) -> dict[str, ToolResult]:
    """By id, the calls that are answered instead of run, because they failed too often."""
    if max(counts.values(), default=0) < WARN_AFTER:
        return {}
    return {
        call.id: ToolResult(
            call.id,
            f"not run: this same call has failed {count} times in a row. "
            "Do something else, or say what stands in the way.",
            "failed",
        )
        for call in calls
        if (count := counts.get(sameness(call), 0)) >= WARN_AFTER
    }


def stuck(calls: tuple[ToolCall, ...], counts: Mapping[bytes, int]) -> str:
    """The sentence that ends a turn which repeats itself; empty while there is hope."""
    if max(counts.values(), default=0) < GIVE_UP_AFTER:
        return ""
    for call in calls:
        if (count := counts.get(sameness(call), 0)) >= GIVE_UP_AFTER:
            return f"given up: the model made the same failing call to {call.name} {count} times in a row"
    return ""


def cuts(said: tuple[Message, ...]) -> int:
    """How often this turn's output was cut off at the limit."""
    return sum(message in CUTS for message in said)


def after_cut(message: Message) -> tuple[Message, Message]:
    """A truncated answer without its half call, and the notice that asks for the rest."""
    kept = Message("assistant", tuple(p for p in message.parts if not (isinstance(p, ToolCall) and p.raw)))
    if len(kept.parts) < len(message.parts):
        return kept, SMALLER
    return kept, GO_ON if kept.text.strip() else BRIEFLY


def blank(message: Message) -> bool:
    """True for an answer that says nothing and asks for nothing."""
    return not message.calls and not message.text.strip()
