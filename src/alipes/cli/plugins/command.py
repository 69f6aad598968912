"""`alipes plugins`: which there are, and everything that can be done about them. It starts no turn."""

import asyncio
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.cli import common, help_text, render
from alipes.cli.main import COMMANDS, LATER
from alipes.cli.options import Words
from alipes.cli.plugins import doctor, install, scaffold
from alipes.cli.plugins import list as enabling
from alipes.cli.plugins import list as listing
from alipes.cli.plugins.describe import unset
from alipes.cli.plugins.install import Consent
from alipes.cli.plugins.sources import source_of
from alipes.cli.stdio import terminal_width
from alipes.config.loader import read
from alipes.config.settings import load
from alipes.kernel.formatting import did_you_mean
from alipes.runtime.log_file import open_log

ACTIONS = ("list", "enable", "disable", "install", "update", "remove", "doctor", "new")
_OF = {
    "ref": ("install",),
    "folder": ("install",),
    "entry": ("install",),
    "no_enable": ("install",),
    "yes": ("install", "update", "remove"),
    "rollback": ("update",),
    "hermes": ("new",),
    "json": ("list", "doctor"),
}
"""Which actions each option belongs to."""


class PluginsOptions(Struct, frozen=True):
    action: str
    name: str = ""
    """A plugin's, or for `install` the SOURCE."""
    ref: str = ""
    folder: str = ""
    entry: str = ""
    no_enable: bool = False
    yes: bool = False
    rollback: bool = False
    hermes: bool = False
    json: bool = False


def parse(argv: list[str]) -> PluginsOptions:
    words = Words("alipes plugins", help_text.PLUGINS)
    for text in ("--ref", "--folder", "--entry"):
        words.add_argument(text, default="")
    for flag in ("--no-enable", "--rollback", "--hermes", "--json"):
        words.add_argument(flag, action="store_true")
    words.add_argument("-y", "--yes", action="store_true")
    given, named = words.split(argv)
    action, *name = named or ["list"]
    if action not in ACTIONS:
        meant = did_you_mean(action, ACTIONS)
        words.error(f"no such action: {action} (there are {', '.join(ACTIONS)}).{meant}")
    what = "SOURCE" if action == "install" else "NAME"
    if action == "list" and name:
        words.error("`list` takes no name")
    if action not in ("list", "doctor") and not name:
        words.error(f"`{action}` needs a {what}")
    if len(name) > 1:
        words.error(f"`{action}` takes one {what}, got {len(name)}")
    chosen = {option: getattr(given, option) for option in _OF}
    for option, actions in _OF.items():
        if chosen[option] and action not in actions:
            words.error(f"--{option.replace('_', '-')} is for `{'` and `'.join(actions)}`, not `{action}`")
    return PluginsOptions(action, "".join(name), **chosen)


def run(argv: list[str]) -> int:
    options = parse(argv)
    consent = Consent(options.yes, not options.no_enable)
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
            return _disable(options.name)
        case "install":
            source = source_of(options.name, ref=options.ref, folder=options.folder, entry=options.entry)
            return install.install(source, consent)
        case "update" if options.rollback:
            return install.roll_back(options.name)
        case "update":
            return install.update(options.name, consent)
        case _:
            return install.remove(options.name, consent)


def _list(json: bool) -> int:
    known = listing.entries(load())
    if json:
        print(msgspec.json.encode(known).decode())
        return 0
    if not known:
        print("There are no plugins yet; `alipes plugins install SOURCE` fetches one, `new` begins one.")
        return 0
    width = terminal_width(sys.stdout)
    for line in listing.table(known):
        print(render.cut(line, width) if width else line)
    return 0


def _doctor(options: PluginsOptions) -> int:
    """Status 1 when something is wrong."""
    if options.name:
        enabling.known(options.name)
    settings = load()
    with open_log(settings.paths.make().log, settings.log_level, settings.secrets()):
        found = asyncio.run(doctor.examine(settings, options.name, (*COMMANDS, *LATER)))
    if options.json:
        print(msgspec.json.encode(found).decode())
    elif not found:
        print("There are no plugins.")
    else:
        common.show(found)
        common.conclude(found)
    return int(any(finding.state == "wrong" for finding in found))


def _new(options: PluginsOptions) -> int:
    files = scaffold.scaffold(options.name, Path.cwd(), hermes=options.hermes)
    for file in files:
        print(file.relative_to(Path.cwd()))
    print(f"\nIts tests:    python -m pytest {options.name}")
    print(f"To use it:    alipes plugins install {options.name}")
    return 0


def _enable(name: str) -> int:
    found = enabling.known(name)
    changed = enabling.enable(name)
    print(f"{name} is enabled, from the next start on." if changed else f"{name} is enabled already.")
    for variable in unset(found, read().variables):
        print(f"It needs {variable}, which is not set: `alipes config set {variable} -`")
    return 0


def _disable(name: str) -> int:
    changed = enabling.disable(name)
    print(f"{name} is disabled, from the next start on." if changed else f"{name} is not enabled.")
    return 0
