"""The tasks of an open store."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType


class StoreTasks:
    """The parent of every task inside an open store; none of them outlives it.

    Unlike a `TaskGroup` it raises an error of its body as it is, not as a group.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self.closing = False

    async def __aenter__(self) -> "StoreTasks":
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing = True
        for task in self._running:
            task.cancel()
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*(kind, error, trace) if cancelled else (None, None, None))

    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self.closing:
            task.cancel()
        return task
