"""TCP and TLS straight on asyncio's transports: what HTTP is spoken on. It knows no HTTP.

Where very many answers stream at once, each is read less often, and what came meanwhile is read together:
so a thousand of them leave the loop time for everybody else.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Protocol, TypeAlias

import httpx2

FULL = 256 * 1024
"""Bytes that wait to be read, or to be sent, before we hold back whoever makes more."""
BLOCK = 64 * 1024
"""Bytes that are read at once."""
STAGGER = 0.25
"""Seconds after which the next address of a host is tried beside the one before."""
FREE = 4
"""Answers that come in no more parts than this never rest."""
CROWD = 50
"""Streams that are read at the same time before any of them rests."""
EACH, LONGEST = 0.001, 1.0
"""Seconds that a stream rests for every other that rests as well; and at most."""
TICK = 0.01
"""Seconds between two moments in which some of them go on."""


Permits: TypeAlias = Callable[[str, int, str], bool]
"""A host as it was named, a port, and an address of the host: may we connect there?"""


class Forbidden(httpx2.ConnectError):
    """None of a host's addresses may be connected to."""


class Stream(Protocol):
    """A connection. Only one task reads it at a time. Raises `httpx2.TransportError` kinds."""

    @property
    def readable(self) -> bool:
        """Something came, or the end did: what is idle should be neither."""
        ...

    async def read(self, limit: float | None) -> bytes:
        """What came, at least a byte; nothing at the end."""
        ...

    async def write(self, data: bytes, limit: float | None) -> None:
        """It leaves with what follows it, at the latest when something is read."""
        ...

    def abort(self) -> None:
        """Closed at once: nobody waits for the other side to say farewell."""
        ...


class Sockets:
    """Makes connections, and knows how many of them are being read."""

    def __init__(self, each: float = EACH, *, permits: Permits | None = None) -> None:
        """`permits`: asked for each address that a host turns out to have; only those it allows are tried."""
        self.reading, self._permits = 0, permits
        self._turnstile = _Turnstile(each)

    async def connect(self, host: str, port: int, limit: float | None) -> Stream:
        with _connecting():
            async with asyncio.timeout(limit):
                found = await addresses(host, port)
                if self._permits is not None and found:
                    found = [each for each in found if self._permits(host, port, each)]
                    if not found:
                        raise Forbidden(f"{host} is an address of this machine or of a private network")
                return await self._first(found, port)

    async def _first(self, addresses: list[str], port: int) -> "_Line":
        """The first that is reached. Each is tried when the one before it fails, or takes long."""
        loop, failures, reached = asyncio.get_running_loop(), list[OSError](), list[_Line]()
        racing: dict[str, asyncio.Timeout] = {}

        async def reach(address: str, before: asyncio.Event, after: asyncio.Event) -> None:
            try:
                async with asyncio.timeout(None) as racing[address]:
                    await _within(STAGGER, before)
                    _, line = await loop.create_connection(lambda: _Line(self), address, port)
                    reached.append(line)
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

    @property
    def crowded(self) -> bool:
        return self.reading > CROWD

    async def rest(self) -> None:
        """Until it is our turn again to read."""
        await self._turnstile.passed()


class _Turnstile:
    """Lets those who rest go on in their order, few at a time, so that no crowd comes through at once."""

    def __init__(self, each: float) -> None:
        self._each = each
        self._resting: deque[asyncio.Future[None]] = deque()
        self._ticking = False

    async def passed(self) -> None:
        loop = asyncio.get_running_loop()
        self._resting.append(mine := loop.create_future())
        if not self._ticking:
            self._ticking = True
            loop.call_later(TICK, self._tick)
        await mine

    def _tick(self) -> None:
        left = max(TICK / self._each, len(self._resting) * TICK / LONGEST)
        while self._resting and left > 0:
            if not (first := self._resting.popleft()).done():  # who was cancelled takes nobody's place
                first.set_result(None)
                left -= 1
        self._ticking = bool(self._resting)
        if self._ticking:
            asyncio.get_running_loop().call_later(TICK, self._tick)


class _Line(asyncio.Protocol):
    """TCP."""

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

    # What is asked of it

    @property
    def readable(self) -> bool:
        return self._over or bool(self._came)

    async def read(self, limit: float | None) -> bytes:
        self._flush()
        self._reads += 1
        self._sockets.reading += 1
        try:
            if self._reads > FREE and not self._over and self._sockets.crowded:
                await self._rest()
            if not self.readable:
                await self._more(limit)
        finally:
            self._sockets.reading -= 1
        return self._take()

    async def _rest(self) -> None:
        """Let it gather where it costs nothing: in the kernel."""
        self._transport.pause_reading()
        try:
            await self._sockets.rest()
        finally:
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def _more(self, limit: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        # A timeout of asyncio's cancels a task: that is more than a future of our own needs.
        late = None if limit is None else loop.call_later(limit, self._wake)
        try:
            await self._news
        finally:
            self._news = None
            if late is not None:
                late.cancel()
        if not self.readable:
            raise httpx2.ReadTimeout(f"nothing came for {limit} s")

    def _take(self) -> bytes:
        if not self._came:
            if self._error is not None:
                raise httpx2.ReadError(str(self._error)) from self._error
            return b""
        data = self._came[0] if len(self._came) == 1 else b"".join(self._came)
        self._came = [data[BLOCK:]] if len(data) > BLOCK else []
        before, self._size = self._size, max(0, len(data) - BLOCK)
        if before > FULL >= self._size and not self._transport.is_closing():
            self._transport.resume_reading()
        return data[:BLOCK]

    async def write(self, data: bytes, limit: float | None) -> None:
        self._reads = 0
        self._unsent.append(data)
        if sum(map(len, self._unsent)) < FULL:
            return
        self._flush()
        if self._writable is not None:
            try:
                async with asyncio.timeout(limit):
                    await self._writable
            except TimeoutError as late:
                raise httpx2.WriteTimeout(f"nothing left for {limit} s") from late

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))

    def abort(self) -> None:
        self._transport.abort()


async def secured(below: Stream, context: ssl.SSLContext, host: str, limit: float | None) -> Stream:
    """TLS on `below`, which is the caller's to abort when this fails."""
    secure = _Secure(below, context, host)
    with _connecting():
        async with asyncio.timeout(limit):
            await secure.handshake()
    return secure


class _Secure:
    """TLS on another stream. asyncio's own leaves a connection open whose handshake is cut short."""

    def __init__(self, below: Stream, context: ssl.SSLContext, host: str) -> None:
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
        """All that can be read now: each record is read by itself, and there may be many."""
        records: list[bytes] = []
        try:
            while record := self._tls.read(BLOCK):
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


@contextmanager
def _connecting() -> Iterator[None]:
    """What goes wrong on the way to a connection, in HTTP's words."""
    try:
        yield
    except TimeoutError as late:
        raise httpx2.ConnectTimeout("no connection in time") from late
    except (OSError, httpx2.ReadError) as error:  # TLS's own errors are among the first
        raise httpx2.ConnectError(str(error)) from error


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Until it is set, or so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def addresses(host: str, port: int) -> list[str]:
    """Those of a host, its families in turn, as the system orders them."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[str]] = {}
    for family, *_, where in found:
        families.setdefault(family, []).append(str(where[0]))
    return list(dict.fromkeys(filter(None, chain(*zip_longest(*families.values())))))
