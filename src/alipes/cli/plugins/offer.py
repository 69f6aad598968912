"""Installs plugins for a server that runs: first they are looked at, then exactly those files are installed."""

import asyncio
from pathlib import Path

from alipes.cli.plugins import describe
from alipes.cli.plugins.install import find_removable, make_version, refuse_duplicate
from alipes.config.environment import current_variables
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.plugins import pins
from alipes.plugins.discovery import DiscoveredPlugin, find_plugins
from alipes.plugins.install import packages
from alipes.plugins.install.fetch import FetchedPlugin, fetch
from alipes.plugins.install.install_dir import hash_tree, open_plugin_directory
from alipes.plugins.install.sources import Source, parse_source
from alipes.plugins.private_packages import PACKAGES
from alipes.web.control import PluginOffer


async def look_at(settings: Settings, text: str) -> PluginOffer:
    """Fetch the plugin of a source and describe it. Raises ConfigError."""
    source = parse_source(text)
    with open_plugin_directory(settings.paths) as directory, directory.open_staging() as stage:
        fetched = await fetch(source, stage, settings)
        await asyncio.to_thread(refuse_duplicate, directory, fetched.found.name, settings)
        return await asyncio.to_thread(_offer, settings, source, fetched)


def _offer(settings: Settings, source: Source, fetched: FetchedPlugin) -> PluginOffer:
    rows = describe.describe_plugin(fetched, source, current_variables(settings.paths))
    about = fetched.found.manifest
    details = tuple(row for row in rows if row[0])
    return PluginOffer(
        fetched.found.name, about.version, about.description, hash_tree(fetched.folder), details, fetched.plan.error
    )


async def install(settings: Settings, text: str, sha256: str) -> str:
    """Install the plugin that was looked at, with the packages it needs; its name. It is not enabled.

    Raises ConfigError.
    """
    source = parse_source(text)
    with open_plugin_directory(settings.paths) as directory, directory.open_staging() as stage:
        fetched = await fetch(source, stage, settings)
        name, plan = fetched.found.name, fetched.plan
        await asyncio.to_thread(refuse_duplicate, directory, name, settings)
        if await asyncio.to_thread(hash_tree, fetched.folder) != sha256:
            raise ConfigError(f"{name} was changed in {source} since you looked at it: look at it again.")
        if plan.error:
            raise ConfigError(f"{name} was not installed: {plan.error}")
        if plan.missing:
            await packages.install(plan.missing, fetched.folder / PACKAGES, stage)
        version = await asyncio.to_thread(make_version, source, fetched, plan.installed if plan.missing else ())
        await asyncio.to_thread(directory.install, name, fetched.folder, version)
        await asyncio.to_thread(_accept, settings, name)
    return name


def _accept(settings: Settings, name: str) -> None:
    pins.accept_plugin(settings.home, _find(settings, name))


def delete(settings: Settings, name: str) -> None:
    """Delete the folder of a plugin, which is not enabled. Raises ConfigError."""
    with open_plugin_directory(settings.paths) as directory:
        directory.delete(find_removable(directory, _find(settings, name)).name)


def check_removable(settings: Settings, name: str) -> Path:
    """The folder that `delete` would delete. Raises ConfigError."""
    with open_plugin_directory(settings.paths) as directory:
        return find_removable(directory, _find(settings, name))


def _find(settings: Settings, name: str) -> DiscoveredPlugin:
    found = next((each for each in find_plugins(settings) if each.name == name), None)
    if found is None:
        raise ConfigError(f"There is no plugin {name}.")
    return found
