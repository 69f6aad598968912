"""HTTP/1.1 straight to a server, on connections that are kept for the next request. It knows no proxy."""

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self, TypeAlias

import h11
import httpx2

from alipes.runtime.sockets import Permits, Sockets, Stream, secured

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host, port."""
KEPT = 64
"""Connections that wait for the next request, at most; there is no ceiling on those at work: with one, a
request waits for the end of strangers' requests."""
IDLE = 300.0
"""Seconds that one waits."""
DOUBT = 10.0
"""Seconds in which a server gets new connections only, once it hung up on one that had waited: who asks
again is not to find the next that is about to be closed."""
LARGEST_HEAD = 100 * 1024
_PORTS = {"http": 80, "https": 443}


class Straight(httpx2.AsyncBaseTransport):
    """A pool. Who takes a connection has it to itself, so that finding one costs the same in any crowd."""

    def __init__(self, tls: Callable[[], ssl.SSLContext], permits: Permits | None = None) -> None:
        """`tls`: asked for when the first handshake needs it. `permits`: see `Sockets`."""
        self._tls = tls
        self._sockets = Sockets(permits=permits)
        self._idle: dict[_Connection, None] = {}
        """Those who wait, longest first."""
        self.busy: set[_Connection] = set()
        self._doubts: dict[Origin, float] = {}
        """Until when."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        limits: Mapping[str, float | None] = request.extensions.get("timeout", {})
        connection = await self._connected(request.url, limits.get("connect"))
        self.busy.add(connection)
        head: h11.Response | None = None
        try:
            head = await connection.ask(request, limits)
        except (httpx2.RemoteProtocolError, httpx2.ReadError):
            if connection.waited:
                self._doubt(connection.origin)
            raise
        finally:
            if head is None:
                self._drop(connection)
        return httpx2.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(self, connection, limits.get("read")),
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": bytes(head.reason)},
        )

    async def release(self, connection: "_Connection") -> None:
        """An answer was read, or is not wanted any more."""
        if connection not in self.busy:
            return
        if not connection.renew():
            self._drop(connection)
            await asyncio.sleep(0)  # in which the socket is closed
            return
        self.busy.discard(connection)
        self._idle[connection] = None
        while len(self._idle) > KEPT or (self._idle and not next(iter(self._idle)).alive):
            self._drop(next(iter(self._idle)))

    async def aclose(self) -> None:
        for connection in (*self._idle, *self.busy):
            self._drop(connection)
        await asyncio.sleep(0)

    async def _connected(self, url: httpx2.URL, limit: float | None) -> "_Connection":
        if url.scheme not in _PORTS:
            raise httpx2.UnsupportedProtocol(
                f"an address begins with http:// or https://, not {url.scheme!r}"
            )
        origin = (url.scheme, url.host, url.port or _PORTS[url.scheme])
        if self._doubts.get(origin, math.inf) < time.monotonic():
            del self._doubts[origin]
        for connection in reversed(tuple(self._idle)):
            if connection.origin == origin:
                del self._idle[connection]
                if connection.alive and origin not in self._doubts:
                    return connection
                connection.abort()
        return _Connection(origin, await self._open(origin, limit))

    async def _open(self, origin: Origin, limit: float | None) -> Stream:
        scheme, host, port = origin
        line = await self._sockets.connect(host, port, limit)
        if scheme == "http":
            return line
        secure: Stream | None = None
        try:
            context = self._tls()
            context.set_alpn_protocols(["http/1.1"])
            secure = await secured(line, context, host, limit)
        finally:
            if secure is None:
                line.abort()
        return secure

    def _doubt(self, origin: Origin) -> None:
        now = time.monotonic()
        self._doubts = {each: until for each, until in self._doubts.items() if until > now}
        self._doubts[origin] = now + DOUBT

    def _drop(self, connection: "_Connection") -> None:
        self.busy.discard(connection)
        self._idle.pop(connection, None)
        connection.abort()


class _Connection:
    """One conversation with a server: a question, its answer, the next question."""

    def __init__(self, origin: Origin, line: Stream) -> None:
        self.origin, self._line = origin, line
        self._talk = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
        self._until = 0.0
        self.waited = False
        """It has answered before, and was kept."""
        self._broken: h11.RemoteProtocolError | None = None

    @property
    def alive(self) -> bool:
        """Of one that waits: may it be used?"""
        return not self._line.readable and time.monotonic() < self._until

    def abort(self) -> None:
        self._line.abort()

    def renew(self) -> bool:
        """Is it ready for another question?"""
        if self._talk.our_state is not h11.DONE or self._talk.their_state is not h11.DONE:
            return False
        self._talk.start_next_cycle()
        self._until, self.waited = time.monotonic() + IDLE, True
        return not self._line.readable and not self._talk.trailing_data[0]

    async def ask(self, request: httpx2.Request, limits: Mapping[str, float | None]) -> h11.Response:
        """Send it, and read the head of the answer."""
        try:
            with suppress(httpx2.WriteError):  # who hangs up on us may have said why
                await self._send(request, limits.get("write"))
            while True:
                event = await self._hear(limits.get("read"))
                if isinstance(event, h11.Response):
                    return event
        except h11.LocalProtocolError as error:
            raise httpx2.LocalProtocolError(str(error)) from error
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error

    async def _send(self, request: httpx2.Request, limit: float | None) -> None:
        target, headers = request.url.raw_path, request.headers.raw
        head = h11.Request(method=request.method.encode("ascii"), target=target, headers=headers)
        await self._say(head, limit)
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        async for chunk in request.stream:
            await self._say(h11.Data(data=chunk), limit)
        await self._say(h11.EndOfMessage(), limit)

    async def _say(self, event: h11.Event, limit: float | None) -> None:
        if data := self._talk.send(event):
            await self._line.write(data, limit)

    async def _hear(self, limit: float | None) -> h11.Event | type[h11.PAUSED]:
        while (event := self._talk.next_event()) is h11.NEED_DATA:
            data = await self._line.read(limit)
            if not data and self._talk.their_state is h11.SEND_RESPONSE:
                raise httpx2.RemoteProtocolError("the server hung up without an answer")
            self._talk.receive_data(data)
        assert not isinstance(event, type) or event is h11.PAUSED
        return event

    async def block(self, limit: float | None) -> bytes:
        """More of the answer's body: all that is there already, at once. Nothing at its end."""
        pieces: list[bytes] = []
        while self._talk.their_state in (h11.SEND_BODY, h11.ERROR):
            try:
                event = self._talk.next_event() if pieces else await self._hear(limit)
            except h11.RemoteProtocolError as error:
                self._broken = self._broken or error
                if pieces:  # what came is given first; the next call fails
                    break
                raise httpx2.RemoteProtocolError(str(self._broken)) from error
            if not isinstance(event, h11.Data):
                break
            pieces.append(bytes(event.data))
        return b"".join(pieces)


class _Body(httpx2.AsyncByteStream):
    """The body of one answer, until it is closed."""

    def __init__(self, pool: Straight, connection: _Connection, limit: float | None) -> None:
        self._pool, self._connection, self._limit = pool, connection, limit
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._closed and (data := await self._connection.block(self._limit)):
            return data
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._pool.release(self._connection)
