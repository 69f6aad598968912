"""Putting plugins into their folder, taking them out, going back: all of it or nothing, also when killed.

$ALIPES_HOME/plugins/NAME           in use
                     .kept/NAME     the version before, to go back to
                     .before/NAME   in use until a moment ago: someone is just exchanging it
                     .new/...       not in use yet
Names that begin with a dot are no plugins.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import msgspec

from alipes.cli.plugins.sources import Source
from alipes.config.paths import Paths, make_private
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean


class Package(msgspec.Struct, frozen=True):
    """One distribution that came along."""

    name: str
    version: str
    sha256: str = ""


class Pin(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of one plugin."""

    source: Source
    exact: str
    """The commit, or the version of the package; empty for a folder, which has neither."""
    sha256: str
    """Over the tree as it was put in place."""
    when: float
    version: str = ""
    """What it calls itself."""
    packages: tuple[Package, ...] = ()

    def __str__(self) -> str:
        exact = self.exact[:12] if self.source.kind == "git" else self.exact
        return " ".join(filter(None, (self.version, f"({exact or self.sha256[:12]})")))


class Installed(msgspec.Struct, frozen=True, omit_defaults=True):
    now: Pin
    before: Pin | None = None
    """The version that is kept to go back to."""


class _File(msgspec.Struct, frozen=True):
    plugins: dict[str, Installed] = {}
    format: int = 1


def read_pins(plugins: Path) -> dict[str, Installed]:
    """By name; empty when nothing was ever installed. Raises ConfigError when the file is broken."""
    file = plugins / "installed.json"
    try:
        return dict(msgspec.json.decode(file.read_bytes(), type=_File).plugins)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigError(f"{file} cannot be read ({error}): put it right, or move it away.") from error


def write_pins(plugins: Path, pins: dict[str, Installed]) -> None:
    """All of it or nothing."""
    new = plugins / ".installed.json.new"
    text = msgspec.json.format(msgspec.json.encode(_File(dict(sorted(pins.items())))), indent=2)
    with open(new, "wb") as opened:
        opened.write(text + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(plugins / "installed.json")


PASSED_OVER = frozenset({".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Made by tools, and different every time: neither copied nor hashed."""


def files_of(folder: Path) -> Iterator[Path]:
    """Every file and link in it, sorted, as paths from `folder`."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - PASSED_OVER)
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in sorted([*files, *links]):
            if name not in PASSED_OVER and not name.endswith(".pyc"):
                yield Path(here, name).relative_to(folder)


def copy_tree(source: Path, target: Path) -> None:
    """A copy without what tools made. Raises ConfigError, and may leave part of it."""
    try:
        for path in files_of(source):
            _refuse_escape(source, path)
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / path, target / path, follow_symlinks=False)
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{source} cannot be copied: {error.strerror or error}.") from error


def hash_tree(folder: Path) -> str:
    """A sha256 over names, contents, links, and what may be executed."""
    total = hashlib.sha256()
    for path in sorted(files_of(folder), key=lambda path: path.as_posix().encode("utf-8", "surrogateescape")):
        file = folder / path
        if file.is_symlink():
            kind, digest = "link", hashlib.sha256(os.fsencode(os.readlink(file)))
        else:
            kind = "program" if file.stat().st_mode & 0o100 else "file"
            with open(file, "rb") as opened:
                digest = hashlib.file_digest(opened, "sha256")
        name = path.as_posix().encode("utf-8", "surrogateescape")
        total.update(b"%s %s %d %s\n" % (kind.encode(), digest.hexdigest().encode(), len(name), name))
    return total.hexdigest()


def measure(folder: Path) -> tuple[int, int]:
    """How many files, and their bytes."""
    sizes = [(folder / path).lstat().st_size for path in files_of(folder)]
    return len(sizes), sum(sizes)


def _refuse_escape(root: Path, path: Path) -> None:
    file = root / path
    if not file.is_symlink():
        return
    if os.path.isabs(os.readlink(file)) or not file.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{path} is a link to {os.readlink(file)}, outside of the plugin: it is not taken.")


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
