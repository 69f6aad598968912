"""Tasks of the gateway that are begun from outside of it: by a turn, a timer, a platform."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context


class Group:
    """A task group that others were given; before it is open and while it ends, nothing is begun."""

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None

    def open(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    @property
    def is_open(self) -> bool:
        return self._tasks is not None

    def start(self, work: Coroutine[None, None, None], name: str) -> bool:
        """False: it was not begun."""
        if self._tasks is not None:
            try:
                # whoever happens to begin it, it is not done in their turn's or plugin's name
                self._tasks.create_task(work, name=name, context=Context())
            except RuntimeError:  # how a group says that it is ending
                self._tasks = None
            else:
                return True
        work.close()
        return False
