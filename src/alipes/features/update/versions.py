"""The versions of alipes in the home: an environment each, a link to the current one, and what was switched when."""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.config.paths import VERSION_LAUNCHER, VERSIONS, find_root, make_private, sync_to_disk
from alipes.kernel.errors import ConfigError

CURRENT = "current"
"""The link to the environment of the version that is started."""
BACKUPS = "backups"
MARK = "version.json"
"""Written into an environment when everything in it works; without it, the environment is incomplete."""
HISTORY = "history.json"
KEPT = 3
"""Versions that stay installed, so that one can go back."""


class InstalledVersion(Struct, frozen=True):
    name: str
    """The name of its folder: the version, for a commit with its hash."""
    version: str
    sha256: str
    """Of the wheel that was installed."""
    source: str
    installed: float
    extras: tuple[str, ...] = ()


class Switch(Struct, frozen=True):
    """A change of the current version."""

    before: str
    """Empty: the installation that alipes had before its first update."""
    after: str
    at: float
    backup: str = ""
    """The file with the home as it was before."""
    announced: bool = False
    """The release notes were shown."""


class _History(Struct, frozen=True):
    origin: str = ""
    """The program that started alipes before its first update."""
    switches: tuple[Switch, ...] = ()


class Versions:
    """The folder of versions. Each change of a file or link takes effect whole or not at all."""

    def __init__(self, home: Path) -> None:
        self.folder = find_root(home) / VERSIONS
        self.launcher = self.folder / VERSION_LAUNCHER

    @property
    def backups(self) -> Path:
        return self.folder / BACKUPS

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One change at a time. Raises ConfigError if another process makes one."""
        make_private(self.folder)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError("another `alipes update` is running for this home; wait until it has ended") from None
            yield

    def list(self) -> "list[InstalledVersion]":
        """The complete versions, the newest installed last."""
        if not self.folder.is_dir():
            return []
        found = (self.find(each.name) for each in self.folder.iterdir() if each.is_dir() and not each.is_symlink())
        return sorted((each for each in found if each is not None), key=lambda each: each.installed)

    def find(self, name: str) -> InstalledVersion | None:
        """The complete version of this name."""
        try:
            return msgspec.json.decode((self.folder / name / MARK).read_bytes(), type=InstalledVersion)
        except (OSError, msgspec.DecodeError):
            return None

    def python(self, name: str) -> Path:
        return self.folder / name / "bin" / "python"

    def current(self) -> str:
        """The name of the version that is started; empty: the installation before the first update."""
        try:
            name = os.readlink(self.folder / CURRENT)
        except OSError:
            return ""
        return name if self.find(name) is not None else ""

    def complete(self, version: InstalledVersion) -> None:
        """Mark an environment as working."""
        write_file(self.folder / version.name / MARK, msgspec.json.encode(version))

    def switch(self, name: str, *, backup: str = "", origin: str = "") -> None:
        """Start `name` from now on; empty: the installation before the first update."""
        known = self.history()
        switches = (*known.switches, Switch(self.current(), name, time.time(), backup))
        self._write_history(_History(known.origin or origin, switches))
        if not name:
            (self.folder / CURRENT).unlink(missing_ok=True)
            sync_to_disk(self.folder)
            return
        draft = self.folder / f".{CURRENT}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        draft.symlink_to(name)
        draft.replace(self.folder / CURRENT)
        sync_to_disk(self.folder)

    def history(self) -> _History:
        try:
            return msgspec.json.decode((self.folder / HISTORY).read_bytes(), type=_History)
        except (OSError, msgspec.DecodeError):
            return _History()

    def last_switch(self) -> Switch | None:
        """The switch that led to the current version. One that was broken off before it took effect does not count."""
        now = self.current()
        return next((each for each in reversed(self.history().switches) if each.after == now), None)

    def take_announcement(self) -> Switch | None:
        """The last switch, once: the next call returns None."""
        last, known = self.last_switch(), self.history()
        if last is None or last.announced:
            return None
        shown = msgspec.structs.replace(last, announced=True)
        self._write_history(_History(known.origin, tuple(shown if each == last else each for each in known.switches)))
        return last

    def announce(self) -> tuple[str, ...]:
        """Sentences about the last switch, once."""
        done = self.take_announcement()
        if done is None or not done.after:
            return ()
        return (
            f"alipes is now {done.after}. What is new: `alipes update --notes`. To go back: `alipes update --back`.",
        )

    def _write_history(self, history: _History) -> None:
        write_file(self.folder / HISTORY, msgspec.json.encode(history))

    def write_launcher(self, origin: str) -> None:
        """The program for the PATH: it starts the current version. `origin`: what it starts if there is none."""
        text = (
            "#!/bin/sh\n# Starts the current version of alipes. Written by `alipes update`.\n"
            f'current="{_quote(str(self.folder / CURRENT))}/bin/alipes"\n'
            '[ -x "$current" ] && exec "$current" "$@"\n'
            f'exec "{_quote(origin)}" "$@"\n'
        )
        write_file(self.launcher, text.encode(), mode=0o700)

    def remove_leftovers(self) -> None:
        """Remove incomplete environments, and the oldest versions but the current one and the one before."""
        last = self.last_switch()
        before = {last.before} if last else set[str]()
        wanted = {self.current(), *before, *(each.name for each in self.list()[-KEPT:])}
        if Path(sys.prefix).parent == self.folder:
            wanted.add(Path(sys.prefix).name)
        for each in self.folder.iterdir():
            if each.is_dir() and not each.is_symlink() and each.name not in {BACKUPS, *wanted}:
                shutil.rmtree(each, ignore_errors=True)
            elif each.name.startswith((f".{CURRENT}.", f".{HISTORY}.", f".{self.launcher.name}.")):
                each.unlink(missing_ok=True)
        for each in self.backups.glob("*.part*") if self.backups.is_dir() else ():
            each.unlink(missing_ok=True)


def _quote(text: str) -> str:
    """For a double-quoted word of a shell."""
    return "".join(f"\\{each}" if each in '"\\$`' else each for each in text)


def write_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace the file as a whole, synced to disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_to_disk(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
