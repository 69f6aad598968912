"""A home in one file and back: its database, settings, plugins and files, without secrets.

The file is a .tgz; its last member is a manifest with the size and hash of all others.
"""

import hashlib
import io
import os
import re
import sqlite3
import stat
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path, PurePosixPath
from typing import IO, cast

import msgspec
from msgspec import Struct, structs

from alipes.kernel.errors import StoreError
from alipes.store.backups.backup import CancelFlag, copy_database, run_in_thread, write_atomically
from alipes.store.sqlite.files import DATABASE_FILE
from alipes.store.sqlite.migrations.migrations import SCHEMA, schema_version

FORMAT = 1
MANIFEST = "alipes-backup.json"
CHUNK_BYTES = 1 << 20
MAX_MANIFEST_BYTES = 64 * 2**20
SANDBOX = "sandbox"
"""The homes and caches of sandboxed commands; only archives of older versions have them."""
_EXCLUDED = re.compile(
    r"\.env.*|(?:run|logs|spill|browser|checkpoints|profiles|versions)(?:/.*)?|"
    + re.escape(DATABASE_FILE)
    + r".*|files/[^/]+/(?:login|signing)\.json"
    r"|.*\.(?:db|db-wal|db-shm|db-journal|key|pem|sock|part|lock)|(?:.*/)?__pycache__(?:/.*)?"
)
"""Secrets, files of running processes, files that can be recreated, and the homes of other profiles."""


class ArchiveEntry(Struct, frozen=True):
    name: str
    size: int
    sha256: str
    mode: int = 0o600


class ArchiveManifest(Struct, frozen=True):
    """The contents of an archive."""

    format: int
    made: float
    version: str
    """The version of alipes that wrote it."""
    schema: int
    home: str
    """The directory it was made from."""
    entries: tuple[ArchiveEntry, ...] = ()

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


def is_newer(manifest: ArchiveManifest) -> bool:
    """True if the archive was written by a later release, whose store this one cannot read."""
    return manifest.schema > SCHEMA


async def pack_home(home: Path, target: Path, *, version: str, schema: int | None = None) -> ArchiveManifest:
    """Pack `home` into `target` while it is in use, and read the archive back before it gets its name.

    `schema`: of the database, if it is not the one in its file. Raises `StoreError` and then leaves nothing behind.
    """

    def work(flag: CancelFlag) -> ArchiveManifest:
        with write_atomically(target, (OSError, tarfile.TarError)) as part:
            copy = part.with_suffix(".db.part")
            try:
                copy_database(home / DATABASE_FILE, copy, flag)
                stored = _remove_secrets(copy)
                found = {DATABASE_FILE: copy, **{name: home / name for name in _list_files(home)}}
                about = ArchiveManifest(FORMAT, time.time(), version, stored if schema is None else schema, str(home))
                with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                    table = _write(file, found, flag, about)
            finally:
                copy.unlink(missing_ok=True)
            _read(part, None, flag)
        return table

    return await run_in_thread(work)


def _remove_secrets(copy: Path) -> int:
    """Empty the secrets of webhooks in a copy: an archive may be stored anywhere. Returns the schema of the copy."""
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.execute("PRAGMA secure_delete = ON")  # or the old value would remain in the file
            db.execute("UPDATE webhooks SET secret = ''")
            return schema_version(db)
    except sqlite3.Error as error:
        raise StoreError(f"could not remove the secrets from the backup: {error}") from error


def _list_files(home: Path) -> Iterator[str]:
    """The relative paths of the files to pack; only regular files, no links."""
    for place, folders, names in os.walk(home):
        inner = PurePosixPath(os.path.relpath(place, home))
        paths = {each: str(inner / each) for each in sorted(folders)}
        folders[:] = [each for each, path in paths.items() if path != SANDBOX and not _EXCLUDED.fullmatch(path)]
        for name in sorted(names):
            path = str(inner / name)
            if not _EXCLUDED.fullmatch(path) and stat.S_ISREG(os.lstat(home / path).st_mode):
                yield path


