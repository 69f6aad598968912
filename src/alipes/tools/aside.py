"""Blocking work in a thread that a stop can still call off. What the work is, is for others to say."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class CalledOff(Exception):
    """Raised by the work itself: it was not to be done any more. Nobody hears it."""


class Gate:
    """Stands between preparing and doing. A stop closes it, unless the doing has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed = self._closed = False

    def enter(self) -> None:
        """For the work, once all is prepared: from here on it is done. Raises `CalledOff` after a stop."""
        with self._lock:
            if self._closed:
                raise CalledOff
            self._passed = True

    def close(self) -> bool:
        """Call the work off; False when it is being done already."""
        with self._lock:
            self._closed = not self._passed
            return self._closed


async def aside(work: Callable[[Gate], T]) -> T:
    """Do `work` in a thread. Cancelled before it entered the gate: it never will; after: when it is done."""
    gate = Gate()
    future = asyncio.get_running_loop().run_in_executor(None, work, gate)
    stopped: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as cancelled:
            stopped = cancelled
            if gate.close():
                future.cancel()  # what the thread still prepares, it throws away itself
                raise
    if stopped is not None:
        future.exception()
        raise stopped
    return future.result()
