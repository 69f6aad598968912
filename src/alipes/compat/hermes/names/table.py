"""Every importable name there is, by module. Plugins import these; nothing else of the original exists."""

from typing import Any

from alipes.compat.hermes import adapters, adapters_media, adapters_values
from alipes.compat.hermes.adapters_asking import ASKING
from alipes.compat.hermes.hooks import VALID_HOOKS
from alipes.compat.hermes.names import (
    asking,
    homes,
    memory_provider,
    models,
    places,
    registry,
    schedules,
    settings,
    toolsets,
)
from alipes.compat.hermes.names.hearing import transcribe_audio
from alipes.compat.hermes.session_keys import SessionSource, build_session_key


def resolve_gateway_approval(session_key: str, choice: str, resolve_all: bool = False, **more: Any) -> int:
    """The person's word (`once`, `session`, `always`, `deny`) on what waits there; how many waited."""
    return ASKING.resolve(session_key, choice, everything=resolve_all, by=str(more.get("by") or ""))


def _named(module: object, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


_EVENT = _named(adapters_values, "MessageEvent", "MessageType", "ProcessingOutcome")
_CACHES = _named(
    adapters_media,
    *("cache_image_from_bytes", "cache_audio_from_bytes", "cache_video_from_bytes"),
    *("cache_document_from_bytes", "cleanup_image_cache", "cleanup_document_cache"),
)
_CONFIG = _named(
    settings,
    *("load_config", "save_config", "set_config_value", "cfg_get", "load_env"),
    *("get_env_value", "save_env_value", "remove_env_value"),
)
_SETUP = _named(asking, *asking.__all__)
_CRON = _named(
    schedules,
    *("load_jobs", "list_jobs", "get_due_jobs", "get_job", "remove_job", "create_job"),
    *("update_job", "pause_job", "resume_job", "trigger_job", "save_jobs"),
)

NAMES: dict[str, dict[str, Any]] = {
    "hermes_constants": _named(homes, "get_hermes_home", "display_hermes_home", "get_hermes_dir"),
    "hermes_cli": {},
    "hermes_cli.config": {
        **_CONFIG,
        "load_config_readonly": settings.load_config,
        **_named(homes, "get_hermes_home", "get_config_path", "get_env_path"),
    },
    "hermes_cli.plugins": {"VALID_HOOKS": VALID_HOOKS},
    "hermes_cli.profiles": {"get_active_profile_name": homes.get_active_profile_name},
    "hermes_cli.setup": _SETUP,
    "hermes_cli.cli_output": _SETUP,
    "tools": {},
    "tools.registry": _named(registry, "registry", "ToolRegistry", "tool_error", "tool_result"),
    "tools.transcription_tools": {"transcribe_audio": transcribe_audio},
    "tools.approval": {"resolve_gateway_approval": resolve_gateway_approval},
    "toolsets": _named(
        toolsets,
        *("TOOLSETS", "_HERMES_CORE_TOOLS", "validate_toolset", "get_toolset", "resolve_toolset"),
        "create_custom_toolset",
    ),
    "gateway": {},
    "gateway.config": _named(adapters_values, "Platform", "PlatformConfig", "HomeChannel"),
    "gateway.platforms": {},
    "gateway.platforms.base": {
        "BasePlatformAdapter": adapters.BasePlatformAdapter,
        "SendResult": adapters_values.SendResult,
        "SessionSource": SessionSource,
        **_EVENT,
        **_CACHES,
    },
    "gateway.platforms.event": _EVENT,
    "gateway.session": {"SessionSource": SessionSource, "build_session_key": build_session_key},
    "gateway.session_context": {"get_session_env": places.get_session_env},
    "gateway.run": {"_gateway_runner_ref": places._gateway_runner_ref},
    "agent": {},
    "agent.memory_provider": {"MemoryProvider": memory_provider.MemoryProvider},
    "agent.secret_scope": {"get_secret": settings.get_secret},
    "agent.auxiliary_client": _named(models, "call_llm", "async_call_llm"),
    "hermes_state": {"SessionDB": places.SessionDB},
    "cron": {},
    "cron.jobs": _CRON,
}
