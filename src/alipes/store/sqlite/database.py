"""The SQLite database of a home: one connection, used by one thread, with group commit."""

import asyncio
import logging
import os
import sqlite3
import time
from asyncio import Future
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import Future as ThreadFuture
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from alipes.kernel.errors import AlipesError, LeaseLost, StoreError, StoreFull
from alipes.store.sql.connection import Connection, Database, RowChange
from alipes.store.sql.errors import make_unusable_error, translate_error
from alipes.store.sqlite.files import OpenFiles, WalFile, check_not_lost, mark_created, open_readable
from alipes.store.sqlite.long_reads import LongReads
from alipes.store.sqlite.migrations.migrations import SCHEMA, migrate, schema_version
from alipes.store.sqlite.row_triggers import row_triggers

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_BATCH = 256
"""Writes per commit at most, so that other processes can use the file in between."""
RESULTS_PER_STEP = 16
"""Callers that get their result in one step of the event loop."""
WAL_BYTES, FILLER_BYTES = 6_000_000, 1_000_000
"""Bytes written and rolled back to grow the write-ahead log; what exceeds the page cache ends up in it."""


class WriteFailure(Struct):
    """The outcome of a job that failed."""

    error: BaseException


class WriteJob(Struct, Generic[T]):
    """One write and the future of its caller. `sync`: it must be on disk before the caller continues."""

    work: Callable[[Connection], T]
    future: "Future[T]"
    sync: bool
    key: str = ""
    """The session that it changes."""

    def resolve(self, outcome: T | WriteFailure) -> StoreError | None:
        return resolve_write(self.future, outcome)


