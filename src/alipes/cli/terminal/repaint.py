"""When the screen is painted: soon after a change, seldom enough to be cheap, and never without one."""

import asyncio
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from alipes.cli.terminal.status import Status


class Aside(io.TextIOBase):
    """Takes text from any thread and tells whole lines on the loop."""

    def __init__(self, tell: Callable[[str], None], stands_for: TextIO) -> None:
        self._tell, self._stands_for = tell, stands_for
        self._loop = asyncio.get_running_loop()
        self._begun = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stands_for.encoding

    def fileno(self) -> int:
        return self._stands_for.fileno()

    def isatty(self) -> bool:
        return self._stands_for.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, text)
        return len(text)

    def _take(self, text: str) -> None:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                self._tell(line)


@contextmanager
def aside(tell: Callable[[str], None]) -> Iterator[None]:
    """Until left, standard output and standard error of Python code go to `tell`, line by line."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Aside(tell, out), Aside(tell, err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


PAINTINGS = 15
"""A second at most, however fast the text comes. What is typed is shown at once, by prompt_toolkit."""


class Pulse:
    """Timers of the running loop; when nothing goes on there are none."""

    def __init__(self, status: Status, paint: Callable[[], None], painted: Callable[[], float]) -> None:
        """`painted()`: when the screen last changed."""
        self._status, self._paint, self._painted = status, paint, painted
        self._due: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._unhint: asyncio.TimerHandle | None = None

    def refresh(self) -> None:
        """Something changed. While a turn lives there is a change every second: its time."""
        loop = asyncio.get_running_loop()
        if self._due is None:
            wait = self._painted() + 1 / PAINTINGS - time.monotonic()
            self._due = loop.call_later(max(0.0, wait), self._on_due)
        if self._tick is None and self._status.busy:
            self._tick = loop.call_later(1.0, self._on_tick)

    def now(self) -> None:
        """Something happened that a person waits for: paint at once."""
        self.refresh()
        if self._due is not None:
            self._due.cancel()
            self._on_due()

    def hint(self, text: str, seconds: float) -> None:
        """Say it in the status line for a while."""
        self._status.hint = text
        if self._unhint is not None:
            self._unhint.cancel()
        self._unhint = asyncio.get_running_loop().call_later(seconds, self._on_unhint)
        self.refresh()

    def stop(self) -> None:
        for timer in (self._due, self._tick, self._unhint):
            if timer is not None:
                timer.cancel()

    def _on_due(self) -> None:
        self._due = None
        self._paint()

    def _on_tick(self) -> None:
        self._tick = None
        self.refresh()

    def _on_unhint(self) -> None:
        self._unhint = None
        self._status.hint = ""
        self.refresh()
