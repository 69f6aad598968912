"""Work of the database threads: group commit, reads, syncing to disk, and errors as sentences."""

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
from typing import Any, Generic, TypeVar

import msgspec

from alipes.kernel.errors import AlipesError, StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")
WAL_BYTES, FILLER_BYTES = 6_000_000, 1_000_000
"""Bytes written and rolled back to grow the write-ahead log; what exceeds the page cache ends up in it."""

_SENTENCES = {
    sqlite3.SQLITE_FULL: "the disk of {path} is full and nothing was saved; free some space and start again",
    sqlite3.SQLITE_IOERR: "the disk of {path} failed and nothing was saved; free space and check the disk",
    sqlite3.SQLITE_READONLY: "the store {path} is read-only; make it writable or use another home",
    sqlite3.SQLITE_CANTOPEN: "the store {path} cannot be opened; fix the permissions of its folder or use another home",
    sqlite3.SQLITE_CORRUPT: "the store {path} is damaged; restore a backup with `alipes restore`",
    sqlite3.SQLITE_NOTADB: "the store {path} is damaged; restore a backup with `alipes restore`",
    sqlite3.SQLITE_BUSY: "another program keeps the store {path} locked; close it and start again",
    sqlite3.SQLITE_LOCKED: "another program keeps the store {path} locked; close it and start again",
}


def translate_error(error: BaseException, path: Path) -> BaseException:
    """`error` as a `StoreError` with a sentence for the operator; unrelated errors are returned unchanged."""
    match error:
        case sqlite3.Error():
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_ERROR and "fts5" in str(error):
                code = sqlite3.SQLITE_CORRUPT  # FTS5 reports a damaged index like this
            sentence = _SENTENCES.get(code, "the store {path} failed").format(path=path)
            return _store_error(f"{sentence} ({error})", error)
        case msgspec.DecodeError():
            sentence = f"the store {path} contains a row that cannot be read ({error}); run `alipes doctor`"
            return _store_error(sentence, error)
        case OSError():
            return make_unusable_error(f"the store {path} cannot be opened", path, error)
    return error


def make_unusable_error(problem: str, path: Path, error: OSError) -> StoreError:
    """A `StoreError` that says `problem`, its cause and the fix."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        sentence = _SENTENCES[sqlite3.SQLITE_FULL].format(path=path)
        return _store_error(f"{sentence} ({error.strerror})", error)
    return _store_error(f"{problem} ({error.strerror or error}); make it writable or use another home", error)


def _store_error(sentence: str, cause: BaseException) -> StoreError:
    error = StoreError(sentence)
    error.__cause__ = cause
    return error


class WriteFailure:
    """The outcome of a job that failed."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class WriteJob(Generic[T]):
    """One write and the future of its caller. `sync`: it must be on disk before the caller continues."""

    __slots__ = ("future", "sync", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T], future: "Future[T]", sync: bool) -> None:
        self.work, self.future, self.sync = work, future, sync

    def resolve(self, outcome: T | WriteFailure) -> StoreError | None:
        """Pass the outcome to the caller. Returns an error of the store if the caller was cancelled, because
        then nobody else knows that the write is missing."""
        if not self.future.done():
            set_outcome(self.future, outcome)
        elif isinstance(outcome, WriteFailure):
            log.warning("a write failed after its caller was cancelled: %s", outcome.error)
            if type(outcome.error) is StoreError:
                return outcome.error
        return None


def set_outcome(future: "Future[T]", outcome: T | WriteFailure) -> None:
    if isinstance(outcome, WriteFailure):
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome)


