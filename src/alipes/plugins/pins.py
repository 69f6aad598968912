"""Pins plugins to the files that a person accepted: a plugin whose files changed since then is not loaded.

The pins are in `plugins/pins.json` of the home, by folder. A pin has a hash of each file, and the file's status
(as Git's index has), so that only files whose status changed are read again.

- A plugin of the home is pinned when it is installed, enabled, reloaded by a person or loaded for the first time.
- A plugin of a project is never pinned by itself: the project may be somebody else's.
- A file hook runs because it is there, so a new one must be accepted; those of an older release are pinned once.
- `plugins.unpinned` names plugins under development, which are not checked.
Packages that pip installed are not checked: pip is how they change.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.formatting import format_count
from alipes.plugins.discovery import DiscoveredPlugin
from alipes.plugins.private_packages import PACKAGES

TOOL_OUTPUT = frozenset(
    (
        *(".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
        *(".venv", ".tox", ".nox", PACKAGES),
    )
)
"""Folders made by tools, and different every time: neither copied nor hashed at the installation."""
_NOT_PINNED = TOOL_OUTPUT - {PACKAGES}
_DATA = (".db", ".db-journal", ".db-shm", ".db-wal", ".log", ".sqlite", ".sqlite3", ".csv", ".lock", ".pid", ".tmp")
"""Files that a plugin writes while it runs: never pinned."""
_OWN_DATA = (".json", ".jsonl")
"""Pinned if they were there at the beginning; new ones are data of the plugin."""
_SHOWN = 5


class FilePin(Struct, frozen=True, array_like=True):
    sha256: str
    status: tuple[int, ...]
    """Size, time of change and of content in nanoseconds, inode and mode."""


class PluginPin(Struct, frozen=True):
    name: str
    files: dict[str, FilePin]


class _File(Struct, frozen=True):
    plugins: dict[str, PluginPin] = {}
    """By the path of the folder."""
    format: int = 1


class FileChanges(Struct, frozen=True):
    """How the files of a plugin differ from its pin."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    def __str__(self) -> str:
        groups = (("changed", self.changed), ("new", self.added), ("removed", self.removed))
        return "; ".join(f"{word}: {_join(names)}" for word, names in groups if names)


def find_refused(settings: Settings, plugins: Iterable[DiscoveredPlugin]) -> dict[str, str]:
    """The plugins that may not be loaded, by name, and why. Pins those that are new and may be."""
    pins = read_pins(settings.home)
    first_time = pins is None
    known, refused = dict(pins or {}), {}
    for plugin in plugins:
        if plugin.path is None or plugin.name in settings.plugins.unpinned:
            continue
        key, old = str(plugin.path.absolute()), known.get(str(plugin.path.absolute()))
        if old is None and (plugin.source == "project" or (plugin.kind == "file-hook" and not first_time)):
            refused[plugin.name] = f"{plugin.path} is new and was not accepted. {_advice(plugin.name)}"
            continue
        new = _make_pin(plugin, old)
        if old is not None and (changes := compare_pins(old, new)):
            refused[plugin.name] = f"its files changed since you accepted them ({changes}). {_advice(plugin.name)}"
        else:
            known[key] = new
    if known != (pins or {}):
        with suppress(OSError):  # a read-only home: they are compared by content each time
            _write_pins(settings.home, known)
    return refused


def accept_plugin(home: Path, plugin: DiscoveredPlugin) -> FileChanges:
    """Pin the plugin to its current files. Returns what is different from before. Raises OSError."""
    if plugin.path is None:
        return FileChanges()
    known = dict(read_pins(home) or {})
    key, changes, new = str(plugin.path.absolute()), find_changes(home, plugin), _make_pin(plugin, None)
    if known.get(key) != new:
        _write_pins(home, known | {key: new})
    return changes


def find_changes(home: Path, plugin: DiscoveredPlugin) -> FileChanges:
    """How its files differ from those accepted; nothing if it was never pinned."""
    old = (read_pins(home) or {}).get(str(plugin.path.absolute())) if plugin.path is not None else None
    return compare_pins(old, _make_pin(plugin, None)) if old is not None else FileChanges()


