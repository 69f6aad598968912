"""`alipes plugins`: lists, enables, installs, updates, checks and creates plugins."""

import asyncio
from pathlib import Path

from msgspec import Struct

from alipes.cli.main import command_names
from alipes.cli.plugins import doctor, install, scaffold
from alipes.cli.plugins.install import InstallOptions
from alipes.cli.plugins.list import disable, enable, find_plugin, format_plugins, list_plugins
from alipes.config.loader import load_settings
from alipes.console import common, help_text
from alipes.console.common import print_json, print_lines
from alipes.console.options import OptionParser
from alipes.kernel.formatting import did_you_mean
from alipes.plugins import pins
from alipes.plugins.install.sources import parse_source
from alipes.runtime.log_file import open_log

ACTIONS = ("list", "enable", "disable", "accept", "install", "update", "remove", "doctor", "new")
_ACTIONS_OF_OPTION = {
    **dict.fromkeys(("ref", "folder", "entry", "no_enable"), ("install",)),
    "no_packages": ("install", "update"),
    "yes": ("install", "update", "remove", "accept"),
    "rollback": ("update",),
    "hermes": ("new",),
    "json": ("list", "doctor"),
}
"""The actions that each option is for."""


class PluginsOptions(Struct, frozen=True):
    action: str
    name: str = ""
    """The name of a plugin; for `install` the SOURCE."""
    ref: str = ""
    folder: str = ""
    entry: str = ""
    no_enable: bool = False
    no_packages: bool = False
    yes: bool = False
    rollback: bool = False
    hermes: bool = False
    json: bool = False


def parse_plugins(argv: list[str]) -> PluginsOptions:
    parser = OptionParser("alipes plugins", help_text.PLUGINS)
    for flag in ("--rollback", "--hermes"):
        parser.add_argument(flag, action="store_true")
    args, named = parser.parse_with_words(argv)
    action, *name = named or ["list"]
    if action not in ACTIONS:
        meant = did_you_mean(action, ACTIONS)
        parser.error(f"unknown action: {action} (use {', '.join(ACTIONS)}).{meant}")
    what = "SOURCE" if action == "install" else "NAME"
    if action == "list" and name:
        parser.error("`list` takes no name")
    if action not in ("list", "doctor") and not name:
        parser.error(f"`{action}` needs a {what}")
    if len(name) > 1:
        parser.error(f"`{action}` takes one {what}, got {len(name)}")
    chosen = {option: getattr(args, option) for option in _ACTIONS_OF_OPTION}
    for option, actions in _ACTIONS_OF_OPTION.items():
        if chosen[option] and action not in actions:
            parser.error(f"--{option.replace('_', '-')} is for `{'` and `'.join(actions)}`, not `{action}`")
    return PluginsOptions(action, "".join(name), **chosen)


def run(argv: list[str]) -> int:
    options = parse_plugins(argv)
    match options.action:
        case "list":
            return _list(options.json)
        case "doctor":
            return _doctor(options)
        case "new":
            return _new(options)
        case "enable":
            return _enable(options.name)
        case "disable":
            changed = disable(options.name)
            print(f"{options.name} is {'disabled from the next start' if changed else 'not enabled'}.")
            return 0
    return _change(options)


def _change(options: PluginsOptions) -> int:
    """The actions that change the files of a plugin, or accept them."""
    install_options = InstallOptions(options.yes, not options.no_enable, not options.no_packages)
    match options.action:
        case "accept":
            return install.accept(options.name, install_options)
        case "install":
            source = parse_source(options.name, ref=options.ref, folder=options.folder, entry=options.entry)
            if not install.confirm_address(options.name.strip(), install_options):
                return 1
            return install.install(source, install_options)
        case "update" if options.rollback:
            return install.roll_back(options.name)
        case "update":
            return install.update(options.name, install_options)
        case _:
            return install.remove(options.name, install_options)


def _list(json: bool) -> int:
    known = list_plugins(load_settings())
    if json:
        print_json(known)
    elif not known:
        print("No plugins installed. Use `alipes plugins install SOURCE`, or create one with `new`.")
    else:
        print_lines(format_plugins(known))
    return 0


def _doctor(options: PluginsOptions) -> int:
    """Check the plugins. The status is 1 if there are problems."""
    if options.name:
        find_plugin(options.name)
    settings = load_settings()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        found = asyncio.run(doctor.check_plugins(settings, options.name, command_names()))
    if options.json:
        print_json(found)
    elif not found:
        print("No plugins installed.")
    else:
        common.print_checks(found)
        common.print_verdict(found)
    return int(any(finding.state == "wrong" for finding in found))


def _new(options: PluginsOptions) -> int:
    files = scaffold.create_plugin(options.name, Path.cwd(), hermes=options.hermes)
    for file in files:
        print(file.relative_to(Path.cwd()))
    print(f"\nRun its tests:  python -m pytest {options.name}")
    print(f"Install it:     alipes plugins install {options.name}")
    return 0


def _enable(name: str) -> int:
    found, settings = find_plugin(name), load_settings()
    install.print_needs(found, settings)
    changed = enable(name)
    if changed:
        pins.accept_plugin(settings.home, found)
    print(f"{name} is enabled from the next start." if changed else f"{name} is already enabled.")
    return 0
