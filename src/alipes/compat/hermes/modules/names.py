"""The importable modules of Hermes and the names in each."""

import sys
from types import SimpleNamespace
from typing import Any

from alipes.compat.hermes import llm
from alipes.compat.hermes.hooks import VALID_HOOKS
from alipes.compat.hermes.modules import (
    async_functions,
    commands,
    config,
    cron_jobs,
    current_app,
    file_safety,
    gateway_names,
    locks,
    memory_provider,
    optional_packages,
    provider_classes,
    questions,
    redaction,
    session_context,
    speech,
    tool_registry,
    url_safety,
    utils,
)
from alipes.compat.hermes.platform import adapter, events, media_cache, message_text, proxies, values
from alipes.compat.hermes.platform.platform import OPEN_APPROVALS
from alipes.compat.hermes.session_keys import SessionSource, build_session_key
from alipes.compat.hermes.state import PlatformEntry


def resolve_gateway_approval(session_key: str, choice: str, resolve_all: bool = False, **more: Any) -> int:
    """Answer open approvals with `once`, `session`, `always` or `deny`. Returns how many were answered."""
    return OPEN_APPROVALS.resolve(session_key, choice, everything=resolve_all, by=str(more.get("by") or ""))


def has_blocking_approval(session_key: str) -> bool:
    return OPEN_APPROVALS.has_open(session_key)


