"""The SQLite database of a home: one connection, used by one thread, with group commit."""

import asyncio
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from alipes.kernel.errors import AlipesError, StoreError
from alipes.store.database.migrations import migrate
from alipes.store.database.writer import (
    DiskSync,
    WriteFailure,
    WriteJob,
    Writer,
    preallocate_wal,
    run_read,
    set_outcome,
    translate_error,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_BATCH = 256
"""Writes per commit at most, so that other processes can use the file in between."""
RESULTS_PER_STEP = 16
"""Callers that get their result in one step of the event loop."""


class Database:
    """Runs transactions in the order of submission; a caller gets its result after its rows are on disk.

    Writes submitted during a commit share the next one; a write that fails does not affect the others.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, thread: ThreadPoolExecutor, sync_thread: ThreadPoolExecutor
    ) -> None:
        """Only `thread` uses the connection; `sync_thread` waits for the disk meanwhile."""
        self.path = path
        self._connection, self._thread = connection, thread
        self._writer = Writer(path, connection)
        self._sync = DiskSync(path, sync_thread, self._record_failure)
        self._synced = asyncio.Event()
        """Set while everything written is on disk."""
        self._queue: deque[WriteJob[Any]] = deque()
        self._single: deque[WriteJob[Any]] = deque()
        """Jobs of a batch that failed as a whole: each is tried alone."""
        self._unresolved: deque[tuple[WriteJob[Any], Any]] = deque()
        """Committed jobs whose callers do not have their result yet."""
        self.during_sync: deque[Callable[[], None]] = deque()
        """Called once, while the thread waits for the disk during the next commit."""
        self._failure: StoreError | None = None
        """A write that failed without its caller noticing. Later writes depend on it, so all of them fail."""
        self._busy = False
        self._closed: asyncio.Future[None] | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T], *, sync: bool = True) -> T:
        """`submit`, and wait for the result."""
        return await self.submit(work, sync=sync)

    def submit(self, work: Callable[[sqlite3.Connection], T], *, sync: bool = True) -> "asyncio.Future[T]":
        """Run `work` in one transaction. Once submitted it happens, even if the caller is cancelled.

        `sync=False`: do not wait for the disk, because nothing depends on this write before the next one is
        on disk (or before `wait_synced` returns). It survives a kill, but not always a power cut.
        `work` may be called more than once and must use nothing but the connection.
        Raises what `work` raises, and errors of SQLite as `StoreError`. After a write failed unnoticed (its
        caller was cancelled), every later one raises that error.
        """
        self._require_open()
        if self._failure is not None:
            raise StoreError(str(self._failure)) from self._failure
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.append(WriteJob(work, future, sync))
        if not self._busy:
            self._busy = True
            loop.call_soon(loop.call_soon, self._start_next)  # so that writes of the same step share the commit
        return future

    async def wait_synced(self, patience_s: float = 0.0) -> None:
        """Return once everything written so far is on disk; other writes continue meanwhile.

        `patience_s`: how long to wait for another write to sync it along, before a sync of its own.
        """
        self._require_open()
        if self._writer.unsynced and patience_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._synced.wait()
        if self._writer.unsynced:
            await self._sync.wait()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, which must only read, on one consistent view of the file."""
        return await self._run_on_thread(partial(run_read, self._connection, self.path, work))

    async def preallocate_wal(self) -> None:
        """Grow the write-ahead log to its usual size, which halves the time of a commit.

        For processes that run long; it occupies the thread for some milliseconds.
        """
        await self._run_on_thread(partial(preallocate_wal, self._connection))

    async def close(self) -> None:
        """Finish all submitted writes, then close the file; a cancellation is raised after that."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            if not self._busy:
                self._start_next()
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
            callbacks = partial(loop.call_soon_threadsafe, _call_all, self.during_sync)
            before_sync = callbacks if self.during_sync else None
            self._submit(partial(self._writer.commit, batch, before_sync), partial(self._finish_batch, batch))
        elif self._closed is not None:
            self._submit(self._connection.close, self._finish_close)

    async def _run_on_thread(self, work: Callable[[], T]) -> T:
        """The result of `work` on the SQLite thread, after the writes submitted before."""
        self._require_open()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def finish(done: "Future[T]") -> None:
            if not future.done():
                error = done.exception()
                set_outcome(future, done.result() if error is None else WriteFailure(error))

        self._submit(work, finish)
        return await future

    def _submit(self, work: Callable[[], T], then: "Callable[[Future[T]], None]") -> None:
        """Run `work` on the thread and call `then` on the loop.

        This wakes the loop once; `run_in_executor` wakes it four times.
        """
        loop = asyncio.get_running_loop()
        self._thread.submit(work).add_done_callback(lambda done: loop.call_soon_threadsafe(then, done))

    def _finish_batch(self, batch: list[WriteJob[Any]], done: "Future[list[Any]]") -> None:
        error = done.exception()
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

    def _finish_close(self, closing: "Future[None]") -> None:
        closing.result()
        self._sync.close()
        if self._unresolved:
            asyncio.get_running_loop().call_soon(self._finish_close, closing)
        elif self._closed is not None:
            self._closed.set_result(None)


def _call_all(callbacks: deque[Callable[[], None]]) -> None:
    while callbacks:
        callbacks.popleft()()


async def wait_to_end(future: "asyncio.Future[T]") -> T:
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
async def open_database(path: Path, *, busy_timeout_s: float = 10.0) -> AsyncIterator[Database]:
    """Open the database at `path`; create or migrate it if necessary.

    `busy_timeout_s`: how long a write waits for one of another process before it fails.
    """
    loop = asyncio.get_running_loop()
    with (
        ThreadPoolExecutor(1, thread_name_prefix="disk") as sync_thread,
        ThreadPoolExecutor(1, thread_name_prefix="sqlite") as thread,
    ):
        opening = loop.run_in_executor(thread, partial(_connect, path, busy_timeout_s))
        try:
            database = Database(path, await wait_to_end(opening), thread, sync_thread)
        except asyncio.CancelledError:
            if opening.exception() is None:
                thread.submit(opening.result().close)
            raise
        try:
            yield database
        finally:
            await database.close()


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    try:
        _create_file(path)
        connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_s)
        try:
            _prepare(connection, time.monotonic() + busy_timeout_s)
        except (sqlite3.Error, AlipesError):
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise translate_error(error, path) from error
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
    connection.execute("PRAGMA journal_size_limit = 67108864")
    migrate(connection)
