"""Maps Hermes hooks to native hooks and translates their answers."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct, structs

from alipes.compat.hermes import hook_arguments as arguments
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import PluginCallback
from alipes.compat.hermes.hook_arguments import HookValues, Keywords
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.turns import Turn
from alipes.plugins.context import Context
from alipes.plugins.dispatch import Hook
from alipes.plugins.registration import HookOptions
from alipes.plugins.specs import Admission, ModelAttempt, Verdict


def ignore_answer(_bridge: Bridge, _known: HookValues, _answer: Any) -> None:
    """For observers."""


def to_verdict(_bridge: Bridge, _known: HookValues, answer: Any) -> Verdict | None:
    """`pre_tool_call`: block with a message, or approve, which asks a person."""
    match answer:
        case {"action": "block", "message": str(message)} if message:
            return Verdict("deny", message)
        case {"action": "approve"}:
            why = str(answer.get("message") or "a plugin requires approval")
            key = answer.get("rule_key")
            return Verdict("ask", f"{why} ({key})" if key else why)
    return None


def to_admission(_bridge: Bridge, _known: HookValues, answer: Any) -> Admission | None:
    """`pre_gateway_dispatch`: skip, rewrite with a text, or allow."""
    match answer:
        case {"action": "skip"}:
            return Admission("drop")
        case {"action": "rewrite", "text": str(text)}:
            return Admission("rewrite", text)
        case {"action": "allow"}:
            return Admission("take")
    return None


def to_continue(_bridge: Bridge, _known: HookValues, answer: Any) -> Verdict | None:
    """`pre_verify`: the turn continues, with the message for the model."""
    match answer:
        case {"action": "continue", "message": str(why)} | {"decision": "block", "reason": str(why)} if why:
            return Verdict("deny", why)
    return None


def to_context(_bridge: Bridge, values: HookValues, answer: Any) -> str | None:
    """`pre_llm_call`: contexts of several plugins are joined."""
    text = answer.get("context") if isinstance(answer, Mapping) else answer
    if not isinstance(text, str) or not text.strip():
        return None
    return f"{values['context']}\n\n{text}" if values["context"] else text


def to_result(bridge: Bridge, values: HookValues, answer: Any) -> ToolResult | None:
    """`transform_tool_result`: the first string is used."""
    given: ToolResult = values["result"]
    if not isinstance(answer, str) or bridge.state.original(given) is not None:
        return None
    changed = structs.replace(given, text=answer)
    bridge.state.replace(given, changed)
    return changed


def to_output(bridge: Bridge, values: HookValues, answer: Any) -> str | None:
    """`transform_terminal_output`: the first string is used."""
    return _replace_once(bridge, values["output"], answer) if isinstance(answer, str) else None


def to_answer(bridge: Bridge, values: HookValues, answer: Any) -> str | None:
    """`transform_llm_output`: the first non-empty string is used."""
    return _replace_once(bridge, values["text"], answer) if isinstance(answer, str) and answer.strip() else None


def _replace_once(bridge: Bridge, given: str, answer: str) -> str | None:
    if bridge.state.original(given) is not None:
        return None
    answer = answer[:1] + answer[1:]  # recognised by identity, so it must be a new object
    if len(answer) > 1:  # Python shares strings of one character
        bridge.state.replace(given, answer)
    return answer


SCHEMA = "hermes.observer.v1"
DECISION_TIMEOUT_S = 30.0
"""Timeout of callbacks that decide something: they may call a server or a model."""
MakeKeywords: TypeAlias = Callable[[Bridge, HookValues], Keywords | None]
ConvertAnswer: TypeAlias = Callable[[Bridge, HookValues, Any], Any]


class HookMapping(Struct, frozen=True):
    name: str
    spec: str
    """The corresponding native hook."""
    make_keywords: MakeKeywords
    convert_answer: ConvertAnswer = ignore_answer
    deadline: float | None = None
    """None means the default."""
    on_loop: bool = False
    """Call sync callbacks on the loop's thread, as the stop contract demands; others may block and run in a thread."""
    lenient: bool = False
    """Ignore a failing callback; otherwise its failure refuses what it was asked about."""


