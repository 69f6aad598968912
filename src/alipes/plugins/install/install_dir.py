"""The folder of installed plugins. Changes are atomic, even if the process is killed.

$ALIPES_HOME/plugins/NAME           in use, with the packages it needs in NAME/.packages
                     .kept/NAME     the previous version, for a rollback
                     .before/NAME   the old version during an exchange
                     .new/...       being installed
Names that start with a dot are not plugins.
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

from alipes.config.paths import Paths, make_private
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.plugins.install.sources import Source
from alipes.plugins.pins import TOOL_OUTPUT
from alipes.plugins.private_packages import PACKAGES


class InstalledPackage(msgspec.Struct, frozen=True):
    """A Python distribution inside a plugin."""

    name: str
    version: str
    sha256: str = ""


class PluginVersion(msgspec.Struct, frozen=True, omit_defaults=True):
    """An installed version of a plugin."""

    source: Source
    exact: str
    """The commit, or the version of the package; empty for a folder."""
    sha256: str
    """Hash of the files as installed, without its dependencies."""
    when: float
    version: str = ""
    """Version in its manifest."""
    packages: tuple[InstalledPackage, ...] = ()
    """For a package: itself first, then its dependencies."""
    dependencies: tuple[InstalledPackage, ...] = ()
    """For a folder or repository: the packages that were installed for it."""
    dependencies_sha256: str = ""

    def matches(self, folder: Path) -> bool:
        """Are the files in `folder` as they were installed?"""
        return hash_tree(folder) == self.sha256 and hash_dependencies(folder) == self.dependencies_sha256

    def __str__(self) -> str:
        exact = self.exact[:12] if self.source.kind == "git" else self.exact
        shown = ", ".join(f"{each.name} {each.version}" for each in self.dependencies[:3])
        more = f" and {len(self.dependencies) - 3} more" if len(self.dependencies) > 3 else ""
        brings = f"with {shown}{more}" if shown else ""
        return " ".join(filter(None, (self.version, f"({exact or self.sha256[:12]})", brings)))


class InstalledPlugin(msgspec.Struct, frozen=True, omit_defaults=True):
    now: PluginVersion
    before: PluginVersion | None = None
    """The previous version, for a rollback."""


class _File(msgspec.Struct, frozen=True):
    plugins: dict[str, InstalledPlugin] = {}
    format: int = 1


def read_installed(plugins: Path) -> dict[str, InstalledPlugin]:
    """The installed plugins by name. Raises ConfigError if the file is broken."""
    file = plugins / "installed.json"
    try:
        return dict(msgspec.json.decode(file.read_bytes(), type=_File).plugins)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigError(f"cannot read {file} ({error}): repair it, or move it away.") from error


def write_installed(plugins: Path, pins: dict[str, InstalledPlugin]) -> None:
    new = plugins / ".installed.json.new"
    text = msgspec.json.format(msgspec.json.encode(_File(dict(sorted(pins.items())))), indent=2)
    with open(new, "wb") as opened:
        opened.write(text + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(plugins / "installed.json")


def list_files(folder: Path) -> Iterator[Path]:
    """Every file and link in it, sorted, as paths from `folder`."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - TOOL_OUTPUT)
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in sorted([*files, *links]):
            if name not in TOOL_OUTPUT and not name.endswith(".pyc"):
                yield Path(here, name).relative_to(folder)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files without caches and build output. Raises ConfigError; a part may remain."""
    try:
        for path in list_files(source):
            file = source / path
            if file.is_symlink() and (
                os.path.isabs(os.readlink(file)) or not file.resolve().is_relative_to(source.resolve())
            ):
                raise ConfigError(f"{path} is a link to {os.readlink(file)}, outside of the plugin: not allowed.")
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / path, target / path, follow_symlinks=False)
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot copy {source}: {error.strerror or error}.") from error


def hash_tree(folder: Path) -> str:
    """A sha256 over names, contents, links and execute permissions."""
    total = hashlib.sha256()
    for path in sorted(list_files(folder), key=lambda path: path.as_posix().encode("utf-8", "surrogateescape")):
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


def hash_dependencies(folder: Path) -> str:
    """A sha256 over the packages in the plugin's folder; empty if there are none."""
    place = folder / PACKAGES
    return hash_tree(place) if place.is_dir() else ""


