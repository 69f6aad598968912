"""HTTP/1.1 straight to a server, on connections that are kept for the next request. It knows no proxy."""

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self, TypeAlias

import httpx2

from alipes.runtime.http.http1 import Answer, Head, Question
from alipes.runtime.http.sockets import Permits, Sockets, Stream, secured

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
        head: Head | None = None
        try:
            head = await connection.ask(request, limits)
        except (httpx2.RemoteProtocolError, httpx2.ReadError):
            if connection.waited:
                self._doubt(connection.origin)
            raise
        finally:
            if head is None:
                self._drop(connection)
        coded = any(name.lower() == b"content-encoding" for name, _ in head.headers)
        kind = httpx2.Response if coded else _Plain
        return kind(
            head.status,
            headers=head.headers,
            stream=_Body(self, connection, limits.get("read")),
            extensions={"http_version": head.version, "reason_phrase": head.reason},
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
        self._answer: Answer | None = None
        """To the last question."""
        self._asked = False
        """All of the question was sent, and another may follow."""
        self._until = 0.0
        self.waited = False
        """It has answered before, and was kept."""

    @property
    def alive(self) -> bool:
        """Of one that waits: may it be used?"""
        return not self._line.readable and time.monotonic() < self._until

    def abort(self) -> None:
        self._line.abort()
        if self._answer is not None:
            self._answer.close()

    def renew(self) -> bool:
        """Is it ready for another question?"""
        answer = self._answer
        if not self._asked or answer is None or not answer.over or answer.last:
            return False
        self._until, self.waited = time.monotonic() + IDLE, True
        return not self._line.readable

    async def ask(self, request: httpx2.Request, limits: Mapping[str, float | None]) -> Head:
        """Send it, and read the head of the answer."""
        self._asked = False
        self._answer = answer = Answer(request.method)
        with suppress(httpx2.WriteError):  # who hangs up on us may have said why
            await self._send(request, limits.get("write"))
        while answer.head is None and not answer.broken:
            answer.feed(await self._line.read(limits.get("read")))
        if answer.head is None:
            raise httpx2.RemoteProtocolError(answer.broken)
        return answer.head

    async def _send(self, request: httpx2.Request, limit: float | None) -> None:
        question = Question(request.method, request.url.raw_path, request.headers.raw)
        await self._say(question.head, limit)
        if isinstance(request.stream, httpx2.ByteStream):  # it is all there: nothing to wait for
            for chunk in request.stream:
                await self._say(question.piece(chunk), limit)
        else:
            assert isinstance(request.stream, httpx2.AsyncByteStream)
            async for chunk in request.stream:
                await self._say(question.piece(chunk), limit)
        await self._say(question.end(), limit)
        self._asked = not question.last

    async def _say(self, data: bytes, limit: float | None) -> None:
        if data:
            await self._line.write(data, limit)

    async def block(self, limit: float | None) -> bytes:
        """More of the answer's body: all that is there already, at once. Nothing at its end."""
        answer = self._answer
        assert answer is not None
        while not (answer.pieces or answer.over or answer.broken):
            answer.feed(await self._line.read(limit))
        data = answer.take()
        if not data and answer.broken:  # what came before is given first
            raise httpx2.RemoteProtocolError(answer.broken)
        return data


class _Plain(httpx2.Response):
    """An answer that is not compressed: read whole, it is what came, and needs none of what decodes."""

    async def aread(self) -> bytes:
        if self.is_stream_consumed or self.is_closed:
            return await super().aread()
        self.is_stream_consumed = True
        assert isinstance(self.stream, httpx2.AsyncByteStream)
        try:
            self._content = b"".join([block async for block in self.stream])
        finally:
            await self.aclose()
        return self._content


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
