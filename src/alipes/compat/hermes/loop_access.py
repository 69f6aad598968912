"""Lets plain code in worker threads touch the loop as if it ran there: what it asks for is handed over.

Futures, tasks and timers all reach the loop by `call_soon` and `call_at`, so these two are the whole door.
A future that is resolved in a thread then wakes who waits for it at once, as plugins expect.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import Any

_OPEN: dict[asyncio.AbstractEventLoop, "Guests"] = {}


def open_to_guests(loop: asyncio.AbstractEventLoop, wait: Callable[[Awaitable[Any]], Any]) -> None:
    """On the loop's thread. `wait`: what a thread does that would run the loop until something is done."""
    if loop not in _OPEN:
        _OPEN[loop] = Guests(loop)
        _OPEN[loop].enter()
    _OPEN[loop].waits.append(wait)


def close_to_guests(loop: asyncio.AbstractEventLoop, wait: Callable[[Awaitable[Any]], Any]) -> None:
    guests = _OPEN[loop]
    guests.waits.remove(wait)
    if not guests.waits:
        del _OPEN[loop]
        guests.leave()


class Guests:
    """Stands in front of one loop; its own thread passes through."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waits: list[Callable[[Awaitable[Any]], Any]] = []
        self._soon, self._at, self._run = loop.call_soon, loop.call_at, loop.run_until_complete
        self._threadsafe = loop.call_soon_threadsafe
        self._doors: dict[str, Any] = getattr(loop, "__dict__", {})  # one that is not Python's own has none
        self._thread = threading.get_ident()

    def enter(self) -> None:
        self._doors |= {
            "call_soon": self.call_soon,
            "call_at": self.call_at,
            "run_until_complete": self.run_until_complete,
        }

    def leave(self) -> None:
        for name in ("call_soon", "call_at", "run_until_complete"):
            self._doors.pop(name)

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        here = threading.get_ident() == self._thread
        return (self._soon if here else self._threadsafe)(callback, *args, context=context)

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
        """A thread waits for it, while the loop goes on."""
        return self._run(work) if threading.get_ident() == self._thread else self.waits[-1](work)
