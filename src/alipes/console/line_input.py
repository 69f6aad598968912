"""Input line by line: the lines of a pipe, file or terminal, JSON messages, and where a person types."""

import asyncio
import os
import sys
from typing import Any, TextIO

import msgspec

from alipes.console.stdio import AsyncWriter, is_terminal

READ_SIZE = 65_536
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
"""Error codes of JSON-RPC."""


class LineReader:
    """Reads the lines of a pipe, file or terminal as they arrive."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fd = None if stream is None else stream.fileno()
        self._pending = bytearray()
        self._searched = 0
        """Bytes at the start of `_pending` that hold no line break."""
        self._ended = stream is None

    async def next(self) -> str | None:
        """The next line without its line break; None at the end."""
        line = await self.next_bytes()
        return None if line is None else line.decode("utf-8", "replace")

    async def next_bytes(self) -> bytes | None:
        """The next line as it was sent."""
        while (end := self._pending.find(b"\n", self._searched)) < 0 and not self._ended:
            self._searched = len(self._pending)
            piece = await self._read()
            self._ended = not piece
            self._pending += piece
        self._searched = 0
        if end < 0 and not self._pending:
            return None
        line = bytes(self._pending[: end if end >= 0 else None])
        del self._pending[: len(line) + (end >= 0)]
        return line

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


class JsonLines:
    """JSON-RPC messages, one per line: the transport of editors and MCP clients that start us."""

    def __init__(self, source: TextIO | None, out: TextIO | None) -> None:
        self._reader, self._writer = LineReader(source), AsyncWriter(None if out is None else out.fileno())

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end. A line that is no JSON object is answered with an error."""
        while (line := await self._reader.next_bytes()) is not None:
            if not line.strip():
                continue
            try:
                message = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                await self.send_error(None, PARSE_ERROR, f"not valid JSON: {error}")
                continue
            if isinstance(message, dict):
                return message
            await self.send_error(None, INVALID_REQUEST, "send one JSON object per line")
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Send it, and wait until the reader has it. If the reader is gone, it is dropped."""
        self._writer.write(msgspec.json.encode(message) + b"\n")
        await self._writer.drain()

    async def send_error(self, id: Any, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    async def close(self) -> None:
        self._writer.close()


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