def _pick(module: object, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


def _public(module: Any) -> dict[str, Any]:
    """The public functions and classes that the module defines."""
    own = ((name, value) for name, value in vars(module).items() if not name.startswith("_"))
    return {name: value for name, value in own if getattr(value, "__module__", None) == module.__name__}


_EVENT = _pick(values, "MessageEvent", "MessageType", "ProcessingOutcome")
_CACHES = _pick(
    values,
    *("cache_image_from_bytes", "cache_audio_from_bytes", "cache_video_from_bytes"),
    *("cache_document_from_bytes", "cleanup_image_cache", "cleanup_document_cache"),
)
_BASE: dict[str, Any] = {
    "BasePlatformAdapter": adapter.BasePlatformAdapter,
    "SendResult": values.SendResult,
    "SessionSource": SessionSource,
    "EphemeralReply": values.EphemeralReply,
    "build_session_key": build_session_key,
    "get_hermes_home": config.get_hermes_home,
    **_EVENT,
    **_CACHES,
    **_pick(values, "Platform", "PlatformConfig"),
    **_public(media_cache),
    **_pick(media_cache, "SUPPORTED_DOCUMENT_TYPES", "SUPPORTED_IMAGE_DOCUMENT_TYPES", "SUPPORTED_VIDEO_TYPES"),
    "_TEXT_INJECT_EXTENSIONS": media_cache.TEXT_EXTENSIONS,
    **_public(events),
    "_thread_metadata_for_source": events.thread_metadata_for_source,
    "_prefix_within_utf16_limit": events.prefix_within_utf16_limit,
    "_custom_unit_to_cp": events.custom_unit_to_cp,
    **_public(proxies),
    "safe_url_for_log": url_safety.safe_url_for_log,
    "is_safe_url": url_safety.is_safe_url,
    "_ssrf_redirect_guard": url_safety.ssrf_redirect_guard,
}
_CONFIG = _pick(
    config,
    *("load_config", "save_config", "set_config_value", "cfg_get", "load_env", "read_raw_config"),
    *("get_env_value", "save_env_value", "remove_env_value", "set_env_var", "atomic_config_write"),
    *("write_platform_config_field", "get_hermes_home", "get_config_path", "get_env_path"),
)
_SETUP = _pick(config, *config.__all__)
_CRON = _pick(
    cron_jobs,
    *("load_jobs", "list_jobs", "get_due_jobs", "get_job", "resolve_job_ref", "remove_job", "create_job"),
    *("update_job", "pause_job", "resume_job", "trigger_job", "save_jobs", "mark_job_run", "save_job_output"),
    *("parse_duration", "parse_schedule", "compute_next_run", "referenced_skill_names", "get_cron_output_dir"),
    "AmbiguousJobReference",
)
_CLASSES = provider_classes
_IMAGES = _pick(
    _CLASSES,
    *("ImageGenProvider", "DEFAULT_ASPECT_RATIO", "VALID_ASPECT_RATIOS", "resolve_aspect_ratio"),
    *("normalize_reference_images", "save_b64_image", "save_url_image"),
)
_VIDEOS = _pick(
    _CLASSES,
    *("VideoGenProvider", "OpenAICompatibleVideoGenProvider", "DEFAULT_RESOLUTION"),
    *("save_b64_video", "save_bytes_video", "save_url_video"),
)

_AGENT: dict[str, dict[str, Any]] = {
    "agent": {},
    "agent.async_utils": _public(async_functions),
    "agent.auxiliary_client": _pick(llm, "call_llm", "async_call_llm"),
    "agent.browser_provider": _pick(_CLASSES, "BrowserProvider"),
    "agent.context_engine": _pick(_CLASSES, "ContextEngine"),
    "agent.file_safety": _pick(file_safety, "get_read_block_error", "raise_if_read_blocked"),
    "agent.image_gen_provider": {
        **_IMAGES,
        "success_response": _CLASSES.image_success,
        "error_response": _CLASSES.image_error,
    },
    "agent.memory_manager": {"sanitize_context": memory_provider.sanitize_context},
    "agent.memory_provider": {"MemoryProvider": memory_provider.MemoryProvider},
    "agent.message_content": {"flatten_message_text": memory_provider.flatten_message_text},
    "agent.redact": _pick(redaction, "redact_sensitive_text"),
    "agent.secret_scope": {"get_secret": config.get_secret, "UnscopedSecretError": current_app.UnscopedSecretError},
    "agent.skill_commands": _pick(commands, "get_skill_commands"),
    "agent.transcription_provider": _pick(_CLASSES, "TranscriptionProvider"),
    "agent.tts_provider": _pick(
        _CLASSES, "TTSProvider", "DEFAULT_OUTPUT_FORMAT", "VALID_OUTPUT_FORMATS", "resolve_output_format"
    ),
    "agent.video_gen_provider": {
        **_VIDEOS,
        "DEFAULT_ASPECT_RATIO": _CLASSES.DEFAULT_VIDEO_RATIO,
        "success_response": _CLASSES.video_success,
        "error_response": _CLASSES.video_error,
    },
    "agent.web_search_provider": _pick(_CLASSES, "WebSearchProvider", "get_provider_env"),
}
_GATEWAY: dict[str, dict[str, Any]] = {
    "gateway": {},
    "gateway.channel_directory": _pick(gateway_names, "lookup_channel_type"),
    "gateway.config": {
        **_pick(values, "Platform", "PlatformConfig", "HomeChannel"),
        **_pick(gateway_names, "load_gateway_config"),
        "get_hermes_home": config.get_hermes_home,
        "_Platform__bundled_plugin_names": values.PLATFORM_NAMES,
    },
    "gateway.pairing": _pick(gateway_names, "PairingStore"),
    "gateway.platform_registry": {
        "PlatformEntry": PlatformEntry,
        **_pick(gateway_names, "PlatformRegistry", "platform_registry"),
    },
    "gateway.platforms": {},
    "gateway.platforms._http_client_limits": _pick(proxies, "platform_httpx_limits"),
    "gateway.platforms.base": _BASE,
    "gateway.platforms.event": _EVENT,
    "gateway.platforms.helpers": {**_public(message_text), **_pick(message_text, "TABLE_SEPARATOR_RE")},
    "gateway.rich_sent_store": {"record": gateway_names.record_sent_text, "lookup": gateway_names.lookup_sent_text},
    "gateway.run": {"_gateway_runner_ref": session_context._gateway_runner_ref, "cfg_get": config.cfg_get},
    "gateway.session": {"SessionSource": SessionSource, "build_session_key": build_session_key},
    "gateway.session_context": {"get_session_env": session_context.get_session_env},
    "gateway.slash_access": {"_coerce_id_list": gateway_names.coerce_id_list},
    "gateway.status": {
        **_pick(locks, "acquire_scoped_lock", "release_scoped_lock", "get_process_start_time"),
        "_pid_exists": locks.pid_exists,
        "_read_process_cmdline": locks.read_process_cmdline,
    },
    "gateway.sticker_cache": _pick(
        gateway_names,
        *("STICKER_VISION_PROMPT", "get_cached_description", "cache_sticker_description"),
        *("build_sticker_injection", "build_animated_sticker_injection"),
    ),
    "gateway.whatsapp_identity": _pick(gateway_names, "normalize_whatsapp_identifier", "to_whatsapp_jid"),
}
_CLI: dict[str, dict[str, Any]] = {
    "hermes_cli": {"__version__": "0.19.0"},
    "hermes_cli._subprocess_compat": {
        "IS_WINDOWS": sys.platform == "win32",
        "windows_hide_flags": lambda: 0,
        "windows_detach_flags": lambda: 0,
        "windows_detach_popen_kwargs": lambda: {"start_new_session": True},
    },
    "hermes_cli.cli_output": _SETUP,
    "hermes_cli.colors": {"Colors": config.NoColors, "color": config.color, "should_use_color": lambda: False},
    "hermes_cli.commands": {
        **_public(commands),
        "__getattr__": commands.find_constant,
        "_is_gateway_available": commands.is_gateway_available,
        "_iter_plugin_command_entries": commands.iter_plugin_command_entries,
        "_resolve_config_gates": commands.resolve_config_gates,
    },
    "hermes_cli.config": {**_CONFIG, "load_config_readonly": config.load_config, "get_env_var": config.get_env_value},
    "hermes_cli.gateway": {**_SETUP, **_CONFIG},
    "hermes_cli.plugins": {
        "VALID_HOOKS": VALID_HOOKS,
        "get_plugin_manager": lambda: SimpleNamespace(get_slack_action_handlers=list, list_plugins=list),
    },
    "hermes_cli.profiles": {"get_active_profile_name": config.get_active_profile_name},
    "hermes_cli.secret_prompt": {"masked_secret_prompt": config.masked_secret_prompt},
    "hermes_cli.setup": _SETUP,
    "hermes_cli.tools_config": {"_pip_install": optional_packages.pip_install},
    "hermes_constants": _pick(
        config, "get_hermes_home", "display_hermes_home", "get_hermes_dir", "find_node_executable"
    ),
    "hermes_state": _pick(session_context, "SessionDB", "apply_wal_with_fallback"),
}
_TOOLS: dict[str, dict[str, Any]] = {
    "tools": {},
    "tools.approval": {
        "resolve_gateway_approval": resolve_gateway_approval,
        "has_blocking_approval": has_blocking_approval,
    },
    "tools.clarify_gateway": {
        **_pick(questions, "resolve_gateway_clarify", "mark_awaiting_text"),
        "_entries": questions.pending_questions,
    },
    "tools.env_passthrough": _pick(gateway_names, "register_env_passthrough"),
    "tools.interrupt": {"is_interrupted": lambda: False},
    "tools.lazy_deps": {
        **_pick(optional_packages, "FeatureUnavailable", "ensure", "ensure_and_bind", "feature_missing"),
        **_pick(optional_packages, "is_available", "feature_install_command"),
    },
    "tools.registry": _pick(tool_registry, "registry", "ToolRegistry", "tool_error", "tool_result"),
    "tools.send_message_tool": {"_error": gateway_names.send_error},
    "tools.slash_confirm": _pick(questions, "get_pending", "resolve", "clear"),
    "tools.transcription_tools": _pick(speech, "transcribe_audio"),
    "tools.tts_tool": _pick(speech, "text_to_speech_tool", "check_tts_requirements"),
    "tools.url_safety": _public(url_safety),
    "tools.vision_tools": _pick(speech, "vision_analyze_tool"),
    "tools.website_policy": {"check_website_access": lambda url: None},
    "tools.voice_mode": {"is_whisper_hallucination": speech.is_whisper_hallucination},
    "toolsets": _pick(
        tool_registry,
        *("TOOLSETS", "_HERMES_CORE_TOOLS", "validate_toolset", "get_toolset", "resolve_toolset"),
        "create_custom_toolset",
    ),
}

NAMES: dict[str, dict[str, Any]] = {
    **_AGENT,
    **_GATEWAY,
    **_CLI,
    **_TOOLS,
    "cron": {},
    "cron.jobs": _CRON,
    "plugins": {},
    "utils": {**_public(utils), "TRUTHY_STRINGS": utils.TRUTHY_STRINGS},
}
"""By module, parents before their children."""
