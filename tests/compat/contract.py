"""The contract in tables: which keywords a hook has, and on which paths it must be seen. It sees nothing itself."""

IDS = {"session_id", "task_id", "turn_id"}
CALL = {"tool_name", "args", "tool_call_id", "api_request_id", "middleware_trace"} | IDS
OUTCOME = {"result", "duration_ms", "status", "error_type", "error_message"}
REQUEST = IDS | {
    *("api_request_id", "platform", "model", "provider", "base_url", "api_mode", "api_call_count"),
    *("message_count", "tool_count", "approx_input_tokens", "max_tokens", "started_at", "request"),
}
APPROVAL = {
    *("command", "description", "pattern_key", "pattern_keys", "session_key", "surface"),
    *("turn_id", "tool_call_id"),
}
CHILD = {"parent_session_id", "parent_turn_id", "child_session_id", "child_role", "child_goal"}
KEYWORDS = {
    "pre_gateway_dispatch": {"event", "gateway", "session_store"},
    "on_session_start": {"session_id", "model", "platform"},
    "pre_llm_call": IDS | {"user_message", "conversation_history", "is_first_turn", "model", "platform", "sender_id"},
    "pre_api_request": REQUEST,
    "api_request_error": REQUEST | {"status_code", "retry_count", "max_retries", "retryable", "reason", "error"},
    "post_api_request": REQUEST
    | {"api_duration", "ended_at", "finish_reason", "response_model", "usage"}
    | {"assistant_content_chars", "assistant_tool_call_count"},
    "pre_tool_call": CALL,
    "pre_approval_request": APPROVAL,
    "post_approval_response": APPROVAL | {"choice", "decided_by"},
    "transform_terminal_output": {"command", "output", "returncode", "task_id", "env_type"},
    "post_tool_call": CALL | OUTCOME,
    "transform_tool_result": CALL | OUTCOME,
    "transform_llm_output": {"response_text", "session_id", "model", "platform"},
    "pre_verify": {*("session_id", "platform", "model", "coding", "attempt", "final_response", "changed_paths")},
    "post_llm_call": IDS | {"user_message", "assistant_response", "conversation_history", "model", "platform"},
    "agent_loop_stopped": {"session_key", "platform", "reason", "invalidation_reason"},
    "on_session_end": IDS | {"completed", "interrupted", "model", "platform", "reason"},
    "on_session_finalize": {"session_id", "platform", "reason", "old_session_id", "new_session_id"},
    "on_session_reset": {"session_id", "platform", "reason", "old_session_id", "new_session_id"},
    "subagent_start": CHILD,
    "subagent_stop": CHILD | {"child_summary", "child_status", "duration_ms"},
}
"""What a callback with open keywords is given, in the order of a turn; the version comes on top of it."""
VERSION = "hermes.observer.v1"

SURFACES = ("app", "terminal", "host")
STOPS = {
    "/stop": ("user_stop", "stop_command"),
    "pending": ("user_stop", "stop_command_pending"),
    "handler": ("user_stop", "stop_command_handler"),
    "ctrl-c": ("user_stop", "session_interrupt"),
    "/new": ("reset", "new_command"),
    "superseded": ("superseded", "superseded"),
    "timeout": ("timeout", "timeout"),
    "shutdown": ("shutdown", "shutdown"),
}
"""The ways to stop a turn, and the two words that tell each."""
ENDINGS = ("answered", "failed", *STOPS, "resumed")

_SETTING_UP = {"pre_gateway_dispatch", "agent_loop_stopped", "on_session_end"}
_SETTING_UP |= {"on_session_finalize", "on_session_reset"}


def reason_against(hook: str, ending: str) -> str:
    """Why a hook does not belong to a path; empty where it must be seen there, on every surface."""
    match hook, ending:
        case _, "pending" if hook not in _SETTING_UP:
            return "the turn had not begun"
        case "post_llm_call", _ if ending not in ("answered", "resumed"):
            return "the turn was not answered"
        case "agent_loop_stopped", _ if ending not in STOPS:
            return "nobody stopped it"
        case "on_session_reset", "shutdown":
            return "nothing is in its place"
        case (("pre_gateway_dispatch" | "on_session_start"), "resumed"):
            return "reported before the process was killed"
    return ""


def expected(ending: str) -> set[str]:
    """The hooks of a path."""
    return {hook for hook in KEYWORDS if not reason_against(hook, ending)}


WAY = (
    *("pre_gateway_dispatch", "on_session_start", "pre_llm_call"),
    *("pre_api_request", "api_request_error"),
    *("pre_api_request", "post_api_request"),
    *("pre_tool_call", "subagent_start", "subagent_stop", "post_tool_call", "transform_tool_result"),
    *("pre_api_request", "post_api_request"),
    *("pre_tool_call", "post_tool_call", "transform_tool_result"),
    *("pre_api_request", "post_api_request"),
    *("pre_tool_call", "transform_terminal_output", "post_tool_call", "transform_tool_result"),
    *("pre_api_request", "post_api_request"),
    *("pre_tool_call", "post_tool_call", "transform_tool_result"),
    *("pre_api_request", "post_api_request", "transform_llm_output", "pre_verify"),
    "pre_api_request",
)
"""The long way of the suite, hook by hook, up to its last question: an attempt that fails, a subagent, a tool of a
plugin, a command that is asked about, a file that is written, words that are sent back once."""
GOES = {
    "answered": ("post_api_request", "transform_llm_output", "pre_verify", "on_session_end"),
    "failed": ("api_request_error", "on_session_end"),
    "stopped": (*("post_api_request", "pre_tool_call"), *("agent_loop_stopped", "post_tool_call", "on_session_end")),
}
"""How it continues from there; `post_llm_call` comes beside `on_session_end`."""


def course(ending: str) -> tuple[str, ...]:
    """What a recorder hears on a path, in this order; the questions to a person are looked for apart."""
    way = GOES["answered" if ending in ("answered", "resumed") else ending if ending in GOES else "stopped"]
    if ending == "pending":
        return ("pre_gateway_dispatch", "agent_loop_stopped", "on_session_end")
    return (*(WAY[2:] if ending == "resumed" else WAY), *way)
