"""Copies and checks the database while it is in use, on a connection of its own."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from alipes.config.paths import sync_to_disk
from alipes.kernel.errors import StoreError
from alipes.store.ports.archive import StoreFacts
from alipes.store.search import index
from alipes.store.sql.connection import Connection
from alipes.store.sql.damage import find_damaged_rows
from alipes.store.sql.errors import translate_error
from alipes.store.sqlite.files import is_writable, open_readable
from alipes.store.sqlite.migrations.migrations import schema_version

T = TypeVar("T")
PAGES_PER_STEP = 1024
"""Pages copied between two checks for cancellation."""


class CancelFlag:
    """Tells the thread to stop, because its caller was cancelled."""

    cancelled = False

    def check(self, *_: object) -> int:
        """For SQLite's progress handler: a nonzero value interrupts the query."""
        return self.cancelled

    def raise_if_set(self, *_: object) -> None:
        if self.cancelled:
            raise StoreError("the backup was cancelled; nothing was written")


async def run_in_thread(work: Callable[[CancelFlag], T]) -> T:
    """Run `work` in a thread; on cancellation stop it and wait for the thread."""
    flag = CancelFlag()
    job = asyncio.get_running_loop().run_in_executor(None, work, flag)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        flag.cancelled = True
        await asyncio.wait((job,))
        job.exception()
        raise


@contextmanager
def write_atomically(target: Path, errors: tuple[type[Exception], ...] = (OSError,)) -> Iterator[Path]:
    """A path beside `target` for a new file, which gets its name at the end, synced to disk.

    Nothing is left behind on an error; `errors` are raised as `StoreError`.
    """
    part = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
    try:
        yield part
        sync_to_disk(part)
        part.rename(target)
        sync_to_disk(target.parent)
    except errors as error:
        raise StoreError(f"could not write the backup {target}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


async def backup_database(source: Path, target: Path) -> None:
    """Copy `source` as it is now to `target`, checked and synced to disk.

    `target` is replaced atomically or not at all: then `StoreError` is raised and nothing is left behind.
    """

    def work(flag: CancelFlag) -> None:
        with write_atomically(target) as part:
            if target.exists() and target.samefile(source):
                raise StoreError(f"{target} is the store itself; choose another file for the backup")
            copy_database(source, part, flag)

    await run_in_thread(work)


def copy_database(source: Path, target: Path, flag: CancelFlag) -> None:
    """Copy `source` to a new file and check the copy. Raises `StoreError`; a partial copy is not removed."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with _open(source) as store, _open(target) as copy:
            store.execute("BEGIN")
            store.execute("SELECT 1 FROM sqlite_master").fetchone()  # starts the read transaction: one view from now on
            store.backup(copy, pages=PAGES_PER_STEP, progress=flag.raise_if_set)
            store.execute("ROLLBACK")
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file, without a log
            if problems := _integrity(copy):
                raise StoreError(f"the copy of {source} is damaged and was discarded: {problems[0]}")
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"could not copy {source}: {error}") from error
    finally:
        target.with_name(target.name + "-journal").unlink(missing_ok=True)


async def check_database(path: Path) -> tuple[list[str], list[str]]:
    """The problems of the file, and those of its search index, one sentence each."""

    def work(flag: CancelFlag) -> tuple[list[str], list[str]]:
        try:
            with _open(path) as db:
                db.set_progress_handler(flag.check, 100_000)
                problems = index.check_index(db) if is_writable(path) else []
                return [*_integrity(db), *find_damaged_rows(db)], problems
        except (sqlite3.Error, msgspec.DecodeError) as error:
            return [str(translate_error(error, path))], []

    return await run_in_thread(work)


def _integrity(db: sqlite3.Connection) -> list[str]:
    found = [line for (line,) in db.execute("PRAGMA integrity_check(20)") if line != "ok"]
    dangling = db.execute("PRAGMA foreign_key_check").fetchall()
    problems = [f"the file is damaged: {line}" for line in found]
    if dangling:
        problems.append(f"{len(dangling)} rows refer to rows that do not exist")
    return problems


def read_schema(path: Path) -> int:
    """The schema of a database; 0 if there is none."""
    if not path.is_file():
        return 0
    try:
        with _open(path) as db:
            return schema_version(db)
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


def read_facts(db: Connection, path: Path) -> StoreFacts:
    counts = (f"(SELECT count(*) FROM {table})" for table in ("sessions", "turns", "messages"))
    sessions, turns, messages = db.execute(f"SELECT {', '.join(counts)}").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    wal = _file_size(path.with_name(path.name + "-wal"))
    return StoreFacts(str(path), _file_size(path), wal, version, sessions, turns, messages)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with open_readable(path) as uri, closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)) as db:
        yield db
