"""When the screen is painted: soon after a change, seldom enough to be cheap, and never without one."""

import asyncio
import time
from collections.abc import Callable

from alipes.cli.terminal.status import Status

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