def resolve_write(future: "Future[T]", outcome: T | WriteFailure) -> StoreError | None:
    """Pass the outcome of a write to its caller. Returns an error of the store if the caller was cancelled, because
    then nobody else knows that the write is missing."""
    if not future.done():
        set_outcome(future, outcome)
    elif isinstance(outcome, WriteFailure) and not isinstance(outcome.error, LeaseLost):
        log.warning("a write failed after its caller was cancelled: %s", outcome.error)
        if isinstance(outcome.error, StoreFull) or type(outcome.error) is StoreError:
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
        self._noted: dict[RowChange, None] = {}
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

    def note_change(self, kind: str, id: str, session: str, status: str) -> None:
        """Called by triggers."""
        self._noted[kind, str(id), str(session), str(status)] = None

    def take_noted(self) -> tuple[RowChange, ...]:
        """What triggers noted since the last call, each once. Called between two commits."""
        noted = tuple(self._noted)
        self._noted.clear()
        return noted

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one read transaction."""
        try:
            self.connection.execute("BEGIN")
            with _commit_or_rollback(self.connection):
                return work(self.connection)
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise translate_error(error, self._path) from error

    def preallocate_wal(self) -> None:
        """Write more than the page cache holds, then roll back."""
        db = self.connection
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                db.execute("CREATE TABLE filler (data BLOB)")
                for _ in range(WAL_BYTES // FILLER_BYTES):
                    db.execute("INSERT INTO filler VALUES (zeroblob(?))", (FILLER_BYTES,))
            finally:
                db.execute("ROLLBACK")
        except sqlite3.Error as error:  # disk full or locked: the log grows with the writes instead
            log.info("the write-ahead log was not preallocated: %s", error)

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
            if not synced.done():  # else its caller was cancelled
                set_outcome(synced, None if error is None else WriteFailure(error))
        self._start_next()


class SqliteDatabase(Database):
    """Writes submitted during a commit share the next one; a write that fails does not affect the others."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, thread: Executor, sync_thread: Executor, reads: LongReads
    ) -> None:
        """Only `thread` uses the connection; `sync_thread` waits for the disk meanwhile."""
        self.path = path
        self.files = OpenFiles(path)
        self._connection, self._thread, self._long_reads = connection, thread, reads
        self._writer = Writer(path, connection)
        self._sync = DiskSync(path, sync_thread, self._record_failure)
        self._synced = asyncio.Event()
        """Set while everything written is on disk."""
        self._reads_closed = False
        self._queue: deque[WriteJob[Any]] = deque()
        self._single: deque[WriteJob[Any]] = deque()
        """Jobs of a batch that failed as a whole: each is tried alone."""
        self._unresolved: deque[tuple[WriteJob[Any], Any]] = deque()
        """Committed jobs whose callers do not have their result yet."""
        self._during_sync: deque[Callable[[], None]] = deque()
        """Called once, while the thread waits for the disk during the next commit."""
        self._on_changes: Callable[[tuple[RowChange, ...]], None] | None = None
        self._failure: StoreError | None = None
        """A write that failed without its caller noticing. Later writes depend on it, so all of them fail."""
        self._busy = False
        self._closed: Future[None] | None = None

    def submit(self, work: Callable[[Connection], T], *, sync: bool = True, key: str = "") -> "Future[T]":
        """`sync=False`: nothing depends on this write before the next one is on disk (or before `wait_synced`
        returns). It survives a kill, but not always a power cut. `key`: SQLite has one writer at a time, so nothing is
        locked for it. After a write failed unnoticed (its caller was cancelled), every later one raises that error.
        """
        self._require_open()
        if self._failure is not None:
            raise StoreError(str(self._failure)) from self._failure
        loop = asyncio.get_running_loop()
        future: Future[T] = loop.create_future()
        self._queue.append(WriteJob(work, future, sync))
        if not self._busy:
            self._busy = True
            loop.call_soon(loop.call_soon, self._start_next)  # so that writes of the same step share the commit
        return future

    async def wait_synced(self, patience_s: float = 0.0) -> None:
        self._require_open()
        if self._writer.unsynced and patience_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._synced.wait()
        if self._writer.unsynced:
            await self._sync.wait()

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run_on_thread(partial(self._writer.read, work))

    async def read_statement(self, work: Callable[[Connection], T]) -> T:
        return await self.read(work)

    async def read_long(self, work: Callable[[Connection], T]) -> T:
        """It sees what is committed. If the caller is cancelled, the work is interrupted."""
        self._require_open()
        return await self._long_reads.read(work)

    async def fetch_one(self, sql: str, *values: object) -> Any:
        return await self.read(lambda db: db.execute(sql, values).fetchone())

    async def fetch_all(self, sql: str, *values: object) -> list[Any]:
        return await self.read(lambda db: db.execute(sql, values).fetchall())

    async def watch_rows(
        self, is_watched: Callable[[], bool], on_changes: Callable[[tuple[RowChange, ...]], None]
    ) -> None:
        """Create triggers of this connection, and call `on_changes` after each commit with what they noted."""

        def work(db: Connection) -> None:
            self._connection.create_function("note_change", 4, self._writer.note_change)
            for statement in row_triggers():
                db.execute(statement)

        await self.run(work, sync=False)
        self._on_changes = lambda changes: on_changes(changes) if is_watched() else None

    async def check_writable(self) -> None:
        """Write a page; raises `StoreError` if the disk is full, or a file is read-only, deleted or replaced."""

        def write(db: Connection) -> None:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            db.execute(f"PRAGMA user_version = {int(version)}")  # the same value, but it is written

        await self.run(write)
        self.files.check()

    def call_during_sync(self, callback: Callable[[], None]) -> None:
        self._during_sync.append(callback)

    async def preallocate_wal(self) -> None:
        """Grow the write-ahead log to its usual size, which halves the time of a commit.

        For processes that run long; it occupies the thread for some milliseconds.
        """
        await self._run_on_thread(self._writer.preallocate_wal)

    async def close(self) -> None:
        """Finish all submitted writes, then close the file; a cancellation is raised after that."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._long_reads.close(self._close_file)
        await wait_to_end(self._closed)

    def _require_open(self) -> None:
        if self._closed is not None:
            raise StoreError(f"the store {self.path} is closed")

    def _record_failure(self, error: BaseException) -> None:
        self._failure = error if isinstance(error, StoreError) else StoreError(str(error))

    def _start_next(self) -> None:
        loop = asyncio.get_running_loop()
        while self._failure is not None and (self._single or self._queue):
            (self._single or self._queue).popleft().resolve(WriteFailure(StoreError(str(self._failure))))
        if self._single:
            batch = [self._single.popleft()]
        else:
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
        self._busy = bool(batch)
        if batch:
            callbacks = partial(loop.call_soon_threadsafe, _call_all, self._during_sync)
            before_sync = callbacks if self._during_sync else None
            self._submit(partial(self._writer.commit, batch, before_sync), partial(self._finish_batch, batch))
        elif self._reads_closed:
            self._submit(self._connection.close, self._finish_close)

    def _close_file(self) -> None:
        """Close the file after the connection for long reads: closed last, that one would leave the write-ahead log
        with deleted text in it."""
        self._reads_closed = True
        if not self._busy:
            self._start_next()

    async def _run_on_thread(self, work: Callable[[], T]) -> T:
        """The result of `work` on the SQLite thread, after the writes submitted before."""
        self._require_open()
        future: Future[T] = asyncio.get_running_loop().create_future()

        def finish(done: "ThreadFuture[T]") -> None:
            if not future.done():
                error = done.exception()
                set_outcome(future, done.result() if error is None else WriteFailure(error))

        self._submit(work, finish)
        return await future

    def _submit(self, work: Callable[[], T], then: "Callable[[ThreadFuture[T]], None]") -> None:
        """Run `work` on the thread and call `then` on the loop.

        This wakes the loop once; `run_in_executor` wakes it four times.
        """
        loop = asyncio.get_running_loop()
        self._thread.submit(work).add_done_callback(lambda done: loop.call_soon_threadsafe(then, done))

    def _finish_batch(self, batch: list[WriteJob[Any]], done: "ThreadFuture[list[Any]]") -> None:
        error, noted = done.exception(), self._writer.take_noted()
        if noted and error is None and self._on_changes is not None:
            self._on_changes(noted)
        if error is None:
            (self._synced.clear if self._writer.unsynced else self._synced.set)()
            resolving = bool(self._unresolved)
            self._unresolved.extend(zip(batch, done.result(), strict=True))
            if not resolving:
                self._resolve_some()
        elif len(batch) == 1:
            failure = batch[0].resolve(WriteFailure(translate_error(error, self.path)))
            self._failure = failure or self._failure
        else:  # the whole batch was rolled back: run its jobs one by one to find the one that failed
            self._single.extend(batch)
        self._start_next()

    def _resolve_some(self) -> None:
        """Resolve a few jobs per step of the loop: every caller continues within the same step."""
        for _ in range(min(RESULTS_PER_STEP, len(self._unresolved))):
            job, outcome = self._unresolved.popleft()
            self._failure = job.resolve(outcome) or self._failure
        if self._unresolved:
            asyncio.get_running_loop().call_soon(self._resolve_some)

    def _finish_close(self, closing: "ThreadFuture[None]") -> None:
        closing.result()
        self._sync.close()
        if self._unresolved:
            asyncio.get_running_loop().call_soon(self._finish_close, closing)
        elif self._closed is not None:
            self._closed.set_result(None)


def _call_all(callbacks: deque[Callable[[], None]]) -> None:
    while callbacks:
        callbacks.popleft()()


async def wait_to_end(future: "Future[T]") -> T:
    """Wait for `future` even if cancelled meanwhile; the cancellation is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()


