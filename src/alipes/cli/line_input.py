"""Input line by line: the lines of a pipe, file or terminal, and where a person types."""

import asyncio
import os
import sys
from typing import TextIO

from alipes.cli.stdio import is_terminal

READ_SIZE = 65_536


class LineReader:
    """Reads the lines of a pipe, file or terminal as they arrive."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fd = None if stream is None else stream.fileno()
        self._pending = b""
        self._ended = stream is None

    async def next(self) -> str | None:
        """The next line without its line break; None at the end."""
        while b"\n" not in self._pending and not self._ended:
            piece = await self._read()
            self._ended = not piece
            self._pending += piece
        line, found, rest = self._pending.partition(b"\n")
        self._pending = rest
        return line.decode("utf-8", "replace") if line or found else None

    async def _read(self) -> bytes:
        assert self._fd is not None
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(self._fd, ready.set)
        except PermissionError:  # a regular file cannot be watched and is always ready
            return os.read(self._fd, READ_SIZE)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        return os.read(self._fd, READ_SIZE)


def open_keyboard() -> TextIO | None:
    """Where a person types, if one is there: standard input, or the terminal if that is a pipe."""
    if not is_terminal(sys.stderr):
        return None
    if is_terminal(sys.stdin):
        return sys.stdin
    try:
        return open("/dev/tty", encoding="utf-8")
    except OSError:
        return None
