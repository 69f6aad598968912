"""Logs of MCP servers: what they write to their standard error and send as log messages, in files of limited size."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_FILE_BYTES = 512 * 1024
"""Then the file is renamed to `NAME.log.1`, which replaces the older one."""
MAX_LINE_BYTES = 4_000
LAST_LINES = 20


class ServerLog:
    """The log of one server."""

    def __init__(self, folder: Path, name: str, mask: Callable[[str], str] = str) -> None:
        """`mask` removes secrets from everything that is written."""
        self.path = folder / f"{name}.log"
        self._mask = mask
        self.finished = asyncio.Event()
        """Set when all output of the server was added."""
        self._rest = b""
        self._last: list[str] = []

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last few lines of this process, for error messages."""
        return tuple(self._last)

    async def add(self, text: str) -> None:
        """Add whole lines."""
        lines = [self._mask(line)[:MAX_LINE_BYTES] for line in text.splitlines() if line.strip()]
        if lines:
            self._last = [*self._last, *lines][-LAST_LINES:]
            await asyncio.to_thread(self._append, lines)

    async def feed(self, piece: bytes) -> None:
        """Add a piece of output, which may end within a line."""
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[-MAX_LINE_BYTES:]
        if lines:
            await self.add("\n".join(line[:MAX_LINE_BYTES].decode("utf-8", "replace") for line in lines))

    async def finish(self) -> None:
        """Add what is left of an unfinished line."""
        rest, self._rest = self._rest, b""
        await self.add(rest.decode("utf-8", "replace"))
        self.finished.set()

    def _append(self, lines: list[str]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        data = "".join(f"{stamp} {line}\n" for line in lines).encode("utf-8", "replace")[-MAX_FILE_BYTES:]
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(handle, "ab") as file:
            file.write(data)
            size = file.tell()
        if size > MAX_FILE_BYTES:
            os.replace(self.path, self.path.with_suffix(".log.1"))


def read_log(folder: Path, name: str) -> Iterator[str]:
    """The lines of a server's log, oldest first."""
    path = folder / f"{name}.log"
    for part in (path.with_suffix(".log.1"), path):
        try:
            yield from part.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
