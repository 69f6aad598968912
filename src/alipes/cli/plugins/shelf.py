"""Putting plugins into their folder, taking them out, going back: all of it or nothing, also when killed.

$ALIPES_HOME/plugins/NAME           in use
                     .kept/NAME     the version before, to go back to
                     .before/NAME   in use until a moment ago: someone is just exchanging it
                     .new/...       not in use yet
Names that begin with a dot are no plugins.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from alipes.cli.plugins.pins import Installed, Pin, read_pins, write_pins
from alipes.cli.plugins.trees import hash_tree
from alipes.config.near import did_you_mean
from alipes.config.paths import Paths, make_private
from alipes.kernel.errors import ConfigError


class Shelf:
    """The folder of plugins, for as long as one command has it alone."""

    def __init__(self, plugins: Path) -> None:
        self.plugins = plugins
        self.pins = read_pins(plugins)

    def __contains__(self, name: str) -> bool:
        return os.path.lexists(self.plugins / name)

    def pin(self, name: str) -> Installed:
        """What was installed under `name`; ConfigError when nothing was."""
        if name in self.pins:
            return self.pins[name]
        if name in self:
            raise ConfigError(f"{name} was put there by hand: we do not know where it is from.")
        raise ConfigError(f"No plugin {name} was installed.{did_you_mean(name, self.pins)}")

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """A folder to make a new version in; what is not put in place is thrown away."""
        folder = self.plugins / ".new" / secrets.token_hex(4)
        with _told("No room for a new version"):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)  # we have the shelf alone

    def put(self, name: str, staged: Path, pin: Pin) -> None:
        """Put what is `staged` in use; a version that was in use is kept."""
        old = self.pins.get(name)
        with _told(f"{name} cannot be put in place"):
            self._exchange(name, staged, Installed(pin, old.now if old else None))

    def go_back(self, name: str) -> Pin:
        """Exchange the version in use and the one kept, so that going back twice changes nothing."""
        installed, kept = self.pin(name), self._kept(name)
        if installed.before is None or not kept.is_dir():
            raise ConfigError(f"No other version of {name} is kept.")
        with _told(f"{name} cannot be exchanged"):
            self._exchange(name, kept, Installed(installed.before, installed.now))
        return installed.before

    def take_out(self, name: str) -> None:
        """Delete it, and what was kept of it. What the plugin itself keeps elsewhere stays."""
        place = self.plugins / name
        with _told(f"{name} cannot be removed"):
            if place.is_symlink():
                place.unlink()
            else:
                with self.staged() as gone:
                    place.rename(gone / name)
            if self.pins.pop(name, None) is not None:
                write_pins(self.plugins, self.pins)
        shutil.rmtree(self._kept(name), ignore_errors=True)

    def _kept(self, name: str) -> Path:
        return self.plugins / ".kept" / name

    def _exchange(self, name: str, new: Path, installed: Installed) -> None:
        place, before = self.plugins / name, self.plugins / ".before" / name
        if os.path.lexists(place):
            before.parent.mkdir(exist_ok=True)
            place.rename(before)
        try:
            new.rename(place)
        except OSError:
            if os.path.lexists(before):
                before.rename(place)
            raise
        write_pins(self.plugins, {**self.pins, name: installed})
        self.pins[name] = installed
        self._keep(name)

    def _keep(self, name: str) -> None:
        before, kept = self.plugins / ".before" / name, self._kept(name)
        if os.path.lexists(before):
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(exist_ok=True)
            before.rename(kept)

    def mend(self) -> None:
        """What a killed command left half done is finished, if it was as good as done, or undone."""
        with _told("What was left half done cannot be put right"):
            self._mend()

    def _mend(self) -> None:
        shutil.rmtree(self.plugins / ".new", ignore_errors=True)
        going = self.plugins / ".before"
        for before in list(going.iterdir()) if going.is_dir() else ():
            name, place = before.name, self.plugins / before.name
            known = self.pins.get(name)
            if place.is_dir() and known and known.now.sha256 == hash_tree(place):
                self._keep(name)
                continue
            if place.is_dir():
                self._undo(place, self._kept(name), known)
            before.rename(place)
        lost = [name for name in self.pins if name not in self]
        for name in lost:
            del self.pins[name]
        if lost:
            write_pins(self.plugins, self.pins)

    def _undo(self, place: Path, kept: Path, known: Installed | None) -> None:
        if known and known.before and not kept.exists():
            place.rename(kept)  # it was on its way from there
        else:
            shutil.rmtree(place)


@contextmanager
def open_shelf(paths: Paths) -> Iterator[Shelf]:
    """The folder of plugins for us alone. Raises ConfigError when another command has it."""
    plugins = make_private(make_private(paths.home) / "plugins")
    lock = os.open(make_private(paths.run) / "plugins.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise ConfigError("Another `alipes plugins` is at work on this home: let it finish.") from None
        shelf = Shelf(plugins)
        shelf.mend()
        yield shelf
    finally:
        os.close(lock)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What the disk refuses is told to the person."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what}: {error.filename or ''} {error.strerror or error}") from error
