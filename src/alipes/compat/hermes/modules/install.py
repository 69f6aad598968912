"""Puts the importable names of the original into `sys.modules`, and takes them out again.

A module that someone else has loaded under such a name stays theirs, whole: it gets no name of ours.
Only what of it is not there yet is added beside it (`tools.registry` beside somebody's own `tools`).
One that could be loaded and is not is hidden as long as a Hermes plugin is open. Both are said.
"""

import importlib.util
import logging
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.hooks import VALID_HOOKS
from alipes.compat.hermes.modules import config, memory_provider, session_context, small, tool_registry
from alipes.compat.hermes.modules.current_app import bind, bridge, is_bound, unbind
from alipes.compat.hermes.modules.small import transcribe_audio
from alipes.compat.hermes.modules.tool_registry import forget
from alipes.compat.hermes.platform import adapter, questions, values
from alipes.compat.hermes.platform.questions import ASKING, live_in
from alipes.compat.hermes.platform.values import event_of
from alipes.compat.hermes.session_keys import SessionSource, build_session_key

log = logging.getLogger(__name__)


def resolve_gateway_approval(session_key: str, choice: str, resolve_all: bool = False, **more: Any) -> int:
    """The person's word (`once`, `session`, `always`, `deny`) on what waits there; how many waited."""
    return ASKING.resolve(session_key, choice, everything=resolve_all, by=str(more.get("by") or ""))


def _named(module: object, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


_EVENT = _named(values, "MessageEvent", "MessageType", "ProcessingOutcome")
_CACHES = _named(
    questions,
    *("cache_image_from_bytes", "cache_audio_from_bytes", "cache_video_from_bytes"),
    *("cache_document_from_bytes", "cleanup_image_cache", "cleanup_document_cache"),
)
_CONFIG = _named(
    config,
    *("load_config", "save_config", "set_config_value", "cfg_get", "load_env"),
    *("get_env_value", "save_env_value", "remove_env_value"),
)
_SETUP = _named(config, *config.__all__)
_CRON = _named(
    small,
    *("load_jobs", "list_jobs", "get_due_jobs", "get_job", "remove_job", "create_job"),
    *("update_job", "pause_job", "resume_job", "trigger_job", "save_jobs"),
)

NAMES: dict[str, dict[str, Any]] = {
    "hermes_constants": _named(small, "get_hermes_home", "display_hermes_home", "get_hermes_dir"),
    "hermes_cli": {},
    "hermes_cli.config": {
        **_CONFIG,
        "load_config_readonly": config.load_config,
        **_named(small, "get_hermes_home", "get_config_path", "get_env_path"),
    },
    "hermes_cli.plugins": {"VALID_HOOKS": VALID_HOOKS},
    "hermes_cli.profiles": {"get_active_profile_name": small.get_active_profile_name},
    "hermes_cli.setup": _SETUP,
    "hermes_cli.cli_output": _SETUP,
    "tools": {},
    "tools.registry": _named(tool_registry, "registry", "ToolRegistry", "tool_error", "tool_result"),
    "tools.transcription_tools": {"transcribe_audio": transcribe_audio},
    "tools.approval": {"resolve_gateway_approval": resolve_gateway_approval},
    "toolsets": _named(
        tool_registry,
        *("TOOLSETS", "_HERMES_CORE_TOOLS", "validate_toolset", "get_toolset", "resolve_toolset"),
        "create_custom_toolset",
    ),
    "gateway": {},
    "gateway.config": _named(values, "Platform", "PlatformConfig", "HomeChannel"),
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
    "agent.auxiliary_client": _named(small, "call_llm", "async_call_llm"),
    "hermes_state": {"SessionDB": session_context.SessionDB},
    "cron": {},
    "cron.jobs": _CRON,
}

_PACKAGES = {name.rpartition(".")[0] for name in NAMES} - {""}
_OURS: dict[str, ModuleType] = {}
_LENT: list[tuple[ModuleType, str]] = []
"""Modules of others, and what we hung onto them so that `import a.b` finds b."""


def install(house: Bridge) -> tuple[str, ...]:
    """Let plugins of this app import the names. What stood in the way is returned, and said in the log."""
    bind(house)
    live_in(house.home)
    house.event_of = event_of
    if _OURS:
        return ()
    said = []
    for name in NAMES:
        if "." not in name and (word := _in_the_way(name)):
            log.warning("%s", word)
            said.append(word)
    for name in NAMES:
        if not _theirs(name):
            _put(name)
    return tuple(said)


def uninstall(house: Bridge | None = None) -> None:
    """Take them out, once the last app that wanted them is gone; what plugins hold of them stays theirs."""
    unbind(house)
    if is_bound():
        live_in(bridge().home)
        return
    live_in(None)
    forget()
    for name, module in _OURS.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    for parent, name in _LENT:
        if getattr(parent, name, None) in _OURS.values():
            delattr(parent, name)
    _OURS.clear()
    _LENT.clear()


def _in_the_way(name: str) -> str:
    if name in sys.modules:
        return f"a module {name} of someone else is loaded already: it stays, and plugins will find it there"
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    if spec is None or spec.origin is None:  # a mere folder of that name is nobody's module
        return ""
    return f"the module {name} in {spec.origin} is hidden from everyone while a Hermes plugin is open"


def _theirs(name: str) -> bool:
    """Has somebody else this module, loaded or to be loaded below one that is theirs?"""
    if name in sys.modules:
        return True
    parent = name.rpartition(".")[0]
    if not parent or parent in _OURS:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _put(name: str) -> None:
    module = ModuleType(name, f"`{name}` of Hermes Agent, as far as alipes has it.")
    module.__dict__.update(NAMES[name])
    module.__file__ = __file__  # so that an ImportError says whose module it is
    module.__spec__ = ModuleSpec(name, None, origin=__file__, is_package=name in _PACKAGES)
    if name in _PACKAGES:
        module.__path__ = []
    sys.modules[name] = _OURS[name] = module
    parent, _, last = name.rpartition(".")
    if parent and not hasattr(sys.modules[parent], last):
        setattr(sys.modules[parent], last, module)
        if parent not in _OURS:
            _LENT.append((sys.modules[parent], last))
