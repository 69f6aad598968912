"""Builds the keyword arguments of each Hermes hook from the values of the native hook.

A function returns None if the Hermes hook is not called. Callbacks with `**kwargs` get the documented
keywords; extra values go only to callbacks that name them.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import ExtraValue, LazyValue
from alipes.compat.hermes.openai_format import FINISH, messages_to_wire, request_to_wire, usage_to_wire
from alipes.compat.hermes.platform.values import event_of
from alipes.kernel.errors import ContextTooLong, NotAuthorised, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked, ModelReply, Turn
from alipes.plugins.specs import ModelAttempt

HookValues: TypeAlias = Mapping[str, Any]
Keywords: TypeAlias = dict[str, Any]
API_MODES = {
    "openai-chat": "chat_completions",
    "openai-responses": "codex_responses",
    "anthropic": "anthropic_messages",
}
STATUSES = {"ok": "ok", "denied": "blocked", "cancelled": "cancelled"}
CHILD_STATUSES = {"answered": "completed", "stopped": "interrupted", "suspended": "interrupted"}
CHOICES = {"no": "deny"}
_REASONS: Mapping[type[ProviderError], str] = {
    Transient: "transient",
    ContextTooLong: "context_overflow",
    Refused: "refused",
    NotAuthorised: "auth",
    OutOfCredit: "billing",
}


def platform_of(turn: Turn) -> str:
    return hermes_platform(turn.inbound.address.platform)


def hermes_platform(name: str) -> str:
    """Plugins know the terminal as `cli`."""
    return "cli" if name == "terminal" else name


def platform_of_key(session_key: str) -> str:
    """The platform in `agent:main:<platform>:...`"""
    parts = session_key.split(":")
    return hermes_platform(unquote(parts[2])) if len(parts) > 2 else ""


def model_of(bridge: Bridge, turn: Turn) -> str:
    """The model last used in this turn, or the one that will be."""
    if (request := bridge.state.requests.get(turn.id)) is not None:
        return request[1]
    return turn.inbound.model or turn.model or str(bridge.host.setting("model") or "")


def final_text(said: tuple[Message, ...]) -> str:
    """The last answer of a turn."""
    return next((each.text for each in reversed(said) if each.role == "assistant" and each.text), "")


def _extra_values(**more: Any) -> Keywords:
    """Values beyond the documented keywords."""
    return {name: ExtraValue(value) for name, value in more.items()}


def _ids(turn: Turn) -> Keywords:
    return {"session_id": turn.session, "task_id": turn.session, "turn_id": turn.id}


# --- tools


def _call(bridge: Bridge, call: ToolCall, turn: Turn) -> Keywords:
    request = bridge.state.requests.get(turn.id)
    return {
        "tool_name": call.name,
        "args": dict(call.args),
        **_ids(turn),
        "tool_call_id": call.id,
        "api_request_id": request[0] if request else "",
        "middleware_trace": list(bridge.state.traces.get(call.id) or ()),
    }


def pre_tool_call(bridge: Bridge, values: HookValues) -> Keywords:
    return _call(bridge, values["call"], values["turn"])


def post_tool_call(bridge: Bridge, values: HookValues) -> Keywords:
    return _call(bridge, values["call"], values["turn"]) | _outcome(
        values["result"], values["seconds"], values["error"]
    )


def transform_tool_result(bridge: Bridge, values: HookValues) -> Keywords:
    call: ToolCall = values["call"]
    seconds, error = bridge.state.outcomes.get(call.id) or (0.0, None)
    result = bridge.state.original(values["result"]) or values["result"]
    return _call(bridge, call, values["turn"]) | _outcome(result, seconds, error)


def _outcome(result: ToolResult, seconds: float, error: Exception | None) -> Keywords:
    status = STATUSES.get(result.outcome, "error")
    kind, message = (type(error).__name__ if error else "", result.text)
    if status == "ok" and (data := error_in_result(result.text)):
        status, kind, message = "error", "tool_error", data
    elif status == "error" and isinstance(error, TimeoutError):
        status = "timeout"
    fine = status == "ok"
    return {
        "result": result.text,
        "duration_ms": round(seconds * 1000),
        "status": status,
        "error_type": None if fine else kind or status,
        "error_message": None if fine else message,
    }


def error_in_result(text: str) -> str:
    """The error in a tool result such as `{"error": ...}`, or an empty string."""
    if not text.startswith("{") or '"error"' not in text:
        return ""
    try:
        data = json.loads(text)
    except ValueError:
        return ""
    return str(data.get("error") or "") if isinstance(data, dict) else ""


def transform_terminal_output(bridge: Bridge, values: HookValues) -> Keywords:
    status = values["status"]
    return {
        "command": values["command"],
        "output": bridge.state.original(values["output"]) or values["output"],
        "returncode": -1 if status is None else status,
        "task_id": values["turn"].session,
        "env_type": "local",
    }


# --- the turn


def pre_llm_call(bridge: Bridge, values: HookValues) -> Keywords:
    turn: Turn = values["turn"]
    return {
        **_ids(turn),
        "user_message": turn.inbound.text,
        "conversation_history": LazyValue(lambda: messages_to_wire(turn.history)),
        "is_first_turn": not turn.history,
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
        "sender_id": turn.inbound.sender,
    }


def post_llm_call(bridge: Bridge, values: HookValues) -> Keywords | None:
    turn: Turn = values["turn"]
    if values["ending"] != "answered":
        return None
    return {
        **_ids(turn),
        "user_message": turn.inbound.text,
        "assistant_response": final_text(values["said"]),
        "conversation_history": LazyValue(lambda: messages_to_wire((*turn.history, *values["said"]))),
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
    }


def transform_llm_output(bridge: Bridge, values: HookValues) -> Keywords:
    turn: Turn = values["turn"]
    return {
        "response_text": bridge.state.original(values["text"]) or values["text"],
        "session_id": turn.session,
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
    }


def pre_verify(bridge: Bridge, values: HookValues) -> Keywords:
    turn: Turn = values["turn"]
    return {
        "session_id": turn.session,
        "platform": platform_of(turn),
        "model": model_of(bridge, turn),
        "coding": True,
        "attempt": values["attempt"],
        "final_response": values["text"],
        "changed_paths": list(values["changed"]),
    }


def on_session_end(bridge: Bridge, values: HookValues) -> Keywords:
    turn: Turn = values["turn"]
    ending = values["ending"]
    return {
        **_ids(turn),
        "completed": ending == "answered",
        "interrupted": ending in ("stopped", "suspended"),
        "reason": values["detail"] or ending,
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
        **_extra_values(failed=ending in ("failed", "out_of_steps", "gave_up"), turn_exit_reason=ending),
    }


def agent_loop_stopped(_bridge: Bridge, values: HookValues) -> Keywords:
    return {
        "session_key": values["session_key"],
        "platform": hermes_platform(values["platform"]),
        "reason": values["reason"],
        "invalidation_reason": values["invalidation_reason"],
        **_extra_values(
            session_id=values["session_id"],
            turn_id=values["turn_id"],
            tool_call_ids=list(values["tool_call_ids"]),
            partial_text=values["partial_text"],
        ),
    }


# --- model requests


def _attempt(bridge: Bridge, attempt: ModelAttempt, turn: Turn) -> Keywords:
    provider, _, _ = attempt.model.partition("/")
    endpoint = bridge.settings.providers.get(provider)
    request = attempt.request
    return {
        **_ids(turn),
        "api_request_id": attempt.id,
        "platform": platform_of(turn),
        "model": attempt.model,
        "provider": provider,
        "base_url": endpoint.base_url if endpoint else "",
        "api_mode": API_MODES.get(endpoint.api, endpoint.api) if endpoint else "",
        "api_call_count": attempt.step,
        "message_count": len(request.messages),
        "tool_count": len(request.tools),
        "approx_input_tokens": LazyValue(lambda: _characters(attempt) // 4),
        "max_tokens": request.max_tokens,
        "started_at": attempt.began,
        "request": LazyValue(lambda: request_to_wire(request)),
        **_extra_values(
            retry_count=attempt.number - 1,
            request_char_count=LazyValue(lambda: _characters(attempt)),
            middleware_trace=list(bridge.state.traces.get(turn.id) or ()),
        ),
    }


def _characters(attempt: ModelAttempt) -> int:
    return len(json.dumps(request_to_wire(attempt.request), ensure_ascii=False))


def pre_api_request(bridge: Bridge, values: HookValues) -> Keywords:
    attempt: ModelAttempt = values["attempt"]
    turn: Turn = values["turn"]
    return _attempt(bridge, attempt, turn) | _extra_values(
        user_message=turn.inbound.text,
        conversation_history=LazyValue(lambda: messages_to_wire(attempt.request.messages)),
        request_messages=LazyValue(lambda: request_to_wire(attempt.request)["messages"]),
    )


def post_api_request(bridge: Bridge, values: HookValues) -> Keywords:
    attempt: ModelAttempt = values["attempt"]
    reply: ModelReply = values["reply"]
    return _attempt(bridge, attempt, values["turn"]) | {
        "api_duration": values["seconds"],
        "ended_at": attempt.began + values["seconds"],
        "finish_reason": FINISH[reply.stop],
        "response_model": attempt.request.model,
        "usage": usage_to_wire(reply.usage),
        "assistant_content_chars": len(reply.message.text),
        "assistant_tool_call_count": len(reply.message.calls),
        **_extra_values(
            assistant_message=LazyValue(lambda: messages_to_wire((reply.message,))[0]),
            response=LazyValue(lambda: {"message": messages_to_wire((reply.message,))[0]}),
        ),
    }


def api_request_error(bridge: Bridge, values: HookValues) -> Keywords:
    attempt: ModelAttempt = values["attempt"]
    error: ProviderError = values["error"]
    now = time.time()
    return _attempt(bridge, attempt, values["turn"]) | {
        "status_code": getattr(error, "status", None),
        "retry_count": attempt.number - 1,
        "max_retries": attempt.limit,
        "retryable": values["again"],
        "reason": next((word for kind, word in _REASONS.items() if isinstance(error, kind)), "unknown"),
        "error": {"type": type(error).__name__, "message": str(error)},
        **_extra_values(ended_at=now, api_duration=now - attempt.began),
    }


# --- sessions, subagents, people


def on_session_start(bridge: Bridge, values: HookValues) -> Keywords:
    turn: Turn = values["turn"]
    return {"session_id": values["session"], "model": model_of(bridge, turn), "platform": platform_of(turn)}


def on_session_finalize(_bridge: Bridge, values: HookValues) -> Keywords:
    return {
        "session_id": values["session"],
        "platform": platform_of_key(values["session_key"]),
        "reason": values["reason"],
        "old_session_id": values["session"],
        "new_session_id": values["successor"] or None,
        **_extra_values(session_key=values["session_key"]),
    }


def on_session_reset(_bridge: Bridge, values: HookValues) -> Keywords:
    return {
        "session_id": values["session"],
        "platform": platform_of_key(values["session_key"]),
        "reason": values["reason"],
        "old_session_id": values["predecessor"] or None,
        "new_session_id": values["session"],
        **_extra_values(session_key=values["session_key"]),
    }


def subagent_start(_bridge: Bridge, values: HookValues) -> Keywords:
    parent: Turn = values["parent"]
    return {
        "parent_session_id": parent.session,
        "parent_turn_id": parent.id,
        "child_session_id": values["session"],
        "child_role": values["role"],
        "child_goal": values["goal"],
    }


def subagent_stop(bridge: Bridge, values: HookValues) -> Keywords:
    return subagent_start(bridge, values) | {
        "child_summary": values["summary"],
        "child_status": CHILD_STATUSES.get(values["ending"], "failed"),
        "duration_ms": round(values["seconds"] * 1000),
    }


def pre_gateway_dispatch(bridge: Bridge, values: HookValues) -> Keywords:
    return {
        "event": event_of(values["inbound"]),
        "gateway": bridge.gateway,
        "session_store": bridge.gateway.session_store,
    }


def pre_approval_request(_bridge: Bridge, values: HookValues) -> Keywords | None:
    event = values["event"]
    return _approval(event, values["turn"]) if isinstance(event, ApprovalAsked) else None


def post_approval_response(bridge: Bridge, values: HookValues) -> Keywords | None:
    event = values["event"]
    if isinstance(event, ApprovalAsked):
        bridge.state.approvals[event.ask] = event
    if not isinstance(event, ApprovalAnswered) or (request := bridge.state.approvals.get(event.ask)) is None:
        return None
    choice = CHOICES.get(event.choice, event.choice)
    return _approval(request, values["turn"]) | {"choice": choice, "decided_by": event.by}


def _approval(request: ApprovalAsked, turn: Turn) -> Keywords:
    call = request.call
    command = call.args.get("command")
    return {
        "command": command if isinstance(command, str) else f"{call.name} {json.dumps(call.args)}",
        "description": request.reason,
        "pattern_key": request.rule,
        "pattern_keys": [request.rule],
        "session_key": turn.key,
        "surface": "cli" if platform_of(turn) == "cli" else "gateway",
        "turn_id": turn.id,
        "tool_call_id": call.id,
        **_extra_values(session_id=turn.session),
    }
