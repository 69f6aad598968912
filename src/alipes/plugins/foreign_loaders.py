"""Finds the loaders of plugins of other systems; a loader is imported with the first plugin that needs it."""

from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeAlias

from alipes.config.settings import Settings
from alipes.plugins.context import Host
from alipes.plugins.native_loader import PluginLoader

FindFeature: TypeAlias = Callable[[type[Any]], Any]
"""The feature of this class in the open app."""
MODULES: Mapping[str, str] = dict.fromkeys(("hermes", "file-hook", "shell-hooks"), "alipes.compat.hermes.loader")
"""By kind, the module with `open_loader` and `provided_names`."""


def foreign_loaders(
    host: Host, settings: Settings, find_feature: FindFeature | None = None
) -> dict[str, Callable[[], PluginLoader]]:
    """By kind; each is opened once. `find_feature`: of the app; without it, its features cannot be used."""

    @cache
    def open_loader(module: str) -> PluginLoader:
        loader: PluginLoader = import_module(module).open_loader(host, settings, find_feature)
        return loader

    return {kind: partial(open_loader, module) for kind, module in MODULES.items()}


@cache
def provided_names() -> Mapping[str, Collection[str]]:
    """The modules of other systems that their plugins may import, and the names in each."""
    names: dict[str, Collection[str]] = {}
    for module in set(MODULES.values()):
        names |= import_module(module).provided_names()
    return names
