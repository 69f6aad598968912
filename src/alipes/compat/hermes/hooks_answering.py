"""From what a Hermes callback returned to what the native hook answers, one function each.

What has none of the documented shapes says nothing: observers return all sorts of things.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.hooks_offering import Known
from alipes.hooks.specs import Admission, Verdict
from alipes.kernel.messages import ToolResult


def nothing(_bridge: Bridge, _known: Known, _answer: Any) -> None:
    """Of an observer."""


def ruling(_bridge: Bridge, _known: Known, answer: Any) -> Verdict | None:
    """`pre_tool_call`: block, which needs a message, or approve: a person is asked."""
    match answer:
        case {"action": "block", "message": str(message)} if message:
            return Verdict("deny", message)
        case {"action": "approve"}:
            why = str(answer.get("message") or "a plugin wants it to be approved")
            key = answer.get("rule_key")
            return Verdict("ask", f"{why} ({key})" if key else why)
    return None


def admission(_bridge: Bridge, _known: Known, answer: Any) -> Admission | None:
    """`pre_gateway_dispatch`: skip, rewrite with a text, or allow."""
    match answer:
        case {"action": "skip"}:
            return Admission("drop")
        case {"action": "rewrite", "text": str(text)}:
            return Admission("rewrite", text)
        case {"action": "allow"}:
            return Admission("take")
    return None


def going_on(_bridge: Bridge, _known: Known, answer: Any) -> Verdict | None:
    """`pre_verify`: the turn goes on, and the model is told why."""
    match answer:
        case {"action": "continue", "message": str(why)} | {"decision": "block", "reason": str(why)} if why:
            return Verdict("deny", why)
    return None


def context(_bridge: Bridge, known: Known, answer: Any) -> str | None:
    """`pre_llm_call`: what several plugins say is told one below the other."""
    told = answer.get("context") if isinstance(answer, Mapping) else answer
    if not isinstance(told, str) or not told.strip():
        return None
    return f"{known['context']}\n\n{told}" if known["context"] else told


def result(bridge: Bridge, known: Known, answer: Any) -> ToolResult | None:
    """`transform_tool_result`: the first string counts."""
    given: ToolResult = known["result"]
    if not isinstance(answer, str) or bridge.notes.original(given) is not None:
        return None
    changed = structs.replace(given, text=answer)
    bridge.notes.replace(given, changed)
    return changed


def output(bridge: Bridge, known: Known, answer: Any) -> str | None:
    """`transform_terminal_output`: the first string counts."""
    return _first(bridge, known["output"], answer) if isinstance(answer, str) else None


def words(bridge: Bridge, known: Known, answer: Any) -> str | None:
    """`transform_llm_output`: the first string with something in it counts."""
    return _first(bridge, known["text"], answer) if isinstance(answer, str) and answer.strip() else None


def _first(bridge: Bridge, given: str, answer: str) -> str | None:
    if bridge.notes.original(given) is not None:
        return None
    answer = answer[:1] + answer[1:]  # known by its identity, so it must be nobody else's
    if len(answer) > 1:  # Python has one object for all texts as short as that
        bridge.notes.replace(given, answer)
    return answer
