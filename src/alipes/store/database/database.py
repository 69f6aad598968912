"""One SQLite file, one connection, one thread that touches it. What the rows mean is for others to say."""

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
from alipes.store.database.writer import Failed, Job, Sync, Writer, look, ours, settle, stretch

log = logging.getLogger(__name__)

T = TypeVar("T")
BATCH = 256
"""Writes that share one commit at most, so that other processes get the file in between."""
TOGETHER = 16
"""Askers that are told in one breath."""


class Database:
    """Transactions in the order they were asked for; each asker is told after its rows are on disk.

    Writes that arrive while one commit is under way are committed together by the next;
    one that fails takes no other along.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        thread: ThreadPoolExecutor,
        beside: ThreadPoolExecutor,
    ) -> None:
        """`thread` alone touches the connection; `beside` waits for the disk meanwhile."""
        self.path = path
        self._connection, self._thread = connection, thread
        self._writer = Writer(path, connection)
        self._sync = Sync(path, beside, self._lose)
        self._tight = asyncio.Event()
        """All that was written is on disk."""
        self._queue: deque[Job[Any]] = deque()
        self._single: deque[Job[Any]] = deque()
        self._untold: deque[tuple[Job[Any], Any]] = deque()
        """Askers whose rows are on disk, and what they are to be told."""
        self.meanwhile: deque[Callable[[], None]] = deque()
        """Called, once, while the thread waits for the disk to take what is asked for next."""
        self._lost: StoreError | None = None
        """A write that failed unheard: what is asked for after it counts on it, so no more is written."""
        self._busy = False
        self._closed: asyncio.Future[None] | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T], *, soon: bool = False) -> T:
        """`ask`, and wait for it."""
        return await self.ask(work, soon=soon)

    def ask(self, work: Callable[[sqlite3.Connection], T], *, soon: bool = False) -> "asyncio.Future[T]":
        """Do `work` in one transaction; once asked for, it happens, even if the asker is cancelled.

        `soon`: another write follows before anything is done about it, so that it reaches the disk with
        that one, or `kept` is awaited; if we are killed it is there, after a power cut it may not be.
        `work` may be tried more than once and must touch nothing but the connection.
        Raises what `work` raises; SQLite's own complaints as `StoreError`. After a write that failed when its
        asker was gone already, all raise that: who cannot remember must not act.
        """
        self._refuse_when_closed()
        if self._lost is not None:
            raise StoreError(str(self._lost)) from self._lost
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()
        self._queue.append(Job(work, told, soon))
        if not self._busy:
            self._busy = True
            loop.call_soon(loop.call_soon, self._next)  # what others ask for in the same breath comes along
        return told

    async def kept(self, patience: float = 0.0) -> None:
        """Return once all that was written so far is on disk; other writes go on meanwhile.

        `patience`: seconds in which another write may take it along, before the disk is asked for it alone.
        """
        self._refuse_when_closed()
        if self._writer.loose and patience:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._tight.wait()
        if self._writer.loose:
            await self._sync.reached()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work`, which only reads, on one consistent view of the file."""
        return await self._given(partial(look, self._connection, self.path, work))

    async def stretch(self) -> None:
        """Give the write-ahead log the size that it would grow to: written in place, a row is on disk in half
        the time. For processes that live long; it costs some milliseconds of the thread."""
        await self._given(partial(stretch, self._connection))

    async def close(self) -> None:
        """Finish what was asked for, then let go of the file. A cancellation waits until that is done."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            if not self._busy:
                self._next()
        await surely(self._closed)

    def _refuse_when_closed(self) -> None:
        if self._closed is not None:
            raise StoreError(f"the store {self.path} is closed")

    def _lose(self, error: BaseException) -> None:
        self._lost = error if isinstance(error, StoreError) else StoreError(str(error))

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        while self._lost is not None and (self._single or self._queue):
            (self._single or self._queue).popleft().tell(Failed(StoreError(str(self._lost))))
        if self._single:
            batch = [self._single.popleft()]
        else:
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
        self._busy = bool(batch)
        if batch:
            waits = partial(loop.call_soon_threadsafe, _use, self.meanwhile) if self.meanwhile else None
            self._aside(partial(self._writer.commit, batch, waits), partial(self._tell, batch))
        elif self._closed is not None:
            self._aside(self._connection.close, self._let_go)

    async def _given(self, work: Callable[[], T]) -> T:
        """What it gives, on the thread, once what was asked for before is done."""
        self._refuse_when_closed()
        told: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def tell(done: "Future[T]") -> None:
            if not told.done():
                error = done.exception()
                settle(told, done.result() if error is None else Failed(error))

        self._aside(work, tell)
        return await told

    def _aside(self, work: Callable[[], T], then: "Callable[[Future[T]], None]") -> None:
        """On the thread; `then` is called back here. With one wake-up of the loop, where its own way of
        doing this takes four."""
        loop = asyncio.get_running_loop()
        self._thread.submit(work).add_done_callback(lambda done: loop.call_soon_threadsafe(then, done))

    def _tell(self, batch: list[Job[Any]], done: "Future[list[Any]]") -> None:
        error = done.exception()
        if error is None:
            (self._tight.clear if self._writer.loose else self._tight.set)()
            telling = bool(self._untold)
            self._untold.extend(zip(batch, done.result(), strict=True))
            if not telling:
                self._tell_some()
        elif len(batch) == 1:
            self._lost = batch[0].tell(Failed(ours(error, self.path))) or self._lost
        else:  # nothing of it was kept, and whose fault it was is found out one by one
            self._single.extend(batch)
        self._next()

    def _tell_some(self) -> None:
        """Not all of a large batch at once: each who is told goes on in the same breath of the loop."""
        for _ in range(min(TOGETHER, len(self._untold))):
            job, outcome = self._untold.popleft()
            self._lost = job.tell(outcome) or self._lost
        if self._untold:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _let_go(self, closing: "Future[None]") -> None:
        closing.result()
        self._sync.close()
        if self._untold:
            asyncio.get_running_loop().call_soon(self._let_go, closing)
        elif self._closed is not None:
            self._closed.set_result(None)


def _use(time: deque[Callable[[], None]]) -> None:
    while time:
        time.popleft()()


async def surely(future: "asyncio.Future[T]") -> T:
    """Wait for `future` to its end; a cancellation meanwhile is passed on only then."""
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
async def open_database(path: Path, *, patience: float = 10.0) -> AsyncIterator[Database]:
    """`path` opened, made and brought up to our schema as needed.

    `patience`: the seconds a write waits for another process's before it fails.
    """
    loop = asyncio.get_running_loop()
    with (
        ThreadPoolExecutor(1, thread_name_prefix="disk") as beside,
        ThreadPoolExecutor(1, thread_name_prefix="sqlite") as thread,
    ):
        opening = loop.run_in_executor(thread, partial(_connect, path, patience))
        try:
            database = Database(path, await surely(opening), thread, beside)
        except asyncio.CancelledError:
            if opening.exception() is None:
                thread.submit(opening.result().close)
            raise
        try:
            yield database
        finally:
            await database.close()


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    try:
        _make(path)
        connection = sqlite3.connect(path, isolation_level=None, timeout=patience)
        try:
            _prepare(connection, time.monotonic() + patience)
        except (sqlite3.Error, AlipesError):
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise ours(error, path) from error
    return connection


def _make(path: Path) -> None:
    """An empty file only its owner may read. An existing one is never opened by hand:
    closing any descriptor of it would drop the locks SQLite holds on it in this process."""
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
        except sqlite3.OperationalError as error:  # two first openers: SQLite does not wait here by itself
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    migrate(connection)
