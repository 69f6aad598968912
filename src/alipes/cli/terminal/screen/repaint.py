"""Schedules repaints of the screen, and prints other output above the prompt."""

import asyncio
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from alipes.cli.terminal.screen.status import StatusLine


class LineRedirect(io.TextIOBase):
    """A text stream for any thread that shows whole lines in the event loop."""

    def __init__(self, show: Callable[[str], None], original: TextIO) -> None:
        self._show, self._original = show, original
        self._loop = asyncio.get_running_loop()
        self._partial = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    def fileno(self) -> int:
        return self._original.fileno()

    def isatty(self) -> bool:
        return self._original.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._add, text)
        return len(text)

    def _add(self, text: str) -> None:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            if line.strip():
                self._show(line)


@contextmanager
def redirect_output(show: Callable[[str], None]) -> Iterator[None]:
    """Send standard output and standard error of Python code to `show`, line by line."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = LineRedirect(show, out), LineRedirect(show, err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


MAX_FPS = 15
"""Maximum repaints per second for streamed text. Typed text is shown at once."""


class RepaintTimer:
    """Repaints with timers of the event loop; there are none while idle."""

    def __init__(self, status: StatusLine, paint: Callable[[], None], painted: Callable[[], float]) -> None:
        """`painted()`: when the screen last changed, by the clock of the event loop."""
        self._status, self._paint, self._painted = status, paint, painted
        self._due: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._hint_timer: asyncio.TimerHandle | None = None

    def refresh(self) -> None:
        """Schedule a repaint. During a turn, also repaint every second for the elapsed time."""
        loop = asyncio.get_running_loop()
        if self._due is None:
            wait = self._painted() + 1 / MAX_FPS - loop.time()
            self._due = loop.call_later(max(0.0, wait), self._on_due)
        if self._tick is None and self._status.is_running:
            self._tick = loop.call_later(1.0, self._on_tick)

    def paint_now(self) -> None:
        self.refresh()
        if self._due is not None:
            self._due.cancel()
            self._on_due()

    def hint(self, text: str, seconds: float) -> None:
        """Show the text in the status line for some seconds."""
        self._status.hint = text
        if self._hint_timer is not None:
            self._hint_timer.cancel()
        self._hint_timer = asyncio.get_running_loop().call_later(seconds, self._on_hint_end)
        self.refresh()

    def stop(self) -> None:
        for timer in (self._due, self._tick, self._hint_timer):
            if timer is not None:
                timer.cancel()

    def _on_due(self) -> None:
        self._due = None
        self._paint()

    def _on_tick(self) -> None:
        self._tick = None
        self.refresh()

    def _on_hint_end(self) -> None:
        self._hint_timer = None
        self._status.hint = ""
        self.refresh()
