"""Lanes: what is done in one chat is done in order, chats do not wait for each other."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Job: TypeAlias = Callable[[], Awaitable[None]]


class Lanes:
    """All jobs are children of `tasks`, whose end waits for them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.tasks = tasks
        self._waiting: dict[str, deque[Job]] = {}

    def put(self, lane: str, job: Job) -> None:
        if lane in self._waiting:
            self._waiting[lane].append(job)
            return
        self._waiting[lane] = deque((job,))
        self.tasks.create_task(self._run(lane))

    async def _run(self, lane: str) -> None:
        jobs = self._waiting[lane]
        while jobs:
            await jobs.popleft()()
        del self._waiting[lane]
