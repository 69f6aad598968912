"""Puts the plugins of a test where the loader looks for plugins: it then takes them for installed ones."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from alipes.app import App
from alipes.hooks.finding import look_at
from alipes.kernel.errors import PluginError

Plugin: TypeAlias = ModuleType | Path | str
"""A module, or the folder of one."""


@contextmanager
def installed(home: Path, plugins: Iterable[Plugin]) -> Iterator[tuple[str, ...]]:
    """Their names, to be enabled. A folder is linked into the home; a module is, until this is left, what a
    package on `sys.path` brings along: so it is the very module that the test knows."""
    plugins = tuple(plugins)
    modules = [each for each in plugins if isinstance(each, ModuleType)]
    folders = {_name(each): Path(each).absolute() for each in plugins if not isinstance(each, ModuleType)}
    for name, folder in folders.items():
        _link(home / "plugins" / name, folder)
    packages = str(home / "packages")
    if modules:
        _package(Path(packages, "plugins_of_this_test-0.dist-info"), modules)
        sys.path.append(packages)
    try:
        yield tuple(_name(each) for each in plugins)
    finally:
        if modules:
            sys.path.remove(packages)


def demand(app: App) -> None:
    """Raise `PluginError` with the reason where one could not be opened: a test must not go on without."""
    for facts in app.plugins.facts():
        if facts.state != "on":
            raise PluginError(facts.name, "not loaded", facts.why)


def _name(plugin: Plugin) -> str:
    if isinstance(plugin, ModuleType):
        return plugin.__name__.rpartition(".")[2]
    found = look_at(Path(plugin))
    if found is None:
        raise PluginError(str(plugin), "not loaded", "there is no plugin in this folder")
    return found.name


def _link(link: Path, folder: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder)


def _package(folder: Path, modules: Iterable[ModuleType]) -> None:
    """What an installed package leaves on the disk: its name, and its entry points."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in modules:
        sys.modules.setdefault(module.__name__, module)  # one that was made by hand can be imported nowhere
    points = [f"{_name(module)} = {module.__name__}" for module in modules]
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-of-this-test\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join(["[alipes.plugins]", *points, ""]))
