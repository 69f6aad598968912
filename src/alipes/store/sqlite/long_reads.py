"""Reads that take long: on a read-only connection with a thread of its own, so that writes do not wait for them."""

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import Callable
from concurrent.futures import Executor
from concurrent.futures import Future as ThreadFuture
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from alipes.store.sql.errors import translate_error

T = TypeVar("T")
TIMEOUT_S = 10.0


class LongReads:
    """One read at a time; the connection is opened with the first one."""

    def __init__(self, path: Path, uri: str, thread: Executor) -> None:
        """`uri`: how to open the file; empty: for reading, while another connection of this process is open."""
        self._path, self._thread = path, thread
        self._uri = uri or f"file:{quote(str(path.absolute()))}?mode=ro"
        self._connection: sqlite3.Connection | None = None
        self._running: object = None
        """The read that the thread works on."""
        self._used = False

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one read transaction. Raises what it raises, and errors of SQLite as `StoreError`."""
        loop, mark, self._used = asyncio.get_running_loop(), object(), True
        result: Future[T] = loop.create_future()

        def finish(done: "ThreadFuture[T]") -> None:
            if not result.done():
                error = done.exception()
                if error is None:
                    result.set_result(done.result())
                else:
                    result.set_exception(error)

        self._thread.submit(self._work, work, mark, result.cancelled).add_done_callback(
            lambda done: loop.call_soon_threadsafe(finish, done)
        )
        try:
            return await result
        except asyncio.CancelledError:
            if self._running is mark and self._connection is not None:
                self._connection.interrupt()
            raise

    def close(self, then: Callable[[], None]) -> None:
        """Interrupt what is running, close the connection, and call `then` on the loop."""
        if self._running is not None and self._connection is not None:
            self._connection.interrupt()
        if self._used:
            loop = asyncio.get_running_loop()
            self._thread.submit(self._close).add_done_callback(lambda _: loop.call_soon_threadsafe(then))
        else:
            then()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _work(self, work: Callable[[sqlite3.Connection], T], mark: object, is_cancelled: Callable[[], bool]) -> T:
        try:
            if is_cancelled():
                raise sqlite3.OperationalError("interrupted")
            if self._connection is None:
                self._connection = sqlite3.connect(self._uri, uri=True, isolation_level=None, timeout=TIMEOUT_S)
            db, self._running = self._connection, mark
            try:
                db.execute("BEGIN")
                return work(db)
            finally:
                self._running = None
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise translate_error(error, self._path) from error
