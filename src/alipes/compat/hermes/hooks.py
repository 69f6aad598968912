"""The hooks of the Hermes door: which native moment each one is, and how the two speak to each other."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct, structs

from alipes.compat.hermes import hook_arguments as told
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import Fit
from alipes.compat.hermes.hook_arguments import Keywords, Known
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.turns import Turn
from alipes.plugins.context import Context
from alipes.plugins.dispatch import Hook
from alipes.plugins.registration import Ways
from alipes.plugins.specs import Admission, Attempt, Verdict


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


SCHEMA = "hermes.observer.v1"
PATIENT = 30.0
"""Seconds for callbacks that are asked something: the original's may ask a server or a model meanwhile."""
Offer: TypeAlias = Callable[[Bridge, Known], Keywords | None]
Answer: TypeAlias = Callable[[Bridge, Known, Any], Any]


class Row(Struct, frozen=True):
    name: str
    spec: str
    """The native hook that is the same moment."""
    offer: Offer
    answer: Answer = nothing
    deadline: float | None = None
    """None: the house's own."""
    on_loop: bool = False
    """Plain callbacks are called on the loop's thread, as in the original; the others' may block."""
    lenient: bool = False
    """A callback that fails has said nothing; else what it was asked about is refused."""


HOOKS = {
    row.name: row
    for row in (
        Row("pre_tool_call", "before_tool", told.pre_tool_call, ruling, PATIENT),
        Row("post_tool_call", "after_tool", told.post_tool_call),
        Row("transform_tool_result", "tool_result", told.transform_tool_result, result, PATIENT),
        Row("transform_terminal_output", "terminal_output", told.transform_terminal_output, output),
        Row("pre_llm_call", "turn_context", told.pre_llm_call, context, PATIENT),
        Row("post_llm_call", "turn_ended", told.post_llm_call, deadline=PATIENT),
        Row("transform_llm_output", "answer_text", told.transform_llm_output, words, PATIENT),
        Row("pre_verify", "before_answer", told.pre_verify, going_on, PATIENT),
        Row("pre_api_request", "request_sent", told.pre_api_request),
        Row("post_api_request", "request_answered", told.post_api_request),
        Row("api_request_error", "request_failed", told.api_request_error),
        Row("on_session_start", "session_began", told.on_session_start),
        Row("on_session_end", "turn_ended", told.on_session_end),
        Row("on_session_finalize", "session_left", told.on_session_finalize, on_loop=True),
        Row("on_session_reset", "session_reset", told.on_session_reset, on_loop=True),
        Row("subagent_start", "subagent_started", told.subagent_start),
        Row("subagent_stop", "subagent_ended", told.subagent_stop),
        Row("pre_gateway_dispatch", "before_message", told.pre_gateway_dispatch, admission,
            on_loop=True, lenient=True),
        Row("pre_approval_request", "on_event", told.pre_approval_request),
        Row("post_approval_response", "on_event", told.post_approval_response),
        Row("agent_loop_stopped", "agent_loop_stopped", told.agent_loop_stopped, on_loop=True),
    )
}  # fmt: skip
VALID_HOOKS = frozenset(HOOKS)


def register(bridge: Bridge, context: Context, row: Row, callback: Callable[..., Any]) -> None:
    """Have `callback` called at the native moment of `row`, as the plugin's own hook."""
    fit = Fit(callback)
    ways = Ways(title=row.name, always=True, lenient=row.lenient)  # all are called, the first answer counts
    context.hook(_entry(bridge, row, fit), name=row.spec, deadline=row.deadline, ways=ways)


def _entry(bridge: Bridge, row: Row, fit: Fit) -> Hook:
    """What the relay calls. Plain where it must not leave the loop's thread, or mostly has nothing to do."""

    async def threaded(**known: Any) -> Any:
        keywords = row.offer(bridge, known)
        if keywords is None:
            return None
        answer = await bridge.run(fit, **keywords, telemetry_schema_version=SCHEMA)
        return row.answer(bridge, known, answer)

    def here(**known: Any) -> Any:
        keywords = row.offer(bridge, known)
        if keywords is None:
            return None
        answer = fit(**keywords, telemetry_schema_version=SCHEMA)
        if inspect.isawaitable(answer):
            return _awaited(answer, lambda given: row.answer(bridge, known, given))
        return row.answer(bridge, known, answer)

    def seldom(**known: Any) -> Any:
        return None if row.offer(bridge, known) is None else threaded(**known)

    if row.spec == "on_event":
        return seldom
    return here if row.on_loop and not fit.is_async else threaded


async def _awaited(answer: Awaitable[Any], then: Callable[[Any], Any]) -> Any:
    return then(await answer)


def take_notes(bridge: Bridge, context: Context) -> None:
    """Remember, in the plugin's course, what a later hook or call of its own must know."""

    def request_sent(attempt: Attempt, turn: Turn) -> None:
        bridge.notes.requests[turn.id] = attempt.id, attempt.model

    def after_tool(call: ToolCall, seconds: float, error: Exception | None) -> None:
        bridge.notes.outcomes[call.id] = seconds, error

    def turn_context(turn: Turn) -> None:
        bridge.notes.heard[turn.key] = turn.inbound

    for hook in (request_sent, after_tool, turn_context):
        context.hook(hook)
        context.registered.pop()  # nobody looks for these
