"""What the database's one thread does: commits, one by one or together, and looks. It asks for nothing."""

import asyncio
import errno
import logging
import os
import sqlite3
from asyncio import Future
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from concurrent.futures import Future as ThreadFuture
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from alipes.kernel.errors import AlipesError, StoreError

_SENTENCES = {
    sqlite3.SQLITE_FULL: "the disk of {path} is full and nothing was saved; make room and start again",
    sqlite3.SQLITE_IOERR: "the disk of {path} fails and nothing was saved; make room and check its health",
    sqlite3.SQLITE_READONLY: "the store {path} is read-only; make it writable or use another home",
    sqlite3.SQLITE_CANTOPEN: "the store {path} cannot be opened; open its folder to us or use another home",
    sqlite3.SQLITE_CORRUPT: "the store {path} is damaged; bring back a good backup with `alipes restore`",
    sqlite3.SQLITE_NOTADB: "the store {path} is damaged; bring back a good backup with `alipes restore`",
    sqlite3.SQLITE_BUSY: "another program keeps the store {path} locked; close it and start again",
    sqlite3.SQLITE_LOCKED: "another program keeps the store {path} locked; close it and start again",
}


def ours(error: BaseException, path: Path) -> BaseException:
    """What `error` means to whoever must act; a stranger's error stays as it is."""
    match error:
        case sqlite3.Error():
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_ERROR and "fts5" in str(error):
                code = sqlite3.SQLITE_CORRUPT  # what the index of words says of damage
            why = _SENTENCES.get(code, "the store {path} failed")
            sentence = f"{why.format(path=path)} ({error})"
        case msgspec.DecodeError():
            sentence = f"the store {path} holds a row that cannot be read ({error}); see `alipes doctor`"
        case OSError():
            return unusable(f"the store {path} cannot be opened", path, error)
        case _:
            return error
    return _because(sentence, error)


def unusable(what: str, path: Path, error: OSError) -> StoreError:
    """`what` cannot be done at `path`, and the way out of it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _because(f"{_SENTENCES[sqlite3.SQLITE_FULL].format(path=path)} ({error.strerror})", error)
    return _because(f"{what} ({error.strerror or error}); make it writable or use another home", error)


def _because(sentence: str, error: BaseException) -> StoreError:
    translated = StoreError(sentence)
    translated.__cause__ = error
    return translated


log = logging.getLogger(__name__)

T = TypeVar("T")
LOG, FILLER = 6_000_000, 1_000_000
"""Bytes that are written in vain to stretch the log, which takes those that find no place in the cache."""


class Job(Generic[T]):
    __slots__ = ("soon", "told", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T], told: "Future[T]", soon: bool) -> None:
        self.work, self.told, self.soon = work, told, soon

    def tell(self, outcome: T | "Failed") -> StoreError | None:
        """To whoever asked; it is done also if they were cancelled meanwhile. If it failed then, that is
        given back where the store is to blame: nobody else knows that it lacks what was asked for."""
        if not self.told.done():
            settle(self.told, outcome)
        elif isinstance(outcome, Failed):
            log.warning("a write failed after its asker was cancelled: %s", outcome.error)
            if type(outcome.error) is StoreError:
                return outcome.error
        return None


class Writer:
    """The connection, and how it is written by; used on the thread alone."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self.connection = path, connection
        self._waits_for_disk = True
        self.loose = False
        """Was something written that may not be on disk yet?"""

    def commit(self, batch: list[Job[Any]], waits: Callable[[], object] | None = None) -> list[Any]:
        """On the thread: the outcomes, all on disk; raises when the transaction as a whole was lost.
        `waits` is called before the disk is waited for."""
        db, before = self.connection, self.connection.total_changes
        try:
            self._wait_for_disk(not all(job.soon for job in batch))
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return [Failed(ours(error, self._path)) for _ in batch]
        with _ending(db):
            outcomes = self._together(batch)
            if waits is not None:
                waits()
        changed = db.total_changes != before
        if not self._waits_for_disk:
            self.loose = self.loose or changed
        elif changed and not any(isinstance(each, Failed) for each in outcomes):
            self.loose = False  # where nothing is changed, or all is taken back, SQLite asks no disk
        return outcomes

    def _together(self, batch: list[Job[Any]]) -> list[Any]:
        """Mostly nobody has anything to object; if somebody has, all is begun again, each by itself."""
        if len(batch) == 1:
            return [batch[0].work(self.connection)]
        try:
            return [job.work(self.connection) for job in batch]
        except AlipesError:
            self.connection.execute("ROLLBACK")
            self.connection.execute("BEGIN IMMEDIATE")
            return [self._apart(job) for job in batch]

    def _wait_for_disk(self, wanted: bool) -> None:
        if self._waits_for_disk is not wanted:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._waits_for_disk = wanted

    def _apart(self, job: Job[Any]) -> Any:
        db = self.connection
        db.execute("SAVEPOINT job")
        try:
            outcome = job.work(db)
        except AlipesError as error:  # what SQLite complains of is found out one by one
            db.execute("ROLLBACK TO job")
            outcome = Failed(error)
        db.execute("RELEASE job")
        return outcome


