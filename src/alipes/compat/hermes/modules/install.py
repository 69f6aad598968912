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

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.modules.current_app import bind, is_bound, latest_home, unbind
from alipes.compat.hermes.modules.locks import release_all
from alipes.compat.hermes.modules.names import NAMES
from alipes.compat.hermes.modules.tool_registry import reset_toolsets
from alipes.compat.hermes.platform.values import set_cache_home

log = logging.getLogger(__name__)


_PACKAGES = ({name.rpartition(".")[0] for name in NAMES} | {"plugins"}) - {""}
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
        set_cache_home(latest_home())
        return
    set_cache_home(None)
    reset_toolsets()
    release_all()
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