class Writer:
    """Commits batches of writes; used by the SQLite thread only."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self.connection = path, connection
        self._full_sync = True
        self.unsynced = False
        """True if a committed write may not be on disk yet."""

    def commit(self, batch: list[WriteJob[Any]], before_sync: Callable[[], object] | None = None) -> list[Any]:
        """Commit the batch in one transaction and return the outcomes. Raises if all of it failed.

        `before_sync` is called before SQLite waits for the disk.
        """
        db, before = self.connection, self.connection.total_changes
        try:
            self._set_full_sync(any(job.sync for job in batch))
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return [WriteFailure(translate_error(error, self._path)) for _ in batch]
        with _commit_or_rollback(db):
            outcomes = self._run_batch(batch)
            if before_sync is not None:
                before_sync()
        changed = db.total_changes != before
        if not self._full_sync:
            self.unsynced = self.unsynced or changed
        elif changed and not any(isinstance(outcome, WriteFailure) for outcome in outcomes):
            self.unsynced = False  # SQLite does not sync if nothing changed or all was rolled back
        return outcomes

    def _run_batch(self, batch: list[WriteJob[Any]]) -> list[Any]:
        """Run the jobs; if one of them fails, start over with a savepoint for each."""
        if len(batch) == 1:
            return [batch[0].work(self.connection)]
        try:
            return [job.work(self.connection) for job in batch]
        except AlipesError:
            self.connection.execute("ROLLBACK")
            self.connection.execute("BEGIN IMMEDIATE")
            return [self._run_in_savepoint(job) for job in batch]

    def _set_full_sync(self, wanted: bool) -> None:
        if self._full_sync is not wanted:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._full_sync = wanted

    def _run_in_savepoint(self, job: WriteJob[Any]) -> Any:
        db = self.connection
        db.execute("SAVEPOINT job")
        try:
            outcome = job.work(db)
        except AlipesError as error:  # errors of SQLite fail the batch; the caller then runs its jobs one by one
            db.execute("ROLLBACK TO job")
            outcome = WriteFailure(error)
        db.execute("RELEASE job")
        return outcome


def preallocate_wal(connection: sqlite3.Connection) -> None:
    """Grow the write-ahead log on the SQLite thread: write more than the page cache holds, then roll back."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("CREATE TABLE filler (data BLOB)")
            for _ in range(WAL_BYTES // FILLER_BYTES):
                connection.execute("INSERT INTO filler VALUES (zeroblob(?))", (FILLER_BYTES,))
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:  # disk full or locked: the log grows with the writes instead
        log.info("the write-ahead log was not preallocated: %s", error)


def run_read(connection: sqlite3.Connection, path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` on the SQLite thread, in one read transaction."""
    try:
        connection.execute("BEGIN")
        with _commit_or_rollback(connection):
            return work(connection)
    except (sqlite3.Error, msgspec.DecodeError) as error:
        raise translate_error(error, path) from error


@contextmanager
def _commit_or_rollback(db: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


class DiskSync:
    """Syncs the write-ahead log on a thread of its own, one sync at a time. Callers that arrive during a sync
    wait for the next one."""

    def __init__(self, path: Path, thread: Executor, on_failure: Callable[[BaseException], None]) -> None:
        """`on_failure` is called when a sync fails, even if no caller is left to receive the error."""
        self._path, self._thread, self._on_failure = path, thread, on_failure
        self._wal = WalFile(path)
        self._waiting: list[Future[None]] = []
        self._busy = False

    async def wait(self) -> None:
        """Return once everything written before this call is on disk. Raises `StoreError`."""
        synced: Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(synced)
        if not self._busy:
            self._start_next()
        await synced

    def close(self) -> None:
        """Close the file, after the syncs that were requested before."""
        self._thread.submit(self._wal.close)

    def _start_next(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._busy = bool(waiting)
        if waiting:
            loop = asyncio.get_running_loop()
            self._thread.submit(self._wal.sync).add_done_callback(
                lambda done: loop.call_soon_threadsafe(self._finish, waiting, done)
            )

    def _finish(self, waiting: "list[Future[None]]", done: "ThreadFuture[None]") -> None:
        error = done.exception()
        if isinstance(error, OSError):
            error = make_unusable_error(f"data written to {self._path} did not reach the disk", self._path, error)
        if error is not None:
            self._on_failure(error)
        for synced in waiting:
            if synced.done():
                continue  # its caller was cancelled
            if error is None:
                synced.set_result(None)
            else:
                synced.set_exception(error)
        self._start_next()


class WalFile:
    """The write-ahead log through a file descriptor of our own.

    SQLite holds no locks on this file, so closing the descriptor drops none (it would for the database file);
    and the file exists as long as any process has the database open.
    """

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
