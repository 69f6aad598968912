"""From a native hook's values to the keywords of a Hermes hook, one function each. None: it is not told.

`known` holds what the native spec of the same row in `hooks.HOOKS` offers, by name. A callback with open
keywords gets those of the contract and no others; what we know beside them is for who names it.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.call import Beside, Later
from alipes.compat.hermes.openai_format import FINISH, messages_of, request_of, usage_of
from alipes.kernel.errors import ContextTooLong, NotAuthorised, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked, Replied, Turn
from alipes.plugins.specs import Attempt

Known: TypeAlias = Mapping[str, Any]
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
    return platform_named(turn.inbound.address.platform)


def platform_named(name: str) -> str:
    """Plugins know the terminal as `cli`."""
    return "cli" if name == "terminal" else name


def platform_in(session_key: str) -> str:
    """`agent:main:<platform>:...`"""
    parts = session_key.split(":")
    return platform_named(unquote(parts[2])) if len(parts) > 2 else ""


def model_of(bridge: Bridge, turn: Turn) -> str:
    """As it was last asked in this turn, else as it will be."""
    if (asked := bridge.notes.requests.get(turn.id)) is not None:
        return asked[1]
    return turn.inbound.model or turn.model or str(bridge.host.setting("model") or "")


def final_words(said: tuple[Message, ...]) -> str:
    """What a turn answered."""
    return next((each.text for each in reversed(said) if each.role == "assistant" and each.text), "")


def _beside(**more: Any) -> Keywords:
    """Beyond the contract."""
    return {name: Beside(value) for name, value in more.items()}


def _ids(turn: Turn) -> Keywords:
    return {"session_id": turn.session, "task_id": turn.session, "turn_id": turn.id}


# --- tools


def _call(bridge: Bridge, call: ToolCall, turn: Turn) -> Keywords:
    asked = bridge.notes.requests.get(turn.id)
    return {
        "tool_name": call.name,
        "args": dict(call.args),
        **_ids(turn),
        "tool_call_id": call.id,
        "api_request_id": asked[0] if asked else "",
        "middleware_trace": list(bridge.notes.traces.get(call.id) or ()),
    }


def pre_tool_call(bridge: Bridge, known: Known) -> Keywords:
    return _call(bridge, known["call"], known["turn"])


def post_tool_call(bridge: Bridge, known: Known) -> Keywords:
    return _call(bridge, known["call"], known["turn"]) | _outcome(
        known["result"], known["seconds"], known["error"]
    )


def transform_tool_result(bridge: Bridge, known: Known) -> Keywords:
    call: ToolCall = known["call"]
    seconds, error = bridge.notes.outcomes.get(call.id) or (0.0, None)
    result = bridge.notes.original(known["result"]) or known["result"]
    return _call(bridge, call, known["turn"]) | _outcome(result, seconds, error)


def _outcome(result: ToolResult, seconds: float, error: Exception | None) -> Keywords:
    status = STATUSES.get(result.outcome, "error")
    kind, message = (type(error).__name__ if error else "", result.text)
    if status == "ok" and (told := told_error(result.text)):
        status, kind, message = "error", "tool_error", told
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


def told_error(text: str) -> str:
    """The error that a tool told as its result (`{"error": ...}`), or nothing."""
    if not text.startswith("{") or '"error"' not in text:
        return ""
    try:
        told = json.loads(text)
    except ValueError:
        return ""
    return str(told.get("error") or "") if isinstance(told, dict) else ""


def transform_terminal_output(bridge: Bridge, known: Known) -> Keywords:
    status = known["status"]
    return {
        "command": known["command"],
        "output": bridge.notes.original(known["output"]) or known["output"],
        "returncode": -1 if status is None else status,
        "task_id": known["turn"].session,
        "env_type": "local",
    }


# --- the turn


def pre_llm_call(bridge: Bridge, known: Known) -> Keywords:
    turn: Turn = known["turn"]
    return {
        **_ids(turn),
        "user_message": turn.inbound.text,
        "conversation_history": Later(lambda: messages_of(turn.history)),
        "is_first_turn": not turn.history,
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
        "sender_id": turn.inbound.sender,
    }


def post_llm_call(bridge: Bridge, known: Known) -> Keywords | None:
    turn: Turn = known["turn"]
    if known["ending"] != "answered":
        return None
    return {
        **_ids(turn),
        "user_message": turn.inbound.text,
        "assistant_response": final_words(known["said"]),
        "conversation_history": Later(lambda: messages_of((*turn.history, *known["said"]))),
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
    }


def transform_llm_output(bridge: Bridge, known: Known) -> Keywords:
    turn: Turn = known["turn"]
    return {
        "response_text": bridge.notes.original(known["text"]) or known["text"],
        "session_id": turn.session,
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
    }


def pre_verify(bridge: Bridge, known: Known) -> Keywords:
    turn: Turn = known["turn"]
    return {
        "session_id": turn.session,
        "platform": platform_of(turn),
        "model": model_of(bridge, turn),
        "coding": True,
        "attempt": known["attempt"],
        "final_response": known["text"],
        "changed_paths": list(known["changed"]),
    }


def on_session_end(bridge: Bridge, known: Known) -> Keywords:
    turn: Turn = known["turn"]
    ending = known["ending"]
    return {
        **_ids(turn),
        "completed": ending == "answered",
        "interrupted": ending in ("stopped", "suspended"),
        "reason": known["detail"] or ending,
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
        **_beside(failed=ending in ("failed", "out_of_steps"), turn_exit_reason=ending),
    }


def agent_loop_stopped(_bridge: Bridge, known: Known) -> Keywords:
    return {
        "session_key": known["session_key"],
        "platform": platform_named(known["platform"]),
        "reason": known["reason"],
        "invalidation_reason": known["invalidation_reason"],
        **_beside(
            session_id=known["session_id"],
            turn_id=known["turn_id"],
            tool_call_ids=list(known["tool_call_ids"]),
            partial_text=known["partial_text"],
        ),
    }


# --- questions to the model


def _attempt(bridge: Bridge, attempt: Attempt, turn: Turn) -> Keywords:
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
        "approx_input_tokens": Later(lambda: _characters(attempt) // 4),
        "max_tokens": request.max_tokens,
        "started_at": attempt.began,
        "request": Later(lambda: request_of(request)),
        **_beside(
            retry_count=attempt.number - 1,
            request_char_count=Later(lambda: _characters(attempt)),
            middleware_trace=list(bridge.notes.traces.get(turn.id) or ()),
        ),
    }


def _characters(attempt: Attempt) -> int:
    return len(json.dumps(request_of(attempt.request), ensure_ascii=False))


def pre_api_request(bridge: Bridge, known: Known) -> Keywords:
    attempt: Attempt = known["attempt"]
    turn: Turn = known["turn"]
    return _attempt(bridge, attempt, turn) | _beside(
        user_message=turn.inbound.text,
        conversation_history=Later(lambda: messages_of(attempt.request.messages)),
        request_messages=Later(lambda: request_of(attempt.request)["messages"]),
    )


def post_api_request(bridge: Bridge, known: Known) -> Keywords:
    attempt: Attempt = known["attempt"]
    reply: Replied = known["reply"]
    return _attempt(bridge, attempt, known["turn"]) | {
        "api_duration": known["seconds"],
        "ended_at": attempt.began + known["seconds"],
        "finish_reason": FINISH[reply.stop],
        "response_model": attempt.request.model,
        "usage": usage_of(reply.usage),
        "assistant_content_chars": len(reply.message.text),
        "assistant_tool_call_count": len(reply.message.calls),
        **_beside(
            assistant_message=Later(lambda: messages_of((reply.message,))[0]),
            response=Later(lambda: {"message": messages_of((reply.message,))[0]}),
        ),
    }


def api_request_error(bridge: Bridge, known: Known) -> Keywords:
    attempt: Attempt = known["attempt"]
    error: ProviderError = known["error"]
    now = time.time()
    return _attempt(bridge, attempt, known["turn"]) | {
        "status_code": getattr(error, "status", None),
        "retry_count": attempt.number - 1,
        "max_retries": attempt.limit,
        "retryable": known["again"],
        "reason": next((word for kind, word in _REASONS.items() if isinstance(error, kind)), "unknown"),
        "error": {"type": type(error).__name__, "message": str(error)},
        **_beside(ended_at=now, api_duration=now - attempt.began),
    }


# --- sessions, subagents, people


def on_session_start(bridge: Bridge, known: Known) -> Keywords:
    turn: Turn = known["turn"]
    return {
        "session_id": known["session"],
        "model": model_of(bridge, turn),
        "platform": platform_of(turn),
    }


def on_session_finalize(_bridge: Bridge, known: Known) -> Keywords:
    return {
        "session_id": known["session"],
        "platform": platform_in(known["session_key"]),
        "reason": known["reason"],
        "old_session_id": known["session"],
        "new_session_id": known["successor"] or None,
        **_beside(session_key=known["session_key"]),
    }


def on_session_reset(_bridge: Bridge, known: Known) -> Keywords:
    return {
        "session_id": known["session"],
        "platform": platform_in(known["session_key"]),
        "reason": known["reason"],
        "old_session_id": known["predecessor"] or None,
        "new_session_id": known["session"],
        **_beside(session_key=known["session_key"]),
    }


def subagent_start(_bridge: Bridge, known: Known) -> Keywords:
    parent: Turn = known["parent"]
    return {
        "parent_session_id": parent.session,
        "parent_turn_id": parent.id,
        "child_session_id": known["session"],
        "child_role": known["role"],
        "child_goal": known["goal"],
    }


def subagent_stop(bridge: Bridge, known: Known) -> Keywords:
    return subagent_start(bridge, known) | {
        "child_summary": known["summary"],
        "child_status": CHILD_STATUSES.get(known["ending"], "failed"),
        "duration_ms": round(known["seconds"] * 1000),
    }


def pre_gateway_dispatch(bridge: Bridge, known: Known) -> Keywords:
    return {
        "event": bridge.event_of(known["inbound"]),
        "gateway": bridge.gateway,
        "session_store": bridge.gateway.session_store,
    }


def pre_approval_request(_bridge: Bridge, known: Known) -> Keywords | None:
    event = known["event"]
    return _approval(event, known["turn"]) if isinstance(event, ApprovalAsked) else None


def post_approval_response(bridge: Bridge, known: Known) -> Keywords | None:
    event = known["event"]
    if isinstance(event, ApprovalAsked):
        bridge.notes.asked[event.ask] = event
    if not isinstance(event, ApprovalAnswered) or (asked := bridge.notes.asked.get(event.ask)) is None:
        return None
    choice = CHOICES.get(event.choice, event.choice)
    return _approval(asked, known["turn"]) | {"choice": choice, "decided_by": event.by}


def _approval(asked: ApprovalAsked, turn: Turn) -> Keywords:
    call = asked.call
    command = call.args.get("command")
    return {
        "command": command if isinstance(command, str) else f"{call.name} {json.dumps(call.args)}",
        "description": asked.reason,
        "pattern_key": asked.rule,
        "pattern_keys": [asked.rule],
        "session_key": turn.key,
        "surface": "cli" if platform_of(turn) == "cli" else "gateway",
        "turn_id": turn.id,
        "tool_call_id": call.id,
        **_beside(session_id=turn.session),
    }
