"""A TCP proxy that causes faults of a network on demand: silence, cut connections, refused connections, delay.

Silence is what a lost route does: connections stay open, what is sent is accepted and arrives only when the route
is back. So a paused writer's bytes may reach the server late.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

CHUNK_BYTES = 65_536
Upstream = tuple[str, int] | Path
"""A host and a port, or the path of a Unix socket."""


class _Piece(Struct, frozen=True):
    """Bytes on their way; empty at the end of a stream."""

    at: float
    data: bytes


class TcpProxy:
    """Passes connections on to `upstream`. Every change applies to open and to new connections."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.delay_s = 0.0
        """How long each piece of data is held, in both directions."""
        self.port = 0
        self.accepted = 0
        """Connections accepted so far."""
        self.requests = 0
        """Pieces of data received from clients: for one that waits for each answer, its round trips."""
        self._passes = asyncio.Event()
        self._passes.set()
        self._refuses = False
        self._links: set[_Link] = set()

    @property
    def open_connections(self) -> int:
        return len(self._links)

    @property
    def is_silent(self) -> bool:
        return not self._passes.is_set()

    def silence(self) -> None:
        """Deliver nothing from now on; connections stay open, also for a side that closes."""
        self._passes.clear()

    def restore(self) -> None:
        """Accept and deliver again; what was sent meanwhile over connections that are still there arrives first."""
        self._refuses = False
        self._passes.set()

    def cut(self) -> None:
        """Break every connection; new ones are accepted."""
        for link in tuple(self._links):
            link.abort()

    def refuse(self) -> None:
        """Break every connection, and each new one at once, until `restore`."""
        self._refuses = True
        self.cut()

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.silence()
        try:
            yield
        finally:
            self.restore()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection until both sides have closed it."""
        self.accepted += 1
        if self._refuses:
            writer.transport.abort()
            return
        link = _Link(self, writer)
        self._links.add(link)
        try:
            await link.run(reader)
        finally:
            link.abort()
            self._links.discard(link)

    async def wait_until_passing(self, at: float) -> None:
        """Return when data that came in `at` may be delivered."""
        if (left := at + self.delay_s - time.monotonic()) > 0:
            await asyncio.sleep(left)
        await self._passes.wait()


class _Link:
    """One connection of a client and the one to the server."""

    def __init__(self, proxy: TcpProxy, client: asyncio.StreamWriter) -> None:
        self._proxy, self._client = proxy, client
        self._server: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def abort(self) -> None:
        for writer in (self._client, self._server):
            if writer is not None:
                writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def run(self, requests: asyncio.StreamReader) -> None:
        sent: asyncio.Queue[_Piece] = asyncio.Queue()
        with suppress(OSError, asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                self._tasks.append(group.create_task(_collect(requests, sent)))
                self._tasks.append(group.create_task(self._connect(group, sent)))

    async def _connect(self, group: asyncio.TaskGroup, sent: "asyncio.Queue[_Piece]") -> None:
        await self._proxy.wait_until_passing(time.monotonic())
        try:
            answers, self._server = await _open(self._proxy.upstream)
        except OSError:
            self._client.transport.abort()
            return
        received: asyncio.Queue[_Piece] = asyncio.Queue()
        self._tasks.append(group.create_task(_collect(answers, received)))
        self._tasks.append(group.create_task(self._deliver(received, self._client)))
        await self._deliver(sent, self._server)

    async def _deliver(self, pieces: "asyncio.Queue[_Piece]", target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                piece = await pieces.get()
                await self._proxy.wait_until_passing(piece.at)
                if not piece.data:
                    break
                self._proxy.requests += target is self._server
                target.write(piece.data)
                await target.drain()
        target.close()


async def _collect(source: asyncio.StreamReader, pieces: "asyncio.Queue[_Piece]") -> None:
    data = b"-"
    while data:
        try:
            data = await source.read(CHUNK_BYTES)
        except OSError:
            data = b""
        pieces.put_nowait(_Piece(time.monotonic(), data))


async def _open(upstream: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(upstream, Path):
        return await asyncio.open_unix_connection(str(upstream))
    return await asyncio.open_connection(*upstream)


@asynccontextmanager
async def open_proxy(upstream: Upstream, *, listen: Path | None = None) -> AsyncIterator[TcpProxy]:
    """A proxy on a port of its own of 127.0.0.1, or on the Unix socket `listen`."""
    proxy = TcpProxy(upstream)
    tasks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(proxy.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if listen is None:
        server = await asyncio.start_server(begin, "127.0.0.1", 0, backlog=512)
        proxy.port = server.sockets[0].getsockname()[1]
    else:
        server = await asyncio.start_unix_server(begin, str(listen), backlog=512)
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        while tasks:
            await asyncio.wait(tasks)
