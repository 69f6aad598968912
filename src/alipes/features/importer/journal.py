"""The files that an import changed: as they were before, kept aside, and how they were after."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.config.paths import make_private_tree, sync_to_disk

JOURNAL, BEFORE = "files.json", "before"
ABSENT = ""


class JournaledFile(Struct):
    """Hashes; `ABSENT`: there was no such file. `after` is None while it is written."""

    before: str
    after: str | None = None


class _Written(Struct):
    """`files.json`."""

    files: dict[str, JournaledFile] = {}
    open: tuple[str, ...] = ()
    """What is being changed: what is new there after a crash was made by the import."""


class FileJournal:
    """Of one import. Paths are relative to the home."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home, self._folder = home, folder
        written = self._read()
        self.changes, self._open = written.files, written.open

    def _read(self) -> _Written:
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self._folder / JOURNAL).read_bytes(), type=_Written)
        return _Written()

    @contextmanager
    def changing(self, *paths: Path, keep: bool = True) -> Iterator[None]:
        """What happens inside may change these files, and everything below these folders. `keep`: copy aside what
        they were; without, they cannot be put back."""
        before = dict(self._hash_all(paths))
        self._note_before(before, keep=keep)
        self._open = tuple(path.relative_to(self._home).as_posix() for path in paths)
        self._save()
        try:
            yield
        finally:
            after = dict(self._hash_all(paths))
            for name in {*before, *after}:
                change = self.changes.setdefault(name, JournaledFile(ABSENT))
                change.after = after.get(name, ABSENT)
            self._open = ()
            self._save()

    def _note_before(self, before: dict[str, str], *, keep: bool) -> None:
        for name, digest in before.items():
            if name in self.changes:
                continue
            if self._was_open(name):
                self.changes[name] = JournaledFile(ABSENT)
                continue
            if keep:
                self._copy_aside(name)
            self.changes[name] = JournaledFile(digest)

    def _was_open(self, name: str) -> bool:
        return any(name == each or name.startswith(f"{each}/") for each in self._open)

    def _copy_aside(self, name: str) -> None:
        copy = self._folder / BEFORE / name
        make_private_tree(copy.parent)
        shutil.copy2(self._home / name, copy)

    def _hash_all(self, paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
        for path in paths:
            if path.is_dir():
                for place, _, names in os.walk(path):
                    for name in names:
                        yield from self._hash(Path(place, name))
            else:
                yield from self._hash(path)

    def _hash(self, path: Path) -> Iterator[tuple[str, str]]:
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(self._home).as_posix(), hash_file(path)

    def existed(self, path: Path) -> bool:
        """True if this file, or anything in this folder, was there before the import."""
        name = path.relative_to(self._home).as_posix()
        inside = [change for each, change in self.changes.items() if each == name or each.startswith(f"{name}/")]
        if inside:
            return any(change.before for change in inside)
        return path.exists() and not self._was_open(name)

    def read_before(self, path: Path) -> str:
        """The text of a file before the import; empty if there was none."""
        name = path.relative_to(self._home).as_posix()
        was_changed = name in self.changes or self._was_open(name)
        place = self._folder / BEFORE / name if was_changed else path
        return place.read_text() if place.is_file() else ""

    def keep(self, name: str, text: str) -> None:
        """Add a text to a file in the folder of the import, unless it is there already."""
        path = self._folder / name
        before = path.read_text() if path.is_file() else ""
        if text not in before:
            replace_file(path, f"{before}{text.rstrip()}\n\n".encode())

    def restore(self) -> tuple[list[str], list[str]]:
        """Put back the files that nobody has changed since. Returns their names, and those of changed ones."""
        restored, kept = [], []
        for name, digest in self._hash_all(self._home / each for each in self._open):
            self.changes.setdefault(name, JournaledFile(ABSENT)).after = digest
        for name, change in sorted(self.changes.items(), reverse=True):
            path = self._home / name
            present = hash_file(path) if path.is_file() else ABSENT
            if present == change.before:
                continue
            copy = self._folder / BEFORE / name
            if present != change.after or (change.before and not copy.is_file()):
                kept.append(name)
            elif change.before:
                replace_file(path, copy.read_bytes(), mode=copy.stat().st_mode & 0o777)
                restored.append(name)
            else:
                path.unlink(missing_ok=True)
                restored.append(name)
                self._remove_empty(path.parent)
        return restored, kept

    def _remove_empty(self, folder: Path) -> None:
        with suppress(OSError):
            while folder != self._home:
                folder.rmdir()
                folder = folder.parent

    def _save(self) -> None:
        make_private_tree(self._folder)
        replace_file(self._folder / JOURNAL, msgspec.json.encode(_Written(self.changes, self._open)))


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write atomically, synced. Raises OSError."""
    make_private_tree(path.parent)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    sync_to_disk(path.parent)
