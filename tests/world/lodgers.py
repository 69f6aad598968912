"""Plugins in real folders, and a house to open them in that is no more than hooks and offers."""

from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent

from alipes.config.settings import Settings
from alipes.config.settings_parts import PluginSettings
from alipes.plugins.dispatch import Hooks
from alipes.plugins.loader import open_plugins
from alipes.plugins.registry import Offers


class Nobody:
    """A host that can do nothing."""


class Place:
    """Hooks, offers and plugins of one house."""

    def __init__(self, plugins, hooks, offers):
        self.plugins, self.hooks, self.offers = plugins, hooks, offers

    def fact(self, name):
        return next(each for each in self.plugins.facts() if each.name == name)


def write(home: Path, name: str, code: str = "", *, root: str = "plugins", **files: str) -> Path:
    """A plugin's folder; `files` by name, with `_` for the dot before the ending."""
    folder = home / root / name
    folder.mkdir(parents=True, exist_ok=True)
    if code:
        (folder / "__init__.py").write_text(dedent(code))
    for file, text in files.items():
        stem, _, ending = file.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(dedent(text))
    return folder


def settings_for(home: Path, *enabled: str, **more) -> Settings:
    return Settings(home=home, plugins=PluginSettings(enabled=enabled, **more))


@asynccontextmanager
async def open_place(settings: Settings, *, doors=None, host=None, reserved=(), opening=10.0):
    hooks, offers = Hooks(settings.plugins.deadline), Offers(lambda: reserved)
    async with open_plugins(
        settings, hooks=hooks, offers=offers, host=host or Nobody(), doors=doors or {}, opening=opening
    ) as plugins:
        yield Place(plugins, hooks, offers)
