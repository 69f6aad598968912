"""Completes a transcript: answers calls that a crash or a stop left open. Pure functions."""

from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeAlias

from msgspec import structs

from alipes.kernel.messages import Message, Part, ToolCall, ToolResult
from alipes.kernel.turns import Turn

CUT_OFF = "Cut off when alipes quit; result unknown. Check before running it again."
INTERRUPTED = "Interrupted; result unknown. Check before running it again."
REASONS = {"stopped": "Stopped", "failed": "The turn failed"}

ToolResults: TypeAlias = Mapping[str, ToolResult | None]


def unanswered_calls(messages: tuple[Message, ...], *, cut_off: bool = False) -> tuple[ToolCall, ...]:
    """The calls of the last assistant message without a result. `cut_off`: also those whose result is unknown."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            return tuple(call for call in message.calls if call.id not in answered)
        results = (part for part in message.parts if isinstance(part, ToolResult))
        answered.update(part.call_id for part in results if not (cut_off and part.outcome == "unknown"))
    return ()


def count_calls(messages: tuple[Message, ...], results: Collection[str]) -> tuple[int, int]:
    """The calls of a turn, and how many are done. `results`: ids of calls whose result is in no message yet."""
    total, open_calls = sum(len(message.calls) for message in messages), unanswered_calls(messages, cut_off=True)
    return total, total - sum(call.id not in results for call in open_calls)


def known_results(
    calls: tuple[ToolCall, ...], acts: ToolResults, effect: Callable[[ToolCall], Literal["read", "write"]]
) -> dict[str, ToolResult]:
    """By id, the calls that must not run now: finished ones, and interrupted writes.

    Any other call never started, or only reads: it may run.
    """
    known: dict[str, ToolResult] = {}
    for call in calls:
        if call.id not in acts:
            continue
        result = acts[call.id]
        if result is not None:
            known[call.id] = result
        elif effect(call) == "write":
            known[call.id] = ToolResult(call.id, CUT_OFF, "unknown")
    return known


def close_transcript(said: tuple[Message, ...], acts: ToolResults, reason: str = "stopped") -> tuple[Message, ...]:
    """The messages that complete the history of a turn that ended early.

    `reason` is the turn's ending, or a clause such as "the person left".
    """
    calls = unanswered_calls(said)
    if not calls:
        return ()
    why = REASONS.get(reason, reason)
    return (Message("tool", tuple(_closing_result(call, acts, why) for call in calls)),)


def _closing_result(call: ToolCall, acts: ToolResults, why: str) -> ToolResult:
    if (result := acts.get(call.id)) is not None:
        return result
    if call.id in acts:
        return ToolResult(call.id, f"{why} while running; may be partly done.", "cancelled")
    return ToolResult(call.id, f"{why} before this call started.", "cancelled")


def repair_messages(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """Results for every unanswered call, to be said after `history`."""
    calls = unanswered_calls(history)
    if not calls:
        return ()
    return (Message("tool", tuple(ToolResult(call.id, INTERRUPTED, "unknown") for call in calls)),)


def opening_messages(turn: Turn, said: tuple[Message, ...]) -> tuple[Message, ...]:
    """The first messages of a turn: repairs of the history, then the person's message.

    Empty once that message is said; later user messages were steered into the turn.
    """
    first = turn.inbound.message
    if any(message.role == first.role for message in said):
        return ()
    return (*repair_messages((*turn.history, *said)), first)


def with_unique_call_ids(message: Message, taken: set[str]) -> Message:
    """The message with call ids that are unique in the conversation.

    Some servers number their calls from one in every answer.
    """
    seen = set(taken)
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            fresh, number = part.id or "call", 1
            while fresh in seen:
                number += 1
                fresh = f"{part.id or 'call'}_{number}"
            seen.add(fresh)
            part = part if fresh == part.id else structs.replace(part, id=fresh)
        parts.append(part)
    return Message(message.role, tuple(parts))