def stretch(connection: sqlite3.Connection) -> None:
    """On the thread: what does not fit into the cache goes to the log, and is not kept."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("CREATE TABLE filler (data BLOB)")
            for _ in range(LOG // FILLER):
                connection.execute("INSERT INTO filler VALUES (zeroblob(?))", (FILLER,))
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:  # a full disk, a busy neighbour: then it grows as it always did
        log.info("the write-ahead log was not stretched: %s", error)


def look(connection: sqlite3.Connection, path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """On the thread: one view for all that it reads."""
    try:
        connection.execute("BEGIN")
        with _ending(connection):
            return work(connection)
    except (sqlite3.Error, msgspec.DecodeError) as error:
        raise ours(error, path) from error


class Failed:
    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


@contextmanager
def _ending(db: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def settle(told: "Future[T]", outcome: T | Failed) -> None:
    if isinstance(outcome, Failed):
        told.set_exception(outcome.error)
    else:
        told.set_result(outcome)


Waiting: TypeAlias = list["asyncio.Future[None]"]


class Sync:
    """One at a time; who asks while one is under way is told after the next."""

    def __init__(self, path: Path, thread: Executor, failed: Callable[[BaseException], None]) -> None:
        """`path`: of the database; all that is written goes to the log beside it first. `failed` is called
        when something did not reach the disk: also if nobody waits for it any more, it is missing there."""
        self._path, self._thread, self._failed = path, thread, failed
        self._log = Log(path)
        self._waiting: Waiting = []
        self._busy = False

    async def reached(self) -> None:
        """Return once all is on disk that was written before this was called. Raises `StoreError`."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        if not self._busy:
            self._next()
        await told

    def close(self) -> None:
        """Let go of the log, once nobody waits for it."""
        self._thread.submit(self._log.close)

    def _next(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._busy = bool(waiting)
        if waiting:
            loop = asyncio.get_running_loop()
            self._thread.submit(self._log.sync).add_done_callback(
                lambda done: loop.call_soon_threadsafe(self._tell, waiting, done)
            )

    def _tell(self, waiting: Waiting, done: "ThreadFuture[None]") -> None:
        error = done.exception()
        if error is not None:
            error = _ours(error, self._path)
            self._failed(error)
        for told in waiting:
            if told.done():
                continue  # it was cancelled meanwhile
            if error is None:
                told.set_result(None)
            else:
                told.set_exception(error)
        self._next()


def _ours(error: BaseException, path: Path) -> BaseException:
    if isinstance(error, OSError):
        return unusable(f"what was written to {path} did not reach the disk", path, error)
    return error


class Log:
    """The write-ahead log, by a descriptor of our own. On this file, unlike the others, SQLite holds no locks
    that would be dropped when we close it; and as long as somebody has the database open, it stays."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = f"{path}-wal", -1

    def sync(self) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        os.fdatasync(self._file) if hasattr(os, "fdatasync") else os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
