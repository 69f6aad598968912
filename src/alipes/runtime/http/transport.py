"""HTTP/1.1 directly to a server, with a pool of reusable connections."""

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self, TypeAlias

import httpx2

from alipes.runtime.http.http1 import RequestEncoder, ResponseHead, ResponseParser
from alipes.runtime.http.sockets import Connection, MayConnect, Sockets, start_tls

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host, port."""
MAX_IDLE_CONNECTIONS = 64
"""Idle connections kept, at most. Busy ones are not limited: requests would wait for unrelated ones."""
IDLE_TIMEOUT_S = 300.0
NO_REUSE_S = 10.0
"""Seconds during which a server gets only new connections after it closed a reused one: a retry must not
get another one that is about to be closed."""
_PORTS = {"http": 80, "https": 443}


class DirectTransport(httpx2.AsyncBaseTransport):
    """A connection pool. A connection is used by one request at a time."""

    def __init__(self, tls: Callable[[], ssl.SSLContext], permits: MayConnect | None = None) -> None:
        """`tls`: called for the first handshake. `permits`: see `Sockets`."""
        self._tls = tls
        self._sockets = Sockets(permits=permits)
        self._idle: dict[_HttpConnection, None] = {}
        """Idle connections, oldest first."""
        self.busy: set[_HttpConnection] = set()
        self._no_reuse: dict[Origin, float] = {}
        """Origins that get only new connections, and until when."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        limits: Mapping[str, float | None] = request.extensions.get("timeout", {})
        connection = await self._connected(request.url, limits.get("connect"))
        self.busy.add(connection)
        head: ResponseHead | None = None
        try:
            head = await connection.ask(request, limits)
        except (httpx2.RemoteProtocolError, httpx2.ReadError):
            if connection.waited:
                now = time.monotonic()
                self._no_reuse = {each: until for each, until in self._no_reuse.items() if until > now}
                self._no_reuse[connection.origin] = now + NO_REUSE_S
            raise
        finally:
            if head is None:
                self._drop(connection)
        coded = any(name.lower() == b"content-encoding" for name, _ in head.headers)
        kind = httpx2.Response if coded else _UncompressedResponse
        return kind(
            head.status,
            headers=head.headers,
            stream=_ResponseBody(self, connection, limits.get("read")),
            extensions={"http_version": head.version, "reason_phrase": head.reason},
        )

    async def release(self, connection: "_HttpConnection") -> None:
        """Return a connection after its response was read or abandoned."""
        if connection not in self.busy:
            return
        if not connection.renew():
            self._drop(connection)
            await asyncio.sleep(0)  # lets the loop close the socket
            return
        self.busy.discard(connection)
        self._idle[connection] = None
        while len(self._idle) > MAX_IDLE_CONNECTIONS or (self._idle and not next(iter(self._idle)).alive):
            self._drop(next(iter(self._idle)))

    async def aclose(self) -> None:
        for connection in (*self._idle, *self.busy):
            self._drop(connection)
        await asyncio.sleep(0)

    async def _connected(self, url: httpx2.URL, limit: float | None) -> "_HttpConnection":
        if url.scheme not in _PORTS:
            raise httpx2.UnsupportedProtocol(f"a URL starts with http:// or https://, not {url.scheme!r}")
        origin = (url.scheme, url.host, url.port or _PORTS[url.scheme])
        if self._no_reuse.get(origin, math.inf) < time.monotonic():
            del self._no_reuse[origin]
        for connection in reversed(tuple(self._idle)):
            if connection.origin == origin:
                del self._idle[connection]
                if connection.alive and origin not in self._no_reuse:
                    return connection
                connection.abort()
        return _HttpConnection(origin, await self._open(origin, limit))

    async def _open(self, origin: Origin, limit: float | None) -> Connection:
        scheme, host, port = origin
        line = await self._sockets.connect(host, port, limit)
        if scheme == "http":
            return line
        secure: Connection | None = None
        try:
            context = self._tls()
            context.set_alpn_protocols(["http/1.1"])
            secure = await start_tls(line, context, host, limit)
        finally:
            if secure is None:
                line.abort()
        return secure

    def _drop(self, connection: "_HttpConnection") -> None:
        self.busy.discard(connection)
        self._idle.pop(connection, None)
        connection.abort()


class _HttpConnection:
    """One connection to a server: a request, its response, the next request."""

    def __init__(self, origin: Origin, line: Connection) -> None:
        self.origin, self._line = origin, line
        self._answer: ResponseParser | None = None
        self._asked = False
        """The whole request was sent, and another may follow."""
        self._until = 0.0
        self.waited = False
        """It was idle and is being reused."""

    @property
    def alive(self) -> bool:
        """True if an idle connection may be reused."""
        return not self._line.readable and time.monotonic() < self._until

    def abort(self) -> None:
        self._line.abort()
        if self._answer is not None:
            self._answer.close()

    def renew(self) -> bool:
        """Prepare for another request. Returns False if that is not possible."""
        answer = self._answer
        if not self._asked or answer is None or not answer.over or answer.last:
            return False
        self._until, self.waited = time.monotonic() + IDLE_TIMEOUT_S, True
        return not self._line.readable

    async def ask(self, request: httpx2.Request, limits: Mapping[str, float | None]) -> ResponseHead:
        """Send the request and read the head of the response."""
        self._asked = False
        self._answer = answer = ResponseParser(request.method)
        with suppress(httpx2.WriteError):  # the server may have sent an error before it closed
            await self._send(request, limits.get("write"))
        while answer.head is None and not answer.broken:
            answer.feed(await self._line.read(limits.get("read")))
        if answer.head is None:
            raise httpx2.RemoteProtocolError(answer.broken)
        return answer.head

    async def _send(self, request: httpx2.Request, limit: float | None) -> None:
        question = RequestEncoder(request.method, request.url.raw_path, request.headers.raw)
        await self._say(question.head, limit)
        if isinstance(request.stream, httpx2.ByteStream):  # complete: nothing to wait for
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
        """The next part of the body: everything received so far. Empty at the end."""
        answer = self._answer
        assert answer is not None
        while not (answer.pieces or answer.over or answer.broken):
            answer.feed(await self._line.read(limit))
        data = answer.take()
        if not data and answer.broken:  # deliver what was received before
            raise httpx2.RemoteProtocolError(answer.broken)
        return data


class _UncompressedResponse(httpx2.Response):
    """An uncompressed response: needs no decoder."""

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


class _ResponseBody(httpx2.AsyncByteStream):
    def __init__(self, pool: DirectTransport, connection: _HttpConnection, limit: float | None) -> None:
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
