"""Brings the code of a Hermes plugin in: a folder as `hermes_plugins.<slug>`, or the module of a package.

A folder that is imported again while the old code is in use gets a number behind its name, so that
relative imports of each version find their own.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from alipes.compat.hermes.bridge import PACKAGE
from alipes.hooks.finding import Found
from alipes.kernel.errors import PluginError


def module_name(found: Found) -> str:
    """Under which name its code will live."""
    if found.path is None:
        return found.entry.partition(":")[0]
    name, number = f"{PACKAGE}.{found.slug}", 1
    while name in sys.modules:
        number += 1
        name = f"{PACKAGE}.{found.slug}_{number}"
    return name


def register_of(found: Found, name: str) -> Callable[[Any], Any]:
    """Its `register`, imported as `name`. Raises what its code raises, `PluginError` if there is none."""
    if found.path is not None:
        thing: Any = _folder(found, found.path, name)
    else:
        thing = import_module(name)
        for attribute in filter(None, found.entry.partition(":")[2].split(".")):
            thing = getattr(thing, attribute)
    if isinstance(thing, ModuleType) or not callable(thing):
        thing = getattr(thing, "register", None)
    if not callable(thing):
        raise PluginError(found.name, "register", "there is no function `register(ctx)`")
    register: Callable[[Any], Any] = thing
    return register


def _folder(found: Found, folder: Path, name: str) -> ModuleType:
    file = folder / "__init__.py"
    if not file.is_file():
        raise PluginError(found.name, "register", f"{folder} has no __init__.py")
    if PACKAGE not in sys.modules:
        parent = ModuleType(PACKAGE, "The Hermes plugins that lie in folders.")
        parent.__path__ = []
        sys.modules[PACKAGE] = parent
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(folder)])
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    setattr(sys.modules[PACKAGE], name.rpartition(".")[2], module)
    spec.loader.exec_module(module)
    return module
