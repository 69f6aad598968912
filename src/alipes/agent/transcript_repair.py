"""Makes a transcript whole again: what is answered for calls that a crash or a stop left open. Pure."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import structs

from alipes.kernel.messages import Message, Part, ToolCall, ToolResult
from alipes.kernel.turns import Turn

DIED = "the process died during this call; its effect is unknown; check before repeating"
LOST = "the call was interrupted; its effect is unknown; check before repeating"
REASONS = {"stopped": "the turn was stopped", "failed": "the turn failed"}

Acts: TypeAlias = Mapping[str, ToolResult | None]


def unanswered(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    """The calls of the last assistant message that no later message answers."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            return tuple(call for call in message.calls if call.id not in answered)
        answered.update(part.call_id for part in message.parts if isinstance(part, ToolResult))
    return ()


def recall(
    calls: tuple[ToolCall, ...], acts: Acts, effect: Callable[[ToolCall], Literal["read", "write"]]
) -> dict[str, ToolResult]:
    """By id, the calls that must not be run now: finished ones, and writes that were cut off half-way.

    What is missing here was never begun, or only reads: it may be run.
    """
    known: dict[str, ToolResult] = {}
    for call in calls:
        if call.id not in acts:
            continue
        result = acts[call.id]
        if result is not None:
            known[call.id] = result
        elif effect(call) == "write":
            known[call.id] = ToolResult(call.id, DIED, "unknown")
    return known


def close(said: tuple[Message, ...], acts: Acts, reason: str = "stopped") -> tuple[Message, ...]:
    """The messages that whoever ends a turn early writes after `said`, so that its history is whole.

    `reason` is the turn's ending, or a clause such as "the person left".
    """
    calls = unanswered(said)
    if not calls:
        return ()
    why = REASONS.get(reason, reason)
    return (Message("tool", tuple(_last_word(call, acts, why) for call in calls)),)


def _last_word(call: ToolCall, acts: Acts, why: str) -> ToolResult:
    if (result := acts.get(call.id)) is not None:
        return result
    if call.id in acts:
        return ToolResult(call.id, f"{why} while this call ran; its effect may be partial", "cancelled")
    return ToolResult(call.id, f"{why} before this call began", "cancelled")


def mend(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """What must be said after `history` before anything else: an answer to every call that has none."""
    calls = unanswered(history)
    if not calls:
        return ()
    return (Message("tool", tuple(ToolResult(call.id, LOST, "unknown") for call in calls)),)


def opening(turn: Turn, said: tuple[Message, ...]) -> tuple[Message, ...]:
    """What a turn says before anything else: the person's message, after what `mend` has to say.

    Nothing once that message is said; it comes first, and later ones were steered into the turn.
    """
    first = turn.inbound.message
    if any(message.role == first.role for message in said):
        return ()
    return (*mend((*turn.history, *said)), first)


def distinct(message: Message, taken: set[str]) -> Message:
    """The message with call ids that are new in the conversation: results are found by them.

    Some servers number their calls from one again in every answer.
    """
    seen = set(taken)
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            fresh = _fresh(part.id or "call", seen)
            seen.add(fresh)
            part = part if fresh == part.id else structs.replace(part, id=fresh)
        parts.append(part)
    return Message(message.role, tuple(parts))


def _fresh(name: str, seen: set[str]) -> str:
    fresh, number = name, 1
    while fresh in seen:
        number += 1
        fresh = f"{name}_{number}"
    return fresh
