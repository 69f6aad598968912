"""A copy of the store while it is in use, and a look at its health. Both on a connection of their own."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from alipes.kernel.errors import StoreError
from alipes.store import search
from alipes.store.database.migrations import version
from alipes.store.database.writer import ours
from alipes.store.export import StoreFacts

T = TypeVar("T")
PAGES = 1024
"""Copied between two looks whether we should stop."""


class Halt:
    """Says to the thread that nobody waits for its work any more."""

    asked = False

    def check(self, *_: object) -> int:
        """Anything but zero ends what SQLite is doing."""
        return self.asked

    def between_pages(self, *_: object) -> None:
        if self.asked:
            raise StoreError("the backup was stopped; nothing was written")


async def aside(work: Callable[[Halt], T]) -> T:
    """`work` in a thread, the store going on meanwhile; when cancelled, returns after the thread let go."""
    halt = Halt()
    job = asyncio.get_running_loop().run_in_executor(None, work, halt)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        halt.asked = True
        await asyncio.wait((job,))
        job.exception()
        raise


async def backup(source: Path, target: Path) -> None:
    """`source` as it is now, copied to `target`, checked and on disk.

    `target` is replaced at once or not at all: raises `StoreError`, and then leaves nothing.
    """
    await aside(lambda halt: _copy(source, target, halt))


def _copy(source: Path, target: Path, halt: Halt) -> None:
    part = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
    try:
        if target.exists() and target.samefile(source):
            raise StoreError(f"{target} is the store itself; choose another file for the backup")
        copy_store(source, part, halt)
        to_disk(part)
        part.rename(target)
        to_disk(target.parent)
    except OSError as error:
        raise StoreError(f"no backup was made at {target}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def copy_store(source: Path, target: Path, halt: Halt) -> None:
    """`source` as it is now in a new file, checked. Raises `StoreError`; what was written of it is left."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(_connect(source)) as store, closing(_connect(target)) as copy:
            store.execute("BEGIN")
            store.execute("SELECT 1 FROM sqlite_master").fetchone()  # from here on one view, whoever writes
            store.backup(copy, pages=PAGES, progress=halt.between_pages)
            store.execute("ROLLBACK")
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without companions
            if problems := _integrity(copy):
                raise StoreError(f"the copy of {source} is damaged and was thrown away: {problems[0]}")
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"no copy of {source} was made: {error}") from error
    finally:
        target.with_name(target.name + "-journal").unlink(missing_ok=True)


async def check(path: Path) -> tuple[list[str], list[str]]:
    """Sentences about what is wrong in the file, and about what is wrong in its search index alone."""

    def work(halt: Halt) -> tuple[list[str], list[str]]:
        try:
            with closing(_connect(path)) as db:
                db.set_progress_handler(halt.check, 100_000)
                return _integrity(db), search.problems(db)
        except (sqlite3.Error, msgspec.DecodeError) as error:
            return [str(ours(error, path))], []

    return await aside(work)


def _integrity(db: sqlite3.Connection) -> list[str]:
    found = [line for (line,) in db.execute("PRAGMA integrity_check(20)") if line != "ok"]
    dangling = db.execute("PRAGMA foreign_key_check").fetchall()
    problems = [f"the file is damaged: {line}" for line in found]
    if dangling:
        problems.append(f"{len(dangling)} rows point to rows that are not there")
    return problems


def facts(db: sqlite3.Connection, path: Path) -> StoreFacts:
    sql = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM turns), (SELECT count(*) FROM said)"
    sessions, turns, messages = db.execute(sql).fetchone()
    return StoreFacts(
        path=str(path),
        size=_size(path),
        wal=_size(path.with_name(path.name + "-wal")),
        schema=version(db),
        sessions=sessions,
        turns=turns,
        messages=messages,
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=10)


def to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
