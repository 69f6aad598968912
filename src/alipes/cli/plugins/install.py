"""Installs, updates, rolls back and removes plugins."""

import asyncio
import sys
import time
from pathlib import Path

from msgspec import Struct

from alipes.cli.plugins import describe
from alipes.cli.plugins.list import check_needs, disable, enable, find_plugin
from alipes.config.loader import build_settings
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.console.common import DescriptionRow, confirm, print_rows
from alipes.kernel.errors import ConfigError
from alipes.plugins import pins
from alipes.plugins.discovery import DiscoveredPlugin, find_plugins, inspect_folder
from alipes.plugins.install import packages
from alipes.plugins.install.code_check import scan_plugin
from alipes.plugins.install.fetch import FetchedPlugin, fetch
from alipes.plugins.install.install_dir import (
    InstalledPackage,
    PluginDirectory,
    PluginVersion,
    hash_dependencies,
    hash_tree,
    open_plugin_directory,
)
from alipes.plugins.install.sources import Source, github_address
from alipes.plugins.private_packages import PACKAGES


class InstallOptions(Struct, frozen=True):
    yes: bool = False
    enable: bool = True
    packages: bool = True
    """Install the packages it needs."""


def install(source: Source, options: InstallOptions) -> int:
    """Fetch, show, ask, install and enable. A failure leaves nothing behind."""
    reading = read_config()
    settings = build_settings(reading)  # report broken settings before anything is fetched
    with open_plugin_directory(reading.paths) as directory, directory.open_staging() as stage:
        fetched = _fetch(source, stage, settings)
        name = fetched.found.name
        refuse_duplicate(directory, name, settings)
        print_rows(describe.describe_plugin(fetched, source, reading.variables))
        if fetched.plan.error and options.packages:
            _print_note(f"{name} was not installed. To install it without its packages, add --no-packages.")
            return 1
        question = f"Install {'and enable ' if options.enable else ''}{name}?"
        if not options.yes and not confirm(question, "install it"):
            _print_note("nothing installed")
            return 1
        packages = _install_packages(fetched, stage, options)
        directory.install(name, fetched.folder, make_version(source, fetched, packages))
        try:
            if options.enable:
                enable(name)
        except ConfigError:
            directory.delete(name)
            raise
        pins.accept_plugin(settings.home, find_plugin(name))
    print(f"{name} is installed{' and enabled from the next start' if options.enable else ''}.")
    print_needs(find_plugin(name), settings)
    return 0


def confirm_address(text: str, options: InstallOptions) -> bool:
    """Show the full address of `owner/name`, and ask. True for any other source."""
    address = github_address(text)
    if not address:
        return True
    _print_note(f"{text} means {address}")
    if options.yes or confirm(f"Fetch {address}?", "fetch it"):
        return True
    _print_note("nothing fetched")
    return False


def update(name: str, options: InstallOptions) -> int:
    """Fetch the newest version from the source; the current version is kept."""
    reading = read_config()
    settings = build_settings(reading)
    with open_plugin_directory(reading.paths) as directory, directory.open_staging() as stage:
        old = directory.find(name)
        source = old.now.source
        fetched = _fetch(source, stage, settings)
        if fetched.found.name != name:
            raise ConfigError(f"{source} is now called {fetched.found.name}: install that one and remove {name}.")
        pin = make_version(source, fetched)
        if fetched.plan.error and options.packages:
            raise ConfigError(f"{name} was not updated: {fetched.plan.error}")
        wanted = fetched.plan.installed if options.packages else old.now.dependencies
        if pin.sha256 == old.now.sha256 and wanted == old.now.dependencies:
            print(f"{name} is up to date: {old.now}.")
            return 0
        print_rows(
            describe.describe_plugin(fetched, source, reading.variables, _new_abilities(directory, name, fetched))
        )
        same_code = pin.sha256 == old.now.sha256 and bool(wanted)
        question = f"Update {name} from {old.now} to {pin}?"
        agreed = options.yes or same_code or confirm(question, "update it")
        installed = _install_packages(fetched, stage, options) if agreed else ()
        if not agreed or (same_code and not installed):
            _print_note(f"{name} was not changed")
            return 1
        pin = make_version(source, fetched, installed)
        directory.install(name, fetched.folder, pin)
        pins.accept_plugin(settings.home, find_plugin(name))
    print(f"{name} is now {pin}; to return to {old.now}, use `alipes plugins update --rollback {name}`.")
    print(f"Use `/plugins reload {name}` in a running alipes.")
    print_needs(find_plugin(name), settings)
    return 0


