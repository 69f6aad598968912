"""Loopback HTTP servers, plain and TLS, that record their connections; and their CA."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import trustme


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1", "localhost", "model.test").configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    """Trusts only our CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


def ca_file(folder: Path) -> Path:
    path = folder / "ca.pem"
    authority().cert_pem.write_to_path(str(path))
    return path


class SeenConnection:
    """One connection as the server saw it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.closed = asyncio.Event()
        """Set when the other side has closed."""

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_request(self) -> None:
        head, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((head, headers, body))

    async def wait_gone(self) -> None:
        """Wait until the other side has closed; its data is dropped."""
        try:
            while await self.reader.read(65536):
                pass
        except (ConnectionError, ssl.SSLError):
            pass
        self.closed.set()


Answer = Callable[[SeenConnection], Awaitable[None]]


class Loopback:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.port = 0
        self.url = ""
        self.connections: list[SeenConnection] = []
        self.arrived = asyncio.Event()
        """Set at each request; clear it to wait for the next."""

    @property
    def requests(self) -> list[tuple[str, dict[str, str], bytes]]:
        return [request for connection in self.connections for request in connection.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = SeenConnection(reader, writer)
        self.connections.append(seen)
        try:
            while True:
                await seen.read_request()
                self.arrived.set()
                await self._answer(seen)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            seen.closed.set()
        finally:
            writer.close()


def reply(body: bytes = b"{}", *, kind: str = "application/json", status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


async def always_json(seen: SeenConnection) -> None:
    seen.send(reply(b'{"object": "list", "data": [], "has_more": false, "first_id": null, "last_id": null}'))


def chunked(*pieces: bytes, ending: bool = True) -> bytes:
    """A streamed response in pieces, optionally without its end."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + body + (b"0\r\n\r\n" if ending else b"")


@asynccontextmanager
async def open_loopback(answer: Answer = always_json, *, tls: bool = False) -> AsyncIterator[Loopback]:
    """Serve on a free loopback port: `answer` is called for each request."""
    server = Loopback(answer)
    handlers: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # shutdown; asyncio's streams would report it as an error
        finally:
            handlers.discard(task)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=server_context() if tls else None)
    server.port = listening.sockets[0].getsockname()[1]
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listening.close()
        for task in list(handlers):
            task.cancel()
        if handlers:
            await asyncio.wait(list(handlers))
        for seen in server.connections:
            seen.writer.transport.abort()
        await asyncio.sleep(0)


def status_line(request: tuple[str, dict[str, str], bytes]) -> str:
    return re.sub(r" HTTP/1\.1$", "", request[0])
