"""A home in one file, and back: its database, settings, plugins and files, without secrets.

The file is a tar archive, packed; last in it is a table of what came before, with size and hash of each.
"""

import hashlib
import io
import os
import re
import stat
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO, cast

import msgspec
from msgspec import Struct, structs

from alipes.kernel.errors import StoreError
from alipes.store.backup import Halt, aside, copy_store, to_disk

FORMAT = 1
TABLE, DATABASE = "alipes-backup.json", "alipes.db"
CHUNK = 1 << 20
LARGEST_TABLE = 64 * 2**20
_LEFT_OUT = re.compile(
    r"\.env.*|(?:run|logs|spill)(?:/.*)?|alipes\.db.*|files/[^/]+/(?:login|signing)\.json"
    r"|.*\.(?:db|db-wal|db-shm|db-journal|key|pem|sock|part|lock)|(?:.*/)?__pycache__(?:/.*)?"
)
"""Secrets, what belongs to living processes, and what can be done without."""


class Entry(Struct, frozen=True):
    name: str
    size: int
    sha256: str
    mode: int = 0o600


class Table(Struct, frozen=True):
    """What is in a bundle."""

    format: int
    made: float
    version: str
    """Of the alipes that wrote it."""
    schema: int
    home: str
    """Where it was."""
    entries: tuple[Entry, ...] = ()

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


async def pack(home: Path, target: Path, *, version: str, schema: int) -> Table:
    """All of `home` that is worth keeping, into `target`; read once more before it gets its name.

    Raises `StoreError`, and then leaves nothing. Whatever runs on the home goes on meanwhile.
    """
    return await aside(lambda halt: _pack(home, target, halt, version, schema))


def _pack(home: Path, target: Path, halt: Halt, version: str, schema: int) -> Table:
    stem = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    copy, part = stem.with_name(stem.name + ".db.part"), stem.with_name(stem.name + ".part")
    try:
        copy_store(home / DATABASE, copy, halt)
        found = {DATABASE: copy, **{name: home / name for name in _names(home)}}
        about = Table(FORMAT, time.time(), version, schema, str(home))
        with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            table = _write(file, found, halt, about)
        _read(part, None, halt)
        to_disk(part)
        part.rename(target)
        to_disk(target.parent)
    except (OSError, tarfile.TarError) as error:
        raise StoreError(f"no backup was made at {target}: {error}") from error
    else:
        return table
    finally:
        for leftover in (copy, part):
            leftover.unlink(missing_ok=True)


def _names(home: Path) -> Iterator[str]:
    """What is kept, from the home on; links and what is no file are not."""
    for place, folders, names in os.walk(home):
        inner = PurePosixPath(os.path.relpath(place, home))
        folders[:] = sorted(each for each in folders if not _LEFT_OUT.fullmatch(str(inner / each)))
        for name in sorted(names):
            path = str(inner / name)
            if not _LEFT_OUT.fullmatch(path) and stat.S_ISREG(os.lstat(home / path).st_mode):
                yield path


def _write(file: IO[bytes], paths: dict[str, Path], halt: Halt, about: Table) -> Table:
    entries: list[Entry] = []
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
        for name, path in paths.items():
            try:
                source = path.open("rb")
            except FileNotFoundError:  # it went away meanwhile
                continue
            with source:
                facts = os.fstat(source.fileno())
                mode = 0o700 if facts.st_mode & 0o100 else 0o600
                reader = _Reader(source, facts.st_size, halt)  # what is added to it meanwhile is left out
                archive.addfile(_info(name, facts.st_size, mode), cast("IO[bytes]", reader))
                entries.append(Entry(name, facts.st_size, reader.digest.hexdigest(), mode))
        table = structs.replace(about, entries=tuple(entries))
        told = msgspec.json.encode(table)
        archive.addfile(_info(TABLE, len(told), 0o600), io.BytesIO(told))
    return table


class _Reader:
    """Reads so many bytes and no more, and knows their hash."""

    def __init__(self, source: IO[bytes], left: int, halt: Halt) -> None:
        self._source, self._left, self._halt = source, left, halt
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        self._halt.between_pages()
        piece = self._source.read(min(size, self._left))
        self._left -= len(piece)
        self.digest.update(piece)
        return piece


def _info(name: str, size: int, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, mode, int(time.time())
    return info


async def look(bundle: Path) -> Table:
    """What is in it, every byte of it checked. Raises `StoreError` for what is no whole bundle."""
    return await aside(lambda halt: _read(bundle, None, halt))


async def unpack(bundle: Path, into: Path) -> Table:
    """The same, and all of it written below `into`, an empty folder."""
    return await aside(lambda halt: _read(bundle, into, halt))


def _read(bundle: Path, into: Path | None, halt: Halt) -> Table:
    found: dict[str, tuple[int, str]] = {}
    table: Table | None = None
    try:
        with tarfile.open(bundle, "r:gz") as archive:
            for info in archive:
                source = archive.extractfile(info) if info.isreg() else None
                if source is None or table is not None or not _restorable(info.name):
                    raise StoreError(f"{bundle} holds {info.name[:80]!r}, which is nothing to restore")
                if info.name == TABLE:
                    table = _table(source.read(LARGEST_TABLE), bundle)
                else:
                    target = None if into is None else into / info.name
                    found[info.name] = _take(source, target, info.mode, halt)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise StoreError(f"{bundle} is no whole backup of ours: {error}") from error
    if table is None:
        raise StoreError(f"{bundle} is no whole backup of ours: its table is missing")
    told = {entry.name: (entry.size, entry.sha256) for entry in table.entries}
    for name in told.keys() | found.keys():
        if told.get(name) != found.get(name):
            raise StoreError(f"{name} in {bundle} is damaged: it is not what was written")
    return table


def _table(data: bytes, bundle: Path) -> Table:
    try:
        table = msgspec.json.decode(data, type=Table)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{bundle} is no whole backup of ours: {error}") from error
    if table.format > FORMAT:
        raise StoreError(f"{bundle} was written by a newer alipes ({table.version}); upgrade first")
    return table


def _restorable(name: str) -> bool:
    """Does it lie in a home, and is it none of what is never taken along?"""
    parts = PurePosixPath(name).parts
    inside = bool(parts) and ".." not in parts and not name.startswith("/") and "\0" not in name
    return inside and (name in (DATABASE, TABLE) or _LEFT_OUT.fullmatch(name) is None)


def _take(source: IO[bytes], target: Path | None, mode: int, halt: Halt) -> tuple[int, str]:
    """Read one file to its end, and write it where it belongs, if it does anywhere; its size and hash."""
    digest, size = hashlib.sha256(), 0
    with ExitStack() as stack:
        file: IO[bytes] | None = None
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode & 0o700)
            file = stack.enter_context(open(handle, "wb"))
        while piece := source.read(CHUNK):
            halt.between_pages()
            digest.update(piece)
            size += len(piece)
            if file is not None:
                file.write(piece)
    return size, digest.hexdigest()
