"""`alipes plugins`: which there are, and everything that can be done about them. It starts no turn."""

import asyncio
import sys
from pathlib import Path

import msgspec

from alipes.cli import findings, render
from alipes.cli.main import COMMANDS, LATER
from alipes.cli.plugins import diagnosis, enabling, installing, listing, scaffold
from alipes.cli.plugins.describing import unset
from alipes.cli.plugins.installing import Consent
from alipes.cli.plugins.options import PluginsOptions, parse
from alipes.cli.plugins.sources import source_of
from alipes.cli.screen import terminal_width
from alipes.config.reading import read
from alipes.config.settings import load
from alipes.runtime.logs import open_log


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
            return installing.install(source, consent)
        case "update" if options.rollback:
            return installing.roll_back(options.name)
        case "update":
            return installing.update(options.name, consent)
        case _:
            return installing.remove(options.name, consent)


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
        found = asyncio.run(diagnosis.examine(settings, options.name, (*COMMANDS, *LATER)))
    if options.json:
        print(msgspec.json.encode(found).decode())
    elif not found:
        print("There are no plugins.")
    else:
        findings.show(found)
        findings.conclude(found)
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
