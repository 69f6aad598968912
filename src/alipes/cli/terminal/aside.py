"""Whatever is printed while the prompt stands, as remarks above it: the screen has one painter."""

import asyncio
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


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