def roll_back(name: str) -> int:
    settings = build_settings(read_config())
    with open_plugin_directory(settings.paths) as directory:
        was = directory.find(name).now
        now = directory.roll_back(name)
        pins.accept_plugin(settings.home, find_plugin(name))
    print(f"{name} is back at {now}; {was} is kept.")
    return 0


def accept(name: str, options: InstallOptions) -> int:
    """Show which files changed, ask, and pin the plugin to its current files."""
    settings = build_settings(read_config())
    found = find_plugin(name)
    if found.path is None:
        raise ConfigError(f"{name} belongs to {found.source}, which pip installed: it is not pinned.")
    changes = pins.find_changes(settings.home, found)
    if not changes and pins.is_pinned(settings.home, found):
        print(f"{name} has not changed.")
        return 0
    print(f"{found.path}: {changes or 'not accepted before'}.")
    if not options.yes and not confirm(f"Load {name} with these files?", "accept them"):
        _print_note(f"{name} was not accepted")
        return 1
    pins.accept_plugin(settings.home, found)
    print(f"{name} is accepted and will be loaded from the next start.")
    return 0


def remove(name: str, options: InstallOptions) -> int:
    """Disable it and delete its folder; its data folder stays."""
    reading = read_config()
    with open_plugin_directory(reading.paths) as directory:
        found = find_plugin(name)
        path = find_removable(directory, found)
        by_hand = "" if name in directory.installed else ", which was not installed by alipes"
        if not options.yes and not confirm(f"Delete {path}{by_hand}?", "remove it"):
            _print_note("nothing removed")
            return 1
        disable(name)
        directory.delete(path.name)
    print(f"{name} is disabled and removed.")
    return 0


def find_removable(directory: PluginDirectory, found: DiscoveredPlugin) -> Path:
    """The folder of a plugin that can be deleted. Raises ConfigError."""
    if found.path is not None and found.path.parent == directory.plugins:
        return found.path
    if found.path is None and found.entry:
        raise ConfigError(f"{found.name} belongs to {found.source}: remove it with `pip uninstall`, or use `disable`.")
    where = found.path or found.source
    raise ConfigError(f"{found.name} is in {where}, not in the plugins folder: remove it there, or disable it.")


def _fetch(source: Source, stage: Path, settings: Settings) -> FetchedPlugin:
    if source.kind != "folder":
        _print_note(f"fetching {source}")
    return asyncio.run(fetch(source, stage, settings))


def refuse_duplicate(directory: PluginDirectory, name: str, settings: Settings) -> None:
    """Raises ConfigError if there is a plugin of this name."""
    if name in directory.installed:
        source = directory.installed[name].now.source
        raise ConfigError(f"{name} is already installed from {source}: use `alipes plugins update {name}`.")
    if name in directory:
        raise ConfigError(
            f"{directory.plugins / name} already exists and was not installed by alipes: move it away first."
        )
    if other := next((each for each in find_plugins(settings) if each.name == name), None):
        raise ConfigError(f"Plugin {name} already exists in {other.path or other.source}: remove it first.")


def _install_packages(fetched: FetchedPlugin, stage: Path, options: InstallOptions) -> tuple[InstalledPackage, ...]:
    """Ask, then install the packages it needs into its folder. Without consent, it gets none."""
    plan = fetched.plan
    if not plan.missing or not options.packages:
        return ()
    names = ", ".join(f"{each.name} {each.version}" for each in plan.installed)
    if not options.yes and not confirm(f"Also install {names} into its folder?", "install them"):
        return ()
    asyncio.run(packages.install(plan.missing, fetched.folder / PACKAGES, stage))
    return plan.installed


def make_version(
    source: Source, fetched: FetchedPlugin, dependencies: tuple[InstalledPackage, ...] = ()
) -> PluginVersion:
    """What is kept of an installed version."""
    return PluginVersion(
        source,
        fetched.exact,
        hash_tree(fetched.folder),
        time.time(),
        fetched.found.manifest.version,
        fetched.packages,
        dependencies,
        hash_dependencies(fetched.folder),
    )


def _new_abilities(directory: PluginDirectory, name: str, fetched: FetchedPlugin) -> list[DescriptionRow]:
    folder = directory.plugins / name
    found = inspect_folder(folder) or fetched.found
    before = describe.list_abilities(found, scan_plugin(folder, directory.installed[name].now.packages))
    after = describe.list_abilities(fetched.found, scan_plugin(fetched.folder, fetched.packages))
    return list(describe.new_abilities(before, after))


def print_needs(found: DiscoveredPlugin, settings: Settings) -> None:
    """Print the variables and packages that it needs and does not have."""
    for need in check_needs(found, settings):
        print(f"It needs {need.says}: use {need.advice}")


def _print_note(line: str) -> None:
    sys.stderr.write(f"alipes: {line}\n")
    sys.stderr.flush()
