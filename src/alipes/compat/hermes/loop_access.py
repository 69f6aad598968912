"""Lets worker threads use the event loop as if they ran on it: calls are handed over to its thread.

Futures, tasks and timers all use `call_soon` and `call_at`, so wrapping these two is enough. A future that is
resolved in a thread wakes its waiters at once, as plugins expect.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import Any

from alipes.config.paths import current_scope

_OPEN: dict[asyncio.AbstractEventLoop, "ThreadAccess"] = {}


def allow_threads(loop: asyncio.AbstractEventLoop, wait: Callable[[Awaitable[Any]], Any]) -> None:
    """Call it on the loop's thread. `wait` replaces `run_until_complete` in worker threads."""
    if loop not in _OPEN:
        _OPEN[loop] = ThreadAccess(loop)
        _OPEN[loop].enter()
    _OPEN[loop].waits.append((current_scope(), wait))


def disallow_threads(loop: asyncio.AbstractEventLoop, wait: Callable[[Awaitable[Any]], Any]) -> None:
    guests = _OPEN[loop]
    guests.waits = [each for each in guests.waits if each[1] != wait]
    if not guests.waits:
        del _OPEN[loop]
        guests.leave()


class ThreadAccess:
    """Wraps one loop; calls on its own thread pass through."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waits: list[tuple[str, Callable[[Awaitable[Any]], Any]]] = []
        """With the profile they belong to, if the process serves several."""
        self._soon, self._at, self._run = loop.call_soon, loop.call_at, loop.run_until_complete
        self._threadsafe = loop.call_soon_threadsafe
        self._methods: dict[str, Any] = getattr(loop, "__dict__", {})  # loops of other implementations have none
        self._thread = threading.get_ident()

    def enter(self) -> None:
        self._methods |= {
            "call_soon": self.call_soon,
            "call_at": self.call_at,
            "run_until_complete": self.run_until_complete,
        }

    def leave(self) -> None:
        for name in ("call_soon", "call_at", "run_until_complete"):
            self._methods.pop(name)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        on_loop = threading.get_ident() == self._thread
        return (self._soon if on_loop else self._threadsafe)(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        set_it = partial(self._at, when, callback, *args, context=context)
        if threading.get_ident() == self._thread:
            return set_it()
        timer: Future[asyncio.TimerHandle] = Future()
        self._threadsafe(lambda: timer.set_result(set_it()))
        return timer.result()

    def run_until_complete(self, work: Awaitable[Any]) -> Any:
        """Wait in the calling thread while the loop continues."""
        if threading.get_ident() == self._thread:
            return self._run(work)
        scope = current_scope()
        for whose, wait in reversed(self.waits):
            if whose == scope:
                return wait(work)
        raise RuntimeError("cannot determine which profile is calling: use asyncio.to_thread")