HOOKS = {
    mapping.name: mapping
    for mapping in (
        HookMapping("pre_tool_call", "before_tool", arguments.pre_tool_call, to_verdict, DECISION_TIMEOUT_S),
        HookMapping("post_tool_call", "after_tool", arguments.post_tool_call),
        HookMapping("transform_tool_result", "tool_result", arguments.transform_tool_result, to_result,
            DECISION_TIMEOUT_S),
        HookMapping("transform_terminal_output", "terminal_output", arguments.transform_terminal_output,
            to_output),
        HookMapping("pre_llm_call", "turn_context", arguments.pre_llm_call, to_context, DECISION_TIMEOUT_S),
        HookMapping("post_llm_call", "turn_ended", arguments.post_llm_call, deadline=DECISION_TIMEOUT_S),
        HookMapping("transform_llm_output", "answer_text", arguments.transform_llm_output, to_answer,
            DECISION_TIMEOUT_S),
        HookMapping("pre_verify", "before_answer", arguments.pre_verify, to_continue, DECISION_TIMEOUT_S),
        HookMapping("pre_api_request", "request_sent", arguments.pre_api_request),
        HookMapping("post_api_request", "request_answered", arguments.post_api_request),
        HookMapping("api_request_error", "request_failed", arguments.api_request_error),
        HookMapping("on_session_start", "session_began", arguments.on_session_start),
        HookMapping("on_session_end", "turn_ended", arguments.on_session_end),
        HookMapping("on_session_finalize", "session_left", arguments.on_session_finalize),
        HookMapping("on_session_reset", "session_reset", arguments.on_session_reset),
        HookMapping("subagent_start", "subagent_started", arguments.subagent_start),
        HookMapping("subagent_stop", "subagent_ended", arguments.subagent_stop),
        HookMapping("pre_gateway_dispatch", "before_message", arguments.pre_gateway_dispatch, to_admission,
            DECISION_TIMEOUT_S, lenient=True),
        HookMapping("pre_approval_request", "on_event", arguments.pre_approval_request),
        HookMapping("post_approval_response", "on_event", arguments.post_approval_response),
        HookMapping("agent_loop_stopped", "agent_loop_stopped", arguments.agent_loop_stopped, on_loop=True),
    )
}  # fmt: skip
VALID_HOOKS = frozenset(HOOKS)


def register(bridge: Bridge, context: Context, mapping: HookMapping, callback: Callable[..., Any]) -> None:
    """Register `callback` for the native hook of `mapping`."""
    hook = _native_hook(bridge, mapping, PluginCallback(callback))
    # always_ask: all callbacks are called, the first answer is used
    options = HookOptions(title=mapping.name, always_ask=True, fail_open=mapping.lenient)
    context.hook(hook, name=mapping.spec, deadline=mapping.deadline, options=options)


def _native_hook(bridge: Bridge, mapping: HookMapping, callback: PluginCallback) -> Hook:
    """The native hook: sync if it must stay on the loop's thread or is rarely relevant."""

    async def run_in_thread(**values: Any) -> Any:
        keywords = mapping.make_keywords(bridge, values)
        if keywords is None:
            return None
        answer = await bridge.run(callback, **keywords, telemetry_schema_version=SCHEMA)
        return mapping.convert_answer(bridge, values, answer)

    def run_here(**values: Any) -> Any:
        keywords = mapping.make_keywords(bridge, values)
        if keywords is None:
            return None
        answer = callback(**keywords, telemetry_schema_version=SCHEMA)
        if inspect.isawaitable(answer):
            return _convert_later(answer, lambda given: mapping.convert_answer(bridge, values, given))
        return mapping.convert_answer(bridge, values, answer)

    def run_if_relevant(**values: Any) -> Any:
        return None if mapping.make_keywords(bridge, values) is None else run_in_thread(**values)

    if mapping.spec == "on_event":
        return run_if_relevant
    return run_here if mapping.on_loop and not callback.is_async else run_in_thread


async def _convert_later(answer: Awaitable[Any], then: Callable[[Any], Any]) -> Any:
    return then(await answer)


def record_state(bridge: Bridge, context: Context) -> None:
    """Record what later hooks and calls of the plugin need."""

    def request_sent(attempt: ModelAttempt, turn: Turn) -> None:
        bridge.state.requests[turn.id] = attempt.id, attempt.model

    def after_tool(call: ToolCall, seconds: float, error: Exception | None) -> None:
        bridge.state.outcomes[call.id] = seconds, error

    def turn_context(turn: Turn) -> None:
        bridge.state.inbounds[turn.key] = turn.inbound

    for hook in (request_sent, after_tool, turn_context):
        context.hook(hook)
        context.registered.pop()  # not listed to users
