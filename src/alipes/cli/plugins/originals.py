"""The modules of Hermes Agent as a plugin sees them: which names work here, and who changes them.

`SUPPORTED` is the contract's list, as data; what stands behind each name is the compatible door's.
"""

from collections.abc import Mapping

ROOTS = (
    *("agent", "batch_runner", "cli", "cron", "gateway", "mcp_serve", "model_tools", "run_agent"),
    *("tools", "toolsets", "toolset_distributions", "trajectory_compressor", "tui_gateway"),
)
"""Top-level modules of the original, besides all that begin with `hermes_`."""

SUPPORTED: Mapping[str, tuple[str, ...]] = {
    "hermes_constants": ("get_hermes_home",),
    "hermes_cli": ("config", "plugins", "profiles", "setup"),
    "hermes_cli.config": (
        *("load_config", "save_config", "get_env_value", "save_env_value", "set_config_value", "cfg_get"),
    ),
    "hermes_cli.plugins": ("VALID_HOOKS",),
    "hermes_cli.profiles": ("get_active_profile_name",),
    "hermes_cli.setup": ("print_*", "prompt*"),
    "hermes_plugins": ("*",),
    "tools": ("registry", "transcription_tools", "approval"),
    "tools.registry": ("registry", "tool_error", "tool_result"),
    "tools.transcription_tools": ("transcribe_audio",),
    "tools.approval": ("resolve_gateway_approval",),
    "toolsets": ("TOOLSETS", "_HERMES_CORE_TOOLS", "validate_toolset"),
    "gateway": ("config", "platforms", "session", "session_context", "run"),
    "gateway.config": ("Platform", "PlatformConfig"),
    "gateway.platforms": ("base",),
    "gateway.platforms.base": (
        *("BasePlatformAdapter", "MessageEvent", "MessageType", "SendResult"),
        *("cache_image_from_bytes", "cache_audio_from_bytes", "cache_document_from_bytes"),
    ),
    "gateway.session": ("build_session_key", "SessionSource"),
    "gateway.session_context": ("get_session_env",),
    "gateway.run": ("_gateway_runner_ref",),
    "agent": ("memory_provider", "secret_scope", "auxiliary_client"),
    "agent.memory_provider": ("MemoryProvider",),
    "agent.secret_scope": ("get_secret",),
    "agent.auxiliary_client": ("call_llm",),
    "hermes_state": ("SessionDB",),
    "cron": ("jobs",),
    "cron.jobs": ("*",),
}


def is_original(name: str) -> bool:
    """Whether a dotted name begins in a module of the original."""
    root = name.partition(".")[0]
    return root in ROOTS or root.startswith("hermes_")


def is_supported(name: str) -> bool:
    """Whether the dotted name of a module, or of something in one, works here."""
    if name in SUPPORTED:
        return True
    module, _, last = name.rpartition(".")
    known = SUPPORTED.get(module)
    if known is None:  # deeper, as in tools.registry.registry.register
        return bool(module) and is_supported(module)
    return any(last == each or (each.endswith("*") and last.startswith(each[:-1])) for each in known)
