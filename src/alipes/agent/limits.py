"""Detects loops and truncation in a turn, and holds the notices the model then gets. Pure functions."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from alipes.kernel.messages import Message, Text, ToolCall, ToolResult

WARN_AFTER = 3
"""An identical call that failed this often is not run again."""
GIVE_UP_AFTER = 5
MAX_CUTOFFS = 3

SUMMARISE = Message(
    "notice",
    (
        Text(
            "The step limit of this turn is reached and no more tools can be called. "
            "In a few sentences, state what was done, what was found, and what is left to do."
        ),
    ),
)
CONTINUE = Message(
    "notice",
    (Text("Your answer was cut off at the output limit. Continue exactly where you stopped; repeat nothing."),),
)
SMALLER_CALLS = Message(
    "notice",
    (
        Text(
            "Your answer was cut off at the output limit in the middle of a tool call, so the call was not "
            "run. Make it again in smaller pieces, for example a long file in several writes."
        ),
    ),
)
THINK_LESS = Message(
    "notice", (Text("The output limit was reached before you said anything. Think less this time, and answer."),)
)
CUTOFF_NOTICES = (CONTINUE, SMALLER_CALLS, THINK_LESS)

Effect: TypeAlias = Callable[[ToolCall], Literal["read", "write"]]


def count_failures(said: tuple[Message, ...], effect: Effect) -> dict[bytes, int]:
    """How often each call failed in a row, by `call_identity`.

    A successful write resets all counts: the state changed, so trying again makes sense.
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
    """The position of the last calls with a successful write: nothing before them counts."""
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
        key = call_identity(call)
        counts[key] = counts.get(key, 0) + 1
    elif result.outcome == "ok" and effect(call) == "write":
        counts.clear()
    elif counts:
        counts.pop(call_identity(call), None)


def call_identity(call: ToolCall) -> bytes:
    """Equal for calls of the same tool with the same arguments in any order."""
    return msgspec.json.encode((call.name, call.args, call.raw), order="sorted")


def refuse_repeated(calls: tuple[ToolCall, ...], counts: Mapping[bytes, int]) -> dict[str, ToolResult]:
    """By id, the calls that are refused because they failed too often."""
    if max(counts.values(), default=0) < WARN_AFTER:
        return {}
    return {
        call.id: ToolResult(
            call.id,
            f"not run: this same call has failed {count} times in a row. "
            "Try something else, or say what is blocking you.",
            "failed",
        )
        for call in calls
        if (count := counts.get(call_identity(call), 0)) >= WARN_AFTER
    }


def stuck_reason(calls: tuple[ToolCall, ...], counts: Mapping[bytes, int]) -> str:
    """The error that ends a turn which repeats itself; empty if it does not."""
    if max(counts.values(), default=0) < GIVE_UP_AFTER:
        return ""
    for call in calls:
        if (count := counts.get(call_identity(call), 0)) >= GIVE_UP_AFTER:
            return f"gave up: the model made the same failing call to {call.name} {count} times in a row"
    return ""


def count_cutoffs(said: tuple[Message, ...]) -> int:
    """How often this turn's output was cut off at the limit."""
    return sum(message in CUTOFF_NOTICES for message in said)


def split_truncated(message: Message) -> tuple[Message, Message]:
    """A truncated answer without its incomplete call, and the notice that asks for the rest."""
    kept = Message("assistant", tuple(p for p in message.parts if not (isinstance(p, ToolCall) and p.raw)))
    if len(kept.parts) < len(message.parts):
        return kept, SMALLER_CALLS
    return kept, CONTINUE if kept.text.strip() else THINK_LESS


def is_blank(message: Message) -> bool:
    """True for an answer without text and calls."""
    return not message.calls and not message.text.strip()