@asynccontextmanager
async def open_database(
    path: Path, *, busy_timeout_s: float = 10.0, read_only: bool = False
) -> AsyncIterator[SqliteDatabase]:
    """Open the database at `path`; create or migrate it if necessary. Raises `StoreError` if it was lost.

    `busy_timeout_s`: how long a write waits for one of another process before it fails.
    `read_only`: it exists on a read-only home or a full disk; nothing is written.
    """
    loop = asyncio.get_running_loop()
    with (
        open_readable(path) if read_only else nullcontext("") as uri,
        ThreadPoolExecutor(1, thread_name_prefix="disk") as sync_thread,
        ThreadPoolExecutor(1, thread_name_prefix="sqlite") as thread,
        ThreadPoolExecutor(1, thread_name_prefix="sqlite-read") as read_thread,
    ):
        connect = partial(_connect_readable, path, uri) if read_only else partial(_connect, path, busy_timeout_s)
        opening = loop.run_in_executor(thread, connect)
        try:
            database = SqliteDatabase(
                path, await wait_to_end(opening), thread, sync_thread, LongReads(path, uri, read_thread)
            )
        except asyncio.CancelledError:
            if opening.exception() is None:
                thread.submit(opening.result().close)
            raise
        try:
            yield database
        finally:
            await database.close()


def _connect_readable(path: Path, uri: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        if (version := schema_version(connection)) != SCHEMA:
            connection.close()
            why = f"{path} has schema {version}, this alipes needs {SCHEMA}"
            raise StoreError(f"{why}; make the home writable once, so that it can be migrated")
    except (sqlite3.Error, OSError) as error:
        raise translate_error(error, path) from error
    return connection


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    try:
        check_not_lost(path)
        _create_file(path)
        connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_s)
        try:
            _prepare(connection, time.monotonic() + busy_timeout_s)
        except (sqlite3.Error, AlipesError):
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise translate_error(error, path) from error
    mark_created(path)
    return connection


def _create_file(path: Path) -> None:
    """Create an empty file that only its owner can read. An existing file is never opened here: closing any
    descriptor of it would drop the locks that SQLite holds on it in this process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{path} is read-only") from None


def _prepare(connection: sqlite3.Connection, deadline: float) -> None:
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:  # two processes create the file: SQLite does not wait here
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")  # deleted text must not remain in free pages; writes 1 % more
    connection.execute("PRAGMA journal_size_limit = 67108864")
    migrate(connection)
