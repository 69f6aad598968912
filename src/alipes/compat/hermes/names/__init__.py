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

from alipes.compat.hermes.adapters_media import live_in
from alipes.compat.hermes.adapters_values import event_of
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.names.bound import bind, bridge, is_bound, unbind
from alipes.compat.hermes.names.table import NAMES
from alipes.compat.hermes.names.toolsets import forget

log = logging.getLogger(__name__)
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
