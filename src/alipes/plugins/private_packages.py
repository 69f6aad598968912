"""Python packages that belong to one plugin: `.packages` in its folder, found by imports of its own code only.

There is one `sys.modules`: if two plugins bring different versions of a package, the first one imported serves
both. The packages of alipes' own Python take precedence.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = ".packages"

_PLUGINS: dict[str, str] = {}
"""By the prefix of a plugin's files: its packages."""
_LOADED: dict[str, tuple[int, int]] = {}
"""Which folder (device, inode) was there when a plugin was last imported."""


def use_private_packages(folder: Path) -> None:
    """Let the code in `folder` import its packages. After an update, the old versions are forgotten."""
    place = folder.absolute() / PACKAGES
    try:
        stat = place.stat()
    except OSError:
        return
    for path in {folder, folder.absolute(), folder.resolve()}:
        _PLUGINS[f"{path}{os.sep}"] = str(place)
    if not any(isinstance(finder, _PrivateFinder) for finder in sys.meta_path):
        sys.meta_path.append(_PrivateFinder())
    before = _LOADED.get(str(place))
    _LOADED[str(place)] = stat.st_dev, stat.st_ino
    if before not in (None, _LOADED[str(place)]):
        _forget_modules(f"{place}{os.sep}")
        invalidate_caches()


def _forget_modules(prefix: str) -> None:
    for name, module in tuple(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(prefix):
            sys.modules.pop(name, None)


class _PrivateFinder:
    """Asked last: finds what the plugin whose code is importing has in its packages."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = _packages_of_caller()
        if place is None:
            return None
        parents = fullname.split(".")[:-1]  # part of a namespace package that is also elsewhere
        return PathFinder.find_spec(fullname, [os.path.join(place, *parents)], target)

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        """For `importlib.metadata.version` in a plugin."""
        metadata: Any = import_module("importlib.metadata")
        place = _packages_of_caller()
        if place is None:
            return ()
        given = metadata.DistributionFinder.Context(name=getattr(context, "name", None), path=[place])
        found: Iterable[Any] = metadata.MetadataPathFinder.find_distributions(given)
        return found


def _packages_of_caller() -> str | None:
    """The packages of the plugin whose code is running."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        for prefix, place in tuple(_PLUGINS.items()):
            if file.startswith(prefix):
                return place
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