def _write(file: IO[bytes], paths: dict[str, Path], flag: CancelFlag, about: ArchiveManifest) -> ArchiveManifest:
    entries: list[ArchiveEntry] = []
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
        for name, path in paths.items():
            try:
                source = path.open("rb")
            except FileNotFoundError:  # deleted meanwhile
                continue
            with source:
                facts = os.fstat(source.fileno())
                mode = 0o700 if facts.st_mode & 0o100 else 0o600
                reader = _Reader(source, facts.st_size, flag)  # without what is appended meanwhile
                archive.addfile(_tar_info(name, facts.st_size, mode), cast("IO[bytes]", reader))
                entries.append(ArchiveEntry(name, facts.st_size, reader.digest.hexdigest(), mode))
        table = structs.replace(about, entries=tuple(entries))
        text = msgspec.json.encode(table)
        archive.addfile(_tar_info(MANIFEST, len(text), 0o600), io.BytesIO(text))
    return table


class _Reader:
    """Reads at most `left` bytes and computes their hash."""

    def __init__(self, source: IO[bytes], left: int, flag: CancelFlag) -> None:
        self._source, self._left, self._flag = source, left, flag
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        self._flag.raise_if_set()
        piece = self._source.read(min(size, self._left))
        self._left -= len(piece)
        self.digest.update(piece)
        return piece


def _tar_info(name: str, size: int, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, mode, int(time.time())
    return info


async def read_archive(bundle: Path, into: Path | None = None) -> ArchiveManifest:
    """The manifest, after checking every byte of the archive. Raises `StoreError` if it is not complete.

    `into`: an empty directory to which the files are written.
    """
    return await run_in_thread(lambda flag: _read(bundle, into, flag))


def _read(bundle: Path, into: Path | None, flag: CancelFlag) -> ArchiveManifest:
    found: dict[str, tuple[int, str]] = {}
    table: ArchiveManifest | None = None
    try:
        with tarfile.open(bundle, "r:gz") as archive:
            for info in archive:
                source = archive.extractfile(info) if info.isreg() else None
                if source is None or table is not None or not _restorable(info.name):
                    raise StoreError(f"{bundle} contains {info.name[:80]!r}, which cannot be restored")
                if info.name == MANIFEST:
                    table = _decode_manifest(source.read(MAX_MANIFEST_BYTES), bundle)
                else:
                    target = None if into is None else into / info.name
                    found[info.name] = _extract(source, target, info.mode, flag)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise StoreError(f"{bundle} is not a complete alipes backup: {error}") from error
    if table is None:
        raise StoreError(f"{bundle} is not a complete alipes backup: its manifest is missing")
    expected = {entry.name: (entry.size, entry.sha256) for entry in table.entries}
    for name in expected.keys() | found.keys():
        if expected.get(name) != found.get(name):
            raise StoreError(f"{name} in {bundle} is damaged")
    return table


def _decode_manifest(data: bytes, bundle: Path) -> ArchiveManifest:
    try:
        table = msgspec.json.decode(data, type=ArchiveManifest)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{bundle} is not a complete alipes backup: {error}") from error
    if table.format > FORMAT:
        raise StoreError(f"{bundle} was written by a newer alipes ({table.version}); upgrade first")
    return table


def _restorable(name: str) -> bool:
    """True if the path is inside a home and not excluded."""
    parts = PurePosixPath(name).parts
    inside = bool(parts) and ".." not in parts and not name.startswith("/") and "\0" not in name
    return inside and (name in (DATABASE_FILE, MANIFEST) or _EXCLUDED.fullmatch(name) is None)


def _extract(source: IO[bytes], target: Path | None, mode: int, flag: CancelFlag) -> tuple[int, str]:
    """Read one file and write it to `target`, if given; returns its size and hash."""
    digest, size = hashlib.sha256(), 0
    with ExitStack() as stack:
        file: IO[bytes] | None = None
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode & 0o700)
            file = stack.enter_context(open(handle, "wb"))
        while piece := source.read(CHUNK_BYTES):
            flag.raise_if_set()
            digest.update(piece)
            size += len(piece)
            if file is not None:
                file.write(piece)
    return size, digest.hexdigest()
