"""The way to the loop's thread while that is held: a signal to it. What comes of it, who heeds it decides."""

import _thread
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

Heed: TypeAlias = Callable[[int, FrameType | None], None]
"""Called on the loop's thread, in the midst of whatever it does; what this raises is raised there."""


class _Signal(int):
    at_once = property(_thread.interrupt_main)
    """Looked at: it comes before the thread's next step. No call, because a call is a step."""


KNOCK = _Signal(getattr(signal, "SIGURG", 0))
"""By itself it does nothing: one that comes late harms nobody."""
STARVED = getattr(signal, "SIGVTALRM", 0)
CPU = 0.5
"""Seconds of work without a look: what works so hard lets no thread run, and only the kernel can tell."""


class Reach:
    """Signals are heeded by the main thread alone: for a loop on another, or on Windows, there is no way."""

    def __init__(self, heed: Heed) -> None:
        self._heed = heed
        self._thread = 0
        self._before: dict[int, Any] = {}

    def open(self) -> None:
        """Of the thread that calls this."""
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill"):
            self._thread = threading.get_ident()
            self._before = {each: signal.signal(each, self._heed) for each in (KNOCK, STARVED)}

    def close(self) -> None:
        if not self._thread:
            return
        self.rest()
        self._thread = 0
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        signal.siginterrupt(KNOCK, False)  # so asyncio wants it, which may have been before us

    def knock(self) -> None:
        """From any thread. It ends the waiting in system calls, too: Python asks there for signals first."""
        if self._thread:
            signal.pthread_kill(self._thread, KNOCK)

    def looked(self) -> None:
        """Unless this is called again, the thread is told when all of us have worked for a while."""
        if self._thread:
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU, CPU)

    def rest(self) -> None:
        """There will be no looks for a time."""
        if self._thread:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
