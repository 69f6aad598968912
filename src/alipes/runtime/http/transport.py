"""HTTP/1.1 directly to a server, with a pool of reusable connections."""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable
from typing import Self

from alipes.runtime.http.http1 import RequestEncoder, ResponseHead, ResponseParser
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.http.messages import HttpRequest, HttpResponse, Origin, ResponseBody
from alipes.runtime.http.sockets import Connection, MayConnect, Sockets, start_tls

log = logging.getLogger(__name__)

MAX_IDLE_CONNECTIONS = 64
"""Idle connections kept, at most. Busy ones are not limited: requests would wait for unrelated ones."""
IDLE_TIMEOUT_S = 300.0
NO_REUSE_S = 10.0
"""Seconds during which a server gets only new connections after it closed a reused one: a retry must not
get another one that is about to be closed."""


class DirectTransport:
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
        self.requests = 0

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Returns when the head of the response was received. Raises `httpx2.TransportError` subclasses."""
        self.requests += 1
        connection = await self._connected(request.url.origin, request.timeouts.connect)
        self.busy.add(connection)
        head: ResponseHead | None = None
        try:
            head = await connection.ask(request)
        except (httpx2.RemoteProtocolError, httpx2.ReadError):
            if connection.waited:
                now = time.monotonic()
                self._no_reuse = {each: until for each, until in self._no_reuse.items() if until > now}
                self._no_reuse[connection.origin] = now + NO_REUSE_S
            raise
        finally:
            if head is None:
                self._drop(connection)
        return HttpResponse(head, _ConnectionBody(self, connection, request.timeouts.read))

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

    async def _connected(self, origin: Origin, limit: float | None) -> "_HttpConnection":
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

    async def ask(self, request: HttpRequest) -> ResponseHead:
        """Send the request and read the head of the response."""
        self._asked = False
        self._answer = answer = ResponseParser(request.method)
        try:
            await self._send(request)
        except httpx2.WriteError:
            log.debug("the server closed while the request was sent; it may have sent an error before")
        while answer.head is None and not answer.broken:
            answer.feed(await self._line.read(request.timeouts.read))
        if answer.head is None:
            raise httpx2.RemoteProtocolError(answer.broken)
        return answer.head

    async def _send(self, request: HttpRequest) -> None:
        limit = request.timeouts.write
        question = RequestEncoder(request.method, request.url.target, request.headers)
        await self._say(question.head, limit)
        if isinstance(request.body, bytes):
            await self._say(question.piece(request.body), limit)
        else:
            async for chunk in request.body:
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


class _ConnectionBody(ResponseBody):
    def __init__(self, pool: DirectTransport, connection: _HttpConnection, limit: float | None) -> None:
        self._pool, self._connection, self._limit = pool, connection, limit
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._closed and (data := await self._connection.block(self._limit)):
            return data
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._pool.release(self._connection)