def is_pinned(home: Path, plugin: DiscoveredPlugin) -> bool:
    return plugin.path is None or str(plugin.path.absolute()) in (read_pins(home) or {})


def compare_pins(old: PluginPin, new: PluginPin, *, own_data: tuple[str, ...] = _OWN_DATA) -> FileChanges:
    """How the files differ. `own_data`: endings of files that may be added."""
    both = old.files.keys() & new.files.keys()
    return FileChanges(
        changed=tuple(sorted(name for name in both if _content(old.files[name]) != _content(new.files[name]))),
        added=tuple(sorted(name for name in new.files.keys() - both if not (own_data and name.endswith(own_data)))),
        removed=tuple(sorted(old.files.keys() - both)),
    )


def read_pins(home: Path) -> dict[str, PluginPin] | None:
    """The pins by folder; None if there is no file. A broken file has no pins."""
    return read_pin_file(_pins_file(home))


def read_pin_file(file: Path) -> dict[str, PluginPin] | None:
    """As `read_pins`, from any file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_File).plugins
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError):
        return {}


def pin_folder(name: str, folder: Path, old: PluginPin | None = None) -> PluginPin:
    """The pin of all files of a folder; those with the same status as in `old` are not read."""
    return PluginPin(name, dict(_pin_files(folder, old.files if old is not None else {}, data=())))


def _write_pins(home: Path, pins: dict[str, PluginPin]) -> None:
    write_pin_file(_pins_file(home), pins)


def write_pin_file(file: Path, pins: dict[str, PluginPin]) -> None:
    """Write the pins of folders that exist. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f".pins.{os.getpid()}.new")
    kept = {folder: pin for folder, pin in pins.items() if os.path.isdir(folder)}
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as opened:
        opened.write(msgspec.json.encode(_File(kept)))
    new.replace(file)


def _pins_file(home: Path) -> Path:
    return home / "plugins" / "pins.json"


def _make_pin(plugin: DiscoveredPlugin, old: PluginPin | None) -> PluginPin:
    """The pin of its current files; those with the same status as in `old` are not read."""
    assert plugin.path is not None
    before = old.files if old is not None else {}
    found = dict(_pin_files(plugin.path, before))
    if old is not None:  # data that was not there when it was accepted is not pinned now
        found = {name: pin for name, pin in found.items() if name in before or not name.endswith(_OWN_DATA)}
    return PluginPin(plugin.name, found)


def _pin_files(
    folder: Path, before: dict[str, FilePin], data: tuple[str, ...] = _DATA
) -> Iterator[tuple[str, FilePin]]:
    """`data`: endings of files that are not pinned."""
    for here, folders, files in os.walk(folder):
        folders[:] = set(folders) - _NOT_PINNED
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        for name in (*files, *links):
            path = os.path.join(here, name)
            if not (data and name.endswith(data)):
                shown = os.path.relpath(path, folder)
                with suppress(FileNotFoundError):
                    yield shown, _pin_file(path, before.get(shown))


def _pin_file(path: str, old: FilePin | None) -> FilePin:
    facts = os.lstat(path)
    status = (facts.st_size, facts.st_ctime_ns, facts.st_mtime_ns, facts.st_ino, facts.st_mode)
    if old is not None and old.status == status:
        return old
    if os.path.islink(path):
        target = os.path.realpath(path)
        digest = hashlib.sha256(os.fsencode(os.readlink(path)))
        if os.path.isfile(target):
            with open(target, "rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return FilePin(digest.hexdigest(), ())  # the file behind it has a status of its own
    if not os.path.isfile(path):
        return FilePin("", status)
    with open(path, "rb") as opened:
        return FilePin(hashlib.file_digest(opened, "sha256").hexdigest(), status)


def _content(pin: FilePin) -> tuple[str, bool]:
    """What must stay the same: the content, and whether it can be executed."""
    return pin.sha256, bool(pin.status and pin.status[-1] & 0o100)


def _advice(name: str) -> str:
    return f"Look at them, then run `alipes plugins accept {name}`."


def _join(names: tuple[str, ...]) -> str:
    more = f" and {format_count(len(names) - _SHOWN, 'more file')}" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