def measure_tree(folder: Path) -> tuple[int, int]:
    """The number of files and their size in bytes."""
    sizes = [(folder / path).lstat().st_size for path in list_files(folder)]
    return len(sizes), sum(sizes)


class PluginDirectory:
    """The plugins folder, locked for one command."""

    def __init__(self, plugins: Path) -> None:
        self.plugins = plugins
        self.installed = read_installed(plugins)

    def __contains__(self, name: str) -> bool:
        return os.path.lexists(self.plugins / name)

    def find(self, name: str) -> InstalledPlugin:
        """The installed plugin `name`. Raises ConfigError."""
        if name in self.installed:
            return self.installed[name]
        if name in self:
            raise ConfigError(f"{name} was not installed by alipes, so its source is unknown.")
        raise ConfigError(f"No plugin {name} is installed.{did_you_mean(name, self.installed)}")

    @contextmanager
    def open_staging(self) -> Iterator[Path]:
        """A temporary folder for a new version; deleted unless it was installed."""
        folder = self.plugins / ".new" / secrets.token_hex(4)
        with _report_disk_errors("Cannot create a temporary folder"):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)  # safe: the folder is locked

    def install(self, name: str, staged: Path, pin: PluginVersion) -> None:
        """Install the `staged` folder; the current version becomes the previous one."""
        old = self.installed.get(name)
        with _report_disk_errors(f"Cannot install {name}"):
            self._exchange(name, staged, InstalledPlugin(pin, old.now if old else None))

    def roll_back(self, name: str) -> PluginVersion:
        """Swap the current and the previous version; a second call undoes the first."""
        installed, kept = self.find(name), self._previous(name)
        if installed.before is None or not kept.is_dir():
            raise ConfigError(f"There is no previous version of {name}.")
        with _report_disk_errors(f"Cannot roll back {name}"):
            self._exchange(name, kept, InstalledPlugin(installed.before, installed.now))
        return installed.before

    def delete(self, name: str) -> None:
        """Delete the plugin and its previous version; its data elsewhere stays."""
        place = self.plugins / name
        with _report_disk_errors(f"Cannot remove {name}"):
            if place.is_symlink():
                place.unlink()
            else:
                with self.open_staging() as gone:
                    place.rename(gone / name)
            if self.installed.pop(name, None) is not None:
                write_installed(self.plugins, self.installed)
        shutil.rmtree(self._previous(name), ignore_errors=True)

    def _previous(self, name: str) -> Path:
        return self.plugins / ".kept" / name

    def _exchange(self, name: str, new: Path, installed: InstalledPlugin) -> None:
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
        write_installed(self.plugins, {**self.installed, name: installed})
        self.installed[name] = installed
        self._store_previous(name)

    def _store_previous(self, name: str) -> None:
        before, kept = self.plugins / ".before" / name, self._previous(name)
        if os.path.lexists(before):
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(exist_ok=True)
            before.rename(kept)

    def recover(self) -> None:
        """Finish or undo what a killed command left behind."""
        shutil.rmtree(self.plugins / ".new", ignore_errors=True)
        going = self.plugins / ".before"
        for before in list(going.iterdir()) if going.is_dir() else ():
            name, place = before.name, self.plugins / before.name
            known = self.installed.get(name)
            if place.is_dir() and known and known.now.matches(place):
                self._store_previous(name)
                continue
            kept = self._previous(name)
            if place.is_dir() and known and known.before and not kept.exists():
                place.rename(kept)  # it was being swapped with the previous version
            elif place.is_dir():
                shutil.rmtree(place)
            before.rename(place)
        lost = [name for name in self.installed if name not in self]
        for name in lost:
            del self.installed[name]
        if lost:
            write_installed(self.plugins, self.installed)


@contextmanager
def open_plugin_directory(paths: Paths) -> Iterator[PluginDirectory]:
    """Lock the plugins folder. Raises ConfigError if another command has it."""
    plugins = make_private(make_private(paths.home) / "plugins")
    lock = os.open(make_private(paths.run) / "plugins.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise ConfigError("Another `alipes plugins` is running: wait until it has finished.") from None
        directory = PluginDirectory(plugins)
        with _report_disk_errors("Cannot clean up an interrupted command"):
            directory.recover()
        yield directory
    finally:
        os.close(lock)


@contextmanager
def _report_disk_errors(what: str) -> Iterator[None]:
    """Turn OSError into ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what}: {error.filename or ''} {error.strerror or error}") from error
