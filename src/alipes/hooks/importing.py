"""Imports folders as packages of their own, always from their source. What is in the modules is not known.

A folder is `alipes_plugins.<slug>`; imported again while that is still in use, it gets a number behind its
name. So two versions of one plugin live side by side, and relative imports of each find its own.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = "alipes_plugins"


class _Source(SourceFileLoader):
    """Takes no bytecode: its stamp has whole seconds, and a file saved twice in one would be mistaken."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _Finder:
    """Finds what lies in the folders of our packages, as it lies there now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{PACKAGE}.") or path is None:
            return None
        for folder in path:
            finder = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_Source, [".py"]))
            if (spec := finder.find_spec(fullname, target)) is not None:
                return spec
        return None


def fresh(slug: str, folder: Path) -> ModuleType:
    """The package in `folder`, imported anew; raises what its code raises. `forget` it when it is closed."""
    _prepare()
    file = folder / "__init__.py"
    for number in count(1):
        name = f"{PACKAGE}.{slug}" if number == 1 else f"{PACKAGE}.{slug}_{number}"
        loader, inside = _Source(name, str(file)), [str(folder)]
        spec = spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)
        assert spec is not None
        module = module_from_spec(spec)
        if sys.modules.setdefault(name, module) is module:  # plugins are imported side by side, in threads
            break
    done = False
    try:
        loader.exec_module(module)
        done = True
    finally:
        if not done:
            forget(name)
    return module


def forget(name: str) -> None:
    """Take the package and all in it out of what is imported; who still holds something of it keeps that."""
    for each in tuple(sys.modules):  # others import meanwhile
        if each == name or each.startswith(f"{name}."):
            sys.modules.pop(each, None)


def _prepare() -> None:
    if PACKAGE not in sys.modules:
        parent = ModuleType(PACKAGE, "The plugins that lie in folders.")
        parent.__path__ = []
        sys.modules[PACKAGE] = parent
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
