"""TCP and TLS connections on asyncio's transports, for HTTP.

When very many responses stream at once, each is read less often and in larger blocks, so that a
thousand streams leave the loop time for other work.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import TypeAlias

from alipes.runtime.http.lazy_httpx import errors, httpx2

MAX_BUFFERED_BYTES = 256 * 1024
"""Bytes buffered for reading or sending before the producer is paused."""
BLOCK_BYTES = 64 * 1024
CONNECT_STAGGER_S = 0.25
"""Seconds before the next address of a host is tried in parallel."""
UNTHROTTLED_READS = 4
"""Responses of at most this many reads are never throttled."""
MAX_UNTHROTTLED_STREAMS = 50
"""Number of concurrent streams up to which none is throttled."""
PAUSE_PER_STREAM_S, MAX_PAUSE_S = 0.001, 1.0
"""Seconds that a throttled stream pauses per throttled stream, and at most."""
TICK_S = 0.01
"""Seconds between releases of throttled streams."""


MayConnect: TypeAlias = Callable[[str, int, str], bool]
"""Called with host, port and a resolved address: may we connect there?"""


class Sockets:
    """Opens connections and counts those being read."""

    def __init__(self, each: float = PAUSE_PER_STREAM_S, *, permits: MayConnect | None = None) -> None:
        """`permits`: called for each resolved address; only allowed ones are tried."""
        self.reading, self._permits = 0, permits
        self._each = each
        self._resting: deque[asyncio.Future[None]] = deque()
        """Paused streams, in the order in which they are released."""
        self._ticking = False

    async def connect(self, host: str, port: int, limit: float | None) -> "TcpConnection":
        with _translate_connect_errors():
            async with asyncio.timeout(limit):
                found = await resolve_addresses(host, port)
                if self._permits is not None and found:
                    found = [each for each in found if self._permits(host, port, each)]
                    if not found:
                        raise errors.ForbiddenAddress(f"{host} is on this machine or a private network")
                return await self._first(found, port)

    async def _first(self, addresses: list[str], port: int) -> "TcpConnection":
        """Connect to the first reachable address; the next is tried when one fails or takes long."""
        loop, failures, reached = asyncio.get_running_loop(), list[OSError](), list[TcpConnection]()
        racing: dict[str, asyncio.Timeout] = {}

        async def reach(address: str, before: asyncio.Event, after: asyncio.Event) -> None:
            try:
                async with asyncio.timeout(None) as racing[address]:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CONNECT_STAGGER_S):
                            await before.wait()
                    _, line = await loop.create_connection(lambda: TcpConnection(self), address, port)
                    reached.append(line)
            except OSError as error:  # or another address was reached first
                failures.append(error)
                after.set()
            else:
                others = [limit for other, limit in racing.items() if other != address]
                for limit in others if len(reached) == 1 else ():
                    limit.reschedule(0)
            finally:
                del racing[address]

        turns = [asyncio.Event() for _ in range(len(addresses) + 1)]
        turns[0].set()
        try:
            async with asyncio.TaskGroup() as group:
                for number, address in enumerate(addresses):
                    group.create_task(reach(address, turns[number], turns[number + 1]))
            if not reached:
                raise failures[0]
            return reached.pop(0)
        finally:  # also when cancelled
            for line in reached:
                line.abort()

    @property
    def crowded(self) -> bool:
        return self.reading > MAX_UNTHROTTLED_STREAMS

    async def rest(self) -> None:
        """Wait for our turn to read; a few streams are released at a time."""
        loop = asyncio.get_running_loop()
        self._resting.append(mine := loop.create_future())
        if not self._ticking:
            self._ticking = True
            loop.call_later(TICK_S, self._tick)
        await mine

    def _tick(self) -> None:
        left = max(TICK_S / self._each, len(self._resting) * TICK_S / MAX_PAUSE_S)
        while self._resting and left > 0:
            if not (first := self._resting.popleft()).done():  # skip cancelled ones
                first.set_result(None)
                left -= 1
        self._ticking = bool(self._resting)
        if self._ticking:
            asyncio.get_running_loop().call_later(TICK_S, self._tick)


class TcpConnection(asyncio.Protocol):
    """A TCP connection, read by one task at a time. Raises `httpx2.TransportError` subclasses."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._transport: asyncio.Transport
        self._came: list[bytes] = []
        self._size = 0
        """Bytes received and not yet read."""
        self._over = False
        """The other side has closed."""
        self._error: Exception | None = None
        self._unsent: list[bytes] = []
        self._reads = 0
        """Reads since the last write."""
        self._news: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED_BYTES:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over, self._error = True, exc
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # Called by the HTTP layer

    @property
    def readable(self) -> bool:
        """True if data or the end has arrived; an idle connection should have neither."""
        return self._over or bool(self._came)

    async def read(self, limit: float | None) -> bytes:
        """At least one byte; empty at the end."""
        self._flush()
        self._reads += 1
        self._sockets.reading += 1
        try:
            if self._reads > UNTHROTTLED_READS and not self._over and self._sockets.crowded:
                await self._rest()
            if not self.readable:
                await self._more(limit)
        finally:
            self._sockets.reading -= 1
        return self._take()

    async def _rest(self) -> None:
        """Pause reading; data accumulates in the kernel."""
        self._transport.pause_reading()
        try:
            await self._sockets.rest()
        finally:
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def _more(self, limit: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        # A timer is cheaper than asyncio.timeout, which cancels the task.
        late = None if limit is None else loop.call_later(limit, self._wake)
        try:
            await self._news
        finally:
            self._news = None
            if late is not None:
                late.cancel()
        if not self.readable:
            raise httpx2.ReadTimeout(f"no data for {limit} s")

    def _take(self) -> bytes:
        if not self._came:
            if self._error is not None:
                raise httpx2.ReadError(str(self._error)) from self._error
            return b""
        data = self._came[0] if len(self._came) == 1 else b"".join(self._came)
        self._came = [data[BLOCK_BYTES:]] if len(data) > BLOCK_BYTES else []
        before, self._size = self._size, max(0, len(data) - BLOCK_BYTES)
        if before > MAX_BUFFERED_BYTES >= self._size and not self._transport.is_closing():
            self._transport.resume_reading()
        return data[:BLOCK_BYTES]

    async def write(self, data: bytes, limit: float | None) -> None:
        """Sent together with later writes, at the latest before the next read."""
        self._reads = 0
        self._unsent.append(data)
        if sum(map(len, self._unsent)) < MAX_BUFFERED_BYTES:
            return
        self._flush()
        if self._writable is not None:
            try:
                async with asyncio.timeout(limit):
                    await self._writable
            except TimeoutError as late:
                raise httpx2.WriteTimeout(f"nothing could be sent for {limit} s") from late

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))

    def abort(self) -> None:
        """Close at once, without waiting for the other side."""
        self._transport.abort()


