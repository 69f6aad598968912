"""TCP and TLS for the pools of HTTP connections, straight on asyncio's transports. It knows no HTTP.

Where very many answers stream at once, each is read less often, and what came meanwhile is read together:
so a thousand of them leave the loop time for everybody else.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Any

import httpcore2

FULL = 256 * 1024
"""Bytes that wait to be read, or to be sent, before we hold back whoever makes more."""
FREE = 4
"""Answers that come in no more parts than this are never held up."""
EACH = 0.001
"""Seconds between two reads of one stream, for every stream that is read at the same time."""
LEAST, MOST = 0.05, 1.0
"""A shorter pause is none; and none is longer."""
STAGGER = 0.25
"""Seconds after which the next address of a host is tried beside the one before."""


class Sockets(httpcore2.AsyncNetworkBackend):
    """Makes the connections of one pool, and counts those that are being read."""

    def __init__(self, each: float = EACH) -> None:
        self.reading, self._each = 0, each

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        where = None if local_address is None else (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                line = await self._first(await _addresses(host, port), port, where)
        except TimeoutError as late:
            raise httpcore2.ConnectTimeout(str(late)) from late
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for option in socket_options or ():
            line.get_extra_info("socket").setsockopt(*option)
        return line

    async def _first(self, addresses: list[str], port: int, where: tuple[str, int] | None) -> "_Line":
        """The first that is reached. Each is tried when the one before it fails, or takes long."""
        loop, failures, reached = asyncio.get_running_loop(), list[OSError](), list[_Line]()
        racing: dict[str, asyncio.Timeout] = {}

        async def reach(address: str, before: asyncio.Event, after: asyncio.Event) -> None:
            try:
                async with asyncio.timeout(None) as racing[address]:
                    await _within(STAGGER, before)
                    made = loop.create_connection(lambda: _Line(self), address, port, local_addr=where)
                    reached.append((await made)[1])
            except OSError as error:  # or another was reached first
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
        finally:  # also when nobody wants it any more
            for line in reached:
                line.abort()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def pause(self) -> float:
        """Seconds to wait before a stream is read again; zero where few are."""
        pause = self.reading * self._each
        return min(pause, MOST) if pause >= LEAST else 0.0


class _Line(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One connection. Only one task reads it at a time, as HTTP/1.1 has it."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._transport: asyncio.Transport
        self._came: list[bytes] = []
        self._size = 0
        """Bytes that came and were not read."""
        self._over = False
        """Nothing more will come."""
        self._error: Exception | None = None
        self._unsent: list[bytes] = []
        self._reads = 0
        """Since we last wrote."""
        self._news: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came.append(data)
        self._size += len(data)
        if self._size > FULL:
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

    # What the pool asks

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        self._flush()
        self._reads += 1
        self._sockets.reading += 1
        try:
            if self._reads > FREE and not self._over and (pause := self._sockets.pause):
                await self._rest(pause)
            if not self._came and not self._over:
                await self._more(timeout)
        finally:
            self._sockets.reading -= 1
        return self._take(max_bytes)

    async def _rest(self, pause: float) -> None:
        """Let it gather where it costs nothing: in the kernel."""
        self._transport.pause_reading()
        try:
            await asyncio.sleep(pause)
        finally:
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def _more(self, limit: float | None) -> None:
        self._news = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(limit):
                await self._news
        except TimeoutError as late:
            raise httpcore2.ReadTimeout(str(late)) from late
        finally:
            self._news = None

    def _take(self, most: int) -> bytes:
        if not self._came:
            if self._error is not None:
                raise httpcore2.ReadError(str(self._error)) from self._error
            return b""
        data = self._came[0] if len(self._came) == 1 else b"".join(self._came)
        self._came = [data[most:]] if len(data) > most else []
        before, self._size = self._size, max(0, len(data) - most)
        if before > FULL >= self._size and not self._transport.is_closing():
            self._transport.resume_reading()
        return data[:most]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """It leaves with what follows it, at the latest when an answer is waited for."""
        self._reads = 0
        self._unsent.append(buffer)
        if sum(map(len, self._unsent)) < FULL:
            return
        self._flush()
        if self._writable is not None:
            try:
                async with asyncio.timeout(timeout):
                    await self._writable
            except TimeoutError as late:
                raise httpcore2.WriteTimeout(str(late)) from late

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        return await _secured(self, ssl_context, server_hostname, timeout)

    async def aclose(self) -> None:
        """At once: nobody waits for the other side to say farewell."""
        self.abort()
        await asyncio.sleep(0)  # in which the socket is closed

    def abort(self) -> None:
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "is_readable":
                return self._over or bool(self._came)
            case "client_addr":
                return self._transport.get_extra_info("sockname")
            case "server_addr":
                return self._transport.get_extra_info("peername")
        return self._transport.get_extra_info(info)


class _Secure(httpcore2.AsyncNetworkStream):
    """TLS on another stream. Asyncio's own leaves a connection open whose handshake is cut short."""

    def __init__(
        self, below: httpcore2.AsyncNetworkStream, context: ssl.SSLContext, hostname: str | None
    ) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._more(None)
            else:
                await self._send(None)
                return

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        while True:
            try:
                if data := self._opened(max_bytes):
                    return data
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLError as error:
                raise httpcore2.ReadError(str(error)) from error
            await self._more(timeout)

    def _opened(self, most: int) -> bytes:
        """All that can be read now: each record is read by itself, and there may be many."""
        records: list[bytes] = []
        try:
            while most > 0:
                record = self._tls.read(most)
                if not record:
                    break
                records.append(record)
                most -= len(record)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            if not records:
                raise
        return b"".join(records)

    async def _more(self, limit: float | None) -> None:
        await self._send(limit)
        data = await self._below.read(64 * 1024, limit)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            self._tls.write(buffer)
        except ssl.SSLError as error:
            raise httpcore2.WriteError(str(error)) from error
        await self._send(timeout)

    async def _send(self, limit: float | None) -> None:
        if self._outgoing.pending:
            await self._below.write(self._outgoing.read(), limit)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        return await _secured(self, ssl_context, server_hostname, timeout)

    async def aclose(self) -> None:
        await self._below.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._tls if info == "ssl_object" else self._below.get_extra_info(info)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Until it is set, or so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _addresses(host: str, port: int) -> list[str]:
    """Those of a host, its families in turn, as the system orders them."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[str]] = {}
    for family, *_, where in found:
        families.setdefault(family, []).append(str(where[0]))
    return list(dict.fromkeys(filter(None, chain(*zip_longest(*families.values())))))


async def _secured(
    below: httpcore2.AsyncNetworkStream, context: ssl.SSLContext, hostname: str | None, limit: float | None
) -> _Secure:
    secure = _Secure(below, context, hostname)
    try:
        async with asyncio.timeout(limit):
            await secure.handshake()
    except TimeoutError as late:
        raise httpcore2.ConnectTimeout(str(late)) from late
    except (OSError, httpcore2.ReadError) as error:  # TLS's own errors are among the first
        raise httpcore2.ConnectError(str(error)) from error
    return secure
