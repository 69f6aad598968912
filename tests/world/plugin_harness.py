"""Plugins in real folders, opened with hooks and contributions only."""

from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

from alipes.config.settings import PluginsConfig, Settings
from alipes.plugins.dispatch import Hooks
from alipes.plugins.loader import Plugins
from alipes.plugins.registry import Contributions
from tests.world.commands import NamedCommand


class Nobody:
    """A host without any functions."""


class PluginHarness:
    """Hooks, contributions and plugins."""

    def __init__(self, plugins, hooks, offers):
        self.plugins, self.hooks, self.contributions = plugins, hooks, offers

    def fact(self, name):
        return next(each for each in self.plugins.statuses() if each.name == name)


def write_plugin(home: Path, name: str, code: str = "", *, root: str = "plugins", **files: str) -> Path:
    """Write a plugin's folder; `files` by name, with `_` for the dot before the suffix."""
    folder = home / root / name
    folder.mkdir(parents=True, exist_ok=True)
    if code:
        (folder / "__init__.py").write_text(dedent(code))
    for file, text in files.items():
        stem, _, ending = file.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(dedent(text))
    return folder


def settings_for(home: Path, *enabled: str, **more) -> Settings:
    return Settings(home=home, plugins=PluginsConfig(enabled=enabled, **more))


@asynccontextmanager
async def open_plugin_harness(settings: Settings, *, doors=None, host=None, reserved=(), opening=10.0):
    hooks, offers = Hooks(settings.plugins.deadline), Contributions(lambda: map(NamedCommand, reserved))
    plugins = Plugins(settings, hooks, offers, host=host or Nobody(), loaders=doors or {}, opening=opening)
    async with plugins.open():
        yield PluginHarness(plugins, hooks, offers)
