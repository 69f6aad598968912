"""Installs the importable modules of Hermes into `sys.modules` and removes them again.

Modules that others have loaded stay untouched; only missing submodules are added beside them
(`tools.registry` beside a foreign `tools`). Importable modules of the same name are hidden while a Hermes
plugin is open. Both cases are logged.
"""

import importlib.util
import logging
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from alipes.compat.hermes import llm
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.hooks import VALID_HOOKS
from alipes.compat.hermes.modules import config, memory_provider, session_context, tool_registry, unavailable
from alipes.compat.hermes.modules.current_app import bind, bridge, is_bound, unbind
from alipes.compat.hermes.modules.tool_registry import reset_toolsets
from alipes.compat.hermes.platform import adapter, values
from alipes.compat.hermes.platform.platform import OPEN_APPROVALS
from alipes.compat.hermes.platform.values import set_cache_home
from alipes.compat.hermes.session_keys import SessionSource, build_session_key

log = logging.getLogger(__name__)


def resolve_gateway_approval(session_key: str, choice: str, resolve_all: bool = False, **more: Any) -> int:
    """Answer open approvals with `once`, `session`, `always` or `deny`. Returns how many were answered."""
    return OPEN_APPROVALS.resolve(session_key, choice, everything=resolve_all, by=str(more.get("by") or ""))


def _pick(module: object, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


_EVENT = _pick(values, "MessageEvent", "MessageType", "ProcessingOutcome")
_CACHES = _pick(
    values,
    *("cache_image_from_bytes", "cache_audio_from_bytes", "cache_video_from_bytes"),
    *("cache_document_from_bytes", "cleanup_image_cache", "cleanup_document_cache"),
)
_CONFIG = _pick(
    config,
    *("load_config", "save_config", "set_config_value", "cfg_get", "load_env"),
    *("get_env_value", "save_env_value", "remove_env_value"),
)
_SETUP = _pick(config, *config.__all__)
_CRON = _pick(
    unavailable,
    *("load_jobs", "list_jobs", "get_due_jobs", "get_job", "remove_job", "create_job"),
    *("update_job", "pause_job", "resume_job", "trigger_job", "save_jobs"),
)

NAMES: dict[str, dict[str, Any]] = {
    "hermes_constants": _pick(config, "get_hermes_home", "display_hermes_home", "get_hermes_dir"),
    "hermes_cli": {},
    "hermes_cli.config": {
        **_CONFIG,
        "load_config_readonly": config.load_config,
        **_pick(config, "get_hermes_home", "get_config_path", "get_env_path"),
    },
    "hermes_cli.plugins": {"VALID_HOOKS": VALID_HOOKS},
    "hermes_cli.profiles": {"get_active_profile_name": config.get_active_profile_name},
    "hermes_cli.setup": _SETUP,
    "hermes_cli.cli_output": _SETUP,
    "tools": {},
    "tools.registry": _pick(tool_registry, "registry", "ToolRegistry", "tool_error", "tool_result"),
    "tools.transcription_tools": {"transcribe_audio": unavailable.transcribe_audio},
    "tools.approval": {"resolve_gateway_approval": resolve_gateway_approval},
    "toolsets": _pick(
        tool_registry,
        *("TOOLSETS", "_HERMES_CORE_TOOLS", "validate_toolset", "get_toolset", "resolve_toolset"),
        "create_custom_toolset",
    ),
    "gateway": {},
    "gateway.config": _pick(values, "Platform", "PlatformConfig", "HomeChannel"),
    "gateway.platforms": {},
    "gateway.platforms.base": {
        "BasePlatformAdapter": adapter.BasePlatformAdapter,
        "SendResult": values.SendResult,
        "SessionSource": SessionSource,
        **_EVENT,
        **_CACHES,
    },
    "gateway.platforms.event": _EVENT,
    "gateway.session": {"SessionSource": SessionSource, "build_session_key": build_session_key},
    "gateway.session_context": {"get_session_env": session_context.get_session_env},
    "gateway.run": {"_gateway_runner_ref": session_context._gateway_runner_ref},
    "agent": {},
    "agent.memory_provider": {"MemoryProvider": memory_provider.MemoryProvider},
    "agent.secret_scope": {"get_secret": config.get_secret},
    "agent.auxiliary_client": _pick(llm, "call_llm", "async_call_llm"),
    "hermes_state": {"SessionDB": session_context.SessionDB},
    "cron": {},
    "cron.jobs": _CRON,
}

_PACKAGES = {name.rpartition(".")[0] for name in NAMES} - {""}
_INSTALLED: dict[str, ModuleType] = {}
_ATTACHED: list[tuple[ModuleType, str]] = []
"""Foreign modules and the attributes we set, so that `import a.b` finds b."""


def install(app_bridge: Bridge) -> tuple[str, ...]:
    """Install the modules for this app. Returns and logs conflicts with other modules."""
    bind(app_bridge)
    set_cache_home(app_bridge.home)
    if _INSTALLED:
        return ()
    conflicts = []
    for name in NAMES:
        if "." not in name and (word := _find_conflict(name)):
            log.warning("%s", word)
            conflicts.append(word)
    for name in NAMES:
        if not _is_foreign(name):
            _install_module(name)
    return tuple(conflicts)


def uninstall(app_bridge: Bridge | None = None) -> None:
    """Remove the modules when the last app that uses them is closed."""
    unbind(app_bridge)
    if is_bound():
        set_cache_home(bridge().home)
        return
    set_cache_home(None)
    reset_toolsets()
    for name, module in _INSTALLED.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    for parent, name in _ATTACHED:
        if getattr(parent, name, None) in _INSTALLED.values():
            delattr(parent, name)
    _INSTALLED.clear()
    _ATTACHED.clear()


def _find_conflict(name: str) -> str:
    if name in sys.modules:
        return f"another module {name} is already loaded; plugins will find that one"
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    if spec is None or spec.origin is None:  # a namespace folder is not a module
        return ""
    return f"the module {name} in {spec.origin} is hidden while a Hermes plugin is open"


def _is_foreign(name: str) -> bool:
    """True if somebody else has this module, loaded or importable."""
    if name in sys.modules:
        return True
    parent = name.rpartition(".")[0]
    if not parent or parent in _INSTALLED:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _install_module(name: str) -> None:
    module = ModuleType(name, f"`{name}` of Hermes Agent, as provided by alipes.")
    module.__dict__.update(NAMES[name])
    module.__file__ = __file__  # shown in ImportErrors
    module.__spec__ = ModuleSpec(name, None, origin=__file__, is_package=name in _PACKAGES)
    if name in _PACKAGES:
        module.__path__ = []
    sys.modules[name] = _INSTALLED[name] = module
    parent, _, last = name.rpartition(".")
    if parent and not hasattr(sys.modules[parent], last):
        setattr(sys.modules[parent], last, module)
        if parent not in _INSTALLED:
            _ATTACHED.append((sys.modules[parent], last))
