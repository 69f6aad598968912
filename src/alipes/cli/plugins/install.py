"""Installing, updating, going back, removing: fetch, show, ask, and only then put in place."""

import asyncio
import sys
import time
from pathlib import Path

from msgspec import Struct

from alipes.cli.common import agreed
from alipes.cli.plugins import list as enabling
from alipes.cli.plugins.describe import Row, abilities, differences, look_into, page, show, unset
from alipes.cli.plugins.fetch import Fetched, fetch
from alipes.cli.plugins.install_dir import Pin, Shelf, hash_tree, open_shelf
from alipes.cli.plugins.sources import Source
from alipes.config.loader import Reading, read
from alipes.config.settings import build
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import Found, find, look_at


class Consent(Struct, frozen=True):
    """What the person said beforehand."""

    yes: bool = False
    enable: bool = True


def install(source: Source, consent: Consent) -> int:
    """Fetch, show, ask, put in place, enable. Whatever goes wrong, nothing is left of it."""
    reading = read()
    build(reading)  # broken settings are told before anything is fetched
    with open_shelf(reading.paths) as shelf, shelf.staged() as stage:
        fetched = _fetch(source, stage)
        name = fetched.found.name
        _refuse_twice(shelf, name)
        show(page(fetched, source, reading.variables))
        question = f"Install {'and enable ' if consent.enable else ''}{name}?"
        if not consent.yes and not agreed(question, "install it"):
            _say("nothing was installed")
            return 1
        shelf.put(name, fetched.folder, _pin(source, fetched))
        try:
            if consent.enable:
                enabling.enable(name)
        except ConfigError:
            shelf.take_out(name)
            raise
    print(f"{name} is installed{_enabled(consent)}.")
    _advise(fetched.found, reading)
    return 0


def update(name: str, consent: Consent) -> int:
    """Fetch it anew from where it came from; the version in use is kept."""
    reading = read()
    with open_shelf(reading.paths) as shelf, shelf.staged() as stage:
        old = shelf.pin(name)
        source = old.now.source
        fetched = _fetch(source, stage)
        if fetched.found.name != name:
            raise ConfigError(
                f"{source} calls itself {fetched.found.name} now: install that, and remove {name}."
            )
        pin = _pin(source, fetched)
        if pin.sha256 == old.now.sha256:
            print(f"{name} is up to date: {old.now}.")
            return 0
        show(page(fetched, source, reading.variables, _news(shelf, name, fetched)))
        if not consent.yes and not agreed(f"Update {name} from {old.now} to {pin}?", "update it"):
            _say(f"{name} is as it was")
            return 1
        shelf.put(name, fetched.folder, pin)
    print(f"{name} is now {pin}; `alipes plugins update --rollback {name}` goes back to {old.now}.")
    print(f"Where alipes runs already, `/plugins reload {name}` takes it over.")
    _advise(fetched.found, reading)
    return 0


def roll_back(name: str) -> int:
    with open_shelf(read().paths) as shelf:
        was = shelf.pin(name).now
        now = shelf.go_back(name)
    print(f"{name} is {now} again; {was} is kept.")
    return 0


def remove(name: str, consent: Consent) -> int:
    """Disable it and delete its folder. What it kept in a folder of its own for data stays."""
    reading = read()
    with open_shelf(reading.paths) as shelf:
        found = enabling.known(name)
        if found.path is None or found.path.parent != shelf.plugins:
            raise ConfigError(_not_ours(found))
        by_hand = "" if name in shelf.pins else ", which was put there by hand"
        if not consent.yes and not agreed(f"Delete {found.path}{by_hand}?", "remove it"):
            _say("nothing was removed")
            return 1
        enabling.disable(name)
        shelf.take_out(found.path.name)
    print(f"{name} is disabled and removed.")
    return 0


def _fetch(source: Source, stage: Path) -> Fetched:
    if source.kind != "folder":
        _say(f"fetching {source}")
    return asyncio.run(fetch(source, stage))


def _refuse_twice(shelf: Shelf, name: str) -> None:
    if name in shelf.pins:
        source = shelf.pins[name].now.source
        raise ConfigError(f"{name} is installed already, from {source}: `alipes plugins update {name}`.")
    if name in shelf:
        raise ConfigError(f"{shelf.plugins / name} is there already, put there by hand: move it away first.")
    if other := next((each for each in find(build(read())) if each.name == name), None):
        raise ConfigError(
            f"There is a plugin {name} already, in {other.path or other.source}: remove it first."
        )


def _pin(source: Source, fetched: Fetched) -> Pin:
    return Pin(
        source,
        fetched.exact,
        hash_tree(fetched.folder),
        time.time(),
        fetched.found.manifest.version,
        fetched.packages,
    )


def _news(shelf: Shelf, name: str, fetched: Fetched) -> list[Row]:
    folder = shelf.plugins / name
    found = look_at(folder) or fetched.found
    before = abilities(found, look_into(folder, shelf.pins[name].now.packages))
    after = abilities(fetched.found, look_into(fetched.folder, fetched.packages))
    return list(differences(before, after))


def _not_ours(found: Found) -> str:
    if found.path is None and found.entry:
        return (
            f"{found.name} came with {found.source}: `pip uninstall` removes it, `disable` switches it off."
        )
    where = found.path or found.source
    return f"{found.name} is not in the folder of plugins but in {where}: remove it there, or disable it."


def _enabled(consent: Consent) -> str:
    return " and enabled, from the next start on" if consent.enable else ""


def _advise(found: Found, reading: Reading) -> None:
    for name in unset(found, reading.variables):
        print(f"It needs {name}, which is not set: `alipes config set {name} -`")


def _say(line: str) -> None:
    sys.stderr.write(f"alipes: {line}\n")
    sys.stderr.flush()
