"""One HTTP/1.1 connection of a test server: reads a request, has it answered, reads the next."""

import asyncio
import time
from typing import Protocol


class RequestHandler(Protocol):
    def opened(self, connection: "Connection") -> None: ...

    def lost(self, connection: "Connection", answering: bool) -> None: ...

    async def serve(self, connection: "Connection", request: "HttpRequest") -> None: ...


class HttpRequest:
    """A request as it arrived; header names are in lower case."""

    def __init__(self, head: str, raw: bytes) -> None:
        first, *lines = head.split("\r\n")
        self.method, target, _ = first.split(" ")
        self.path = target.partition("?")[0]
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.raw = raw
        self.at = 0.0
        """When it was complete."""


class Connection(asyncio.Protocol):
    def __init__(self, owner: RequestHandler, tasks: asyncio.TaskGroup) -> None:
        self._owner, self._tasks = owner, tasks
        self._data = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.number = 0
        self._is_last = False
        """The client wants the connection closed after this answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        answering = self._answering is not None and not self._answering.done()
        if self._answering and answering:
            self._answering.cancel()
        self._writable.set()
        self._owner.lost(self, answering)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._next()

    def _next(self) -> None:
        if self._answering or (end := self._data.find(b"\r\n\r\n")) < 0:
            return
        request = HttpRequest(bytes(self._data[:end]).decode("latin-1"), b"")
        start, length = end + 4, int(request.headers.get("content-length", 0))
        if len(self._data) < start + length:
            return
        request.raw, request.at = bytes(self._data[start : start + length]), time.time()
        del self._data[: start + length]
        self._is_last = request.headers.get("connection", "").lower() == "close"
        self._answering = self._tasks.create_task(self._owner.serve(self, request))
        self._answering.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._answering = None
        if self._is_last:
            self.transport.close()
        if not self.transport.is_closing():
            self._next()

    def whole(
        self, status: int, body: bytes, kind: str = "application/json", more: dict[str, str] | None = None
    ) -> None:
        self.head(status, kind, {"content-length": str(len(body)), **(more or {})})
        self.transport.write(body)

    def head(self, status: int, kind: str, more: dict[str, str]) -> None:
        more = more | {"connection": "close"} if self._is_last else more
        lines = [f"HTTP/1.1 {status} Scripted", f"content-type: {kind}", *(f"{k}: {v}" for k, v in more.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def send(self, data: bytes) -> None:
        """Write, and wait if the client is slow."""
        self.transport.write(data)
        await self._writable.wait()
