"""Makes what was written reach the disk, beside the thread that writes. It knows no rows."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from concurrent.futures import Future as ThreadFuture
from pathlib import Path
from typing import TypeAlias

from alipes.store.complaints import unusable

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