async def start_tls(below: TcpConnection, context: ssl.SSLContext, host: str, limit: float | None) -> "TlsConnection":
    """Start TLS on `below`. If this fails, the caller must abort `below`."""
    secure = TlsConnection(below, context, host)
    with _translate_connect_errors():
        async with asyncio.timeout(limit):
            await secure.handshake()
    return secure


class TlsConnection:
    """TLS on another connection. asyncio's own leaks the connection if the handshake is cancelled."""

    def __init__(self, below: TcpConnection, context: ssl.SSLContext, host: str) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    @property
    def readable(self) -> bool:
        return self._below.readable

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._more(None)
            else:
                await self._send(None)
                return

    async def read(self, limit: float | None) -> bytes:
        while True:
            try:
                if data := self._opened():
                    return data
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLError as error:
                raise httpx2.ReadError(str(error)) from error
            await self._more(limit)

    def _opened(self) -> bytes:
        """Everything that can be read now; there may be many TLS records."""
        records: list[bytes] = []
        try:
            while record := self._tls.read(BLOCK_BYTES):
                records.append(record)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            if not records:
                raise
        return b"".join(records)

    async def _more(self, limit: float | None) -> None:
        await self._send(limit)
        data = await self._below.read(limit)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def write(self, data: bytes, limit: float | None) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise httpx2.WriteError(str(error)) from error
        await self._send(limit)

    async def _send(self, limit: float | None) -> None:
        if self._outgoing.pending:
            await self._below.write(self._outgoing.read(), limit)

    def abort(self) -> None:
        self._below.abort()


Connection: TypeAlias = TcpConnection | TlsConnection


@contextmanager
def _translate_connect_errors() -> Iterator[None]:
    """Translate errors while connecting into httpx2's."""
    try:
        yield
    except TimeoutError as late:
        raise httpx2.ConnectTimeout("connection timed out") from late
    except (OSError, httpx2.ReadError) as error:  # includes ssl.SSLError
        raise httpx2.ConnectError(str(error)) from error


async def resolve_addresses(host: str, port: int) -> list[str]:
    """Addresses of a host in the system's order, alternating between IPv6 and IPv4."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[str]] = {}
    for family, *_, where in found:
        families.setdefault(family, []).append(str(where[0]))
    return list(dict.fromkeys(filter(None, chain(*zip_longest(*families.values())))))
