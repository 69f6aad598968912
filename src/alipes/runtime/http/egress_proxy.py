"""The egress proxy: the only way out of a sandbox's network.

It speaks HTTP (CONNECT, and requests for http:// addresses) and SOCKS5 on sockets that listen inside a sandbox. For
each connection it asks whether the host is allowed, then resolves the name, refuses private addresses, and connects to
the address it checked. Inside a tunnel, the server name of TLS and the Host header of HTTP must be the host that was
allowed. It cannot see an encrypted server name, nor the Host header inside TLS.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Self

from msgspec import Struct

from alipes.kernel.turns import Turn
from alipes.runtime.http.egress import (
    DecideEgress,
    EgressCounts,
    EgressRequest,
    format_authority,
    is_address,
    normalise_host,
    parse_authority,
)
from alipes.runtime.http.lazy_httpx import errors
from alipes.runtime.http.proxy_requests import (
    MAX_HEAD_BYTES,
    BadRequest,
    RequestParser,
    check_host_header,
    check_tunnelled_request,
    encode_request,
    parse_url,
    read_server_names,
    starts_http,
)
from alipes.runtime.http.upstream import BUFFER_BYTES, ByteStream, Upstream, UpstreamConnector
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.tasks import unwrap_error_group

log = logging.getLogger(__name__)

MAX_REFUSALS = 20
"""Refusals remembered per session until they are taken."""
ACCEPT_PAUSE_S = 0.1
LINGER_S = 2.0
"""Seconds that a refused client gets to read our answer."""
MAX_PHRASE_CHARS = 300
_STATUS_BYTES = len("HTTP/1.1 101")
_SOCKS, _TLS = 0x05, 0x16
_SOCKS_CODES = {403: 2, 502: 4, 400: 1}
_PHRASES = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}


class ProxyLimits(Struct, frozen=True):
    connections: int = 256
    """At the same time per session; more wait."""
    head_seconds: float = 60.0
    """For a complete request, and for the first bytes of TLS inside a tunnel."""
    idle_seconds: float = 1800.0
    """Without a byte in either direction."""


class _Refused(Exception):
    """The connection is not made: an HTTP status, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class _Session:
    """The listeners of one conversation, and for whom they connect."""

    def __init__(self, scope: CommandScope, connections: int) -> None:
        self.scope = scope
        self.listeners: set[asyncio.Task[None]] = set()
        self.slots = asyncio.Semaphore(connections)
        self.refusals: dict[str, None] = {}


class EgressProxy:
    """Serves the listeners of all sandboxes; its tasks end with it."""

    def __init__(
        self,
        decide: DecideEgress,
        connector: UpstreamConnector,
        *,
        counts: EgressCounts | None = None,
        limits: ProxyLimits | None = None,
        track: Callable[[EgressRequest], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`track`: entered while a connection is open, after it was made."""
        self.decide, self.connector, self.limits, self.track = decide, connector, limits or ProxyLimits(), track
        self.counts = counts or EgressCounts()
        self._sessions: dict[str, _Session] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions.values():
            for task in session.listeners:
                task.cancel()
        with unwrap_error_group():
            await self._group.__aexit__(kind, error, trace)

    def serve(self, listener: socket.socket, scope: CommandScope) -> None:
        """Serve the connections of a listening socket for `scope`, until its session is closed.

        The proxy owns the socket and closes it.
        """
        listener.setblocking(False)
        session = self._sessions.setdefault(scope.session, _Session(scope, self.limits.connections))
        session.scope = scope
        task = self._group.create_task(self._accept(listener, session))
        session.listeners.add(task)

        def close(ended: asyncio.Task[None]) -> None:  # also if it never started
            session.listeners.discard(ended)
            listener.close()

        task.add_done_callback(close)

    def set_turn(self, session: str, turn: Turn | None) -> None:
        """New connections of the session belong to this turn, whose person is asked; None: nobody can be asked."""
        if known := self._sessions.get(session):
            before = known.scope
            known.scope = CommandScope(before.session, before.workdir, turn, before.outside)

    async def close_scope(self, session: str) -> None:
        """Close the listeners and connections of a session."""
        known = self._sessions.pop(session, None)
        if known is not None and known.listeners:
            tasks = tuple(known.listeners)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def take_refusals(self, session: str) -> tuple[str, ...]:
        """Sentences about connections that were refused since the last time, for the result of a command."""
        known = self._sessions.get(session)
        if known is None:
            return ()
        sentences, known.refusals = tuple(known.refusals), {}
        return sentences

    async def _accept(self, listener: socket.socket, session: _Session) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as connections:
            while True:
                await session.slots.acquire()
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError as error:
                    session.slots.release()
                    log.warning("egress: no connection was accepted: %s", error)  # too many open files
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                else:
                    task = connections.create_task(self._handle(accepted, session))
                    task.add_done_callback(partial(_finish, accepted, session))

    async def _handle(self, accepted: socket.socket, session: _Session) -> None:
        try:
            if accepted.family in (socket.AF_INET, socket.AF_INET6):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = ByteStream(*await asyncio.open_connection(sock=accepted, limit=BUFFER_BYTES))
            try:
                await _ProxyConnection(self, client, session, accepted).run()
            finally:
                await client.close()
        except (OSError, EOFError) as error:
            log.debug("egress: a connection of session %s ended: %s", session.scope.session, error)


def _finish(accepted: socket.socket, session: _Session, _task: asyncio.Task[None]) -> None:
    """After a connection, also if its task never started."""
    accepted.close()
    session.slots.release()


class _ProxyConnection:
    """One client: its request, the connection it leads to, and what is counted and logged."""

    def __init__(self, proxy: EgressProxy, client: ByteStream, session: _Session, accepted: socket.socket) -> None:
        self._proxy, self._client, self._session, self._accepted = proxy, client, session, accepted
        self._scope = session.scope
        self._received = self._sent = 0
        self._idle: asyncio.Timeout | None = None
        self._start, self._answered = b"", asyncio.Event()
        """The first bytes of the server, and whether they are complete."""

    async def run(self) -> None:
        try:
            async with asyncio.timeout(self._proxy.limits.head_seconds):
                await self._client.peek_more()
                head = b""
                if self._client.ahead[0] != _SOCKS:
                    head = await self._client.read_head(MAX_HEAD_BYTES)
        except ValueError as error:
            await self._answer(_Refused(400, f"This request is not valid: {error}."))
            return
        if not head:
            await self._serve_socks()
            return
        try:
            request = RequestParser(head)
            if request.method == "CONNECT":
                await self._serve_connect(request)
            else:
                await self._serve_request(request)
        except BadRequest as error:
            await self._answer(_Refused(error.status, str(error)))
        except _Refused as refused:
            await self._answer(refused)

    async def _answer(self, refused: _Refused) -> None:
        """Refuse in HTTP. The reason is also in the status line, which is all that most programs show of it."""
        self._count_refusal(refused)
        body = refused.sentence.encode() + b"\n"
        phrase = _PHRASES[refused.status] if refused.status != 403 else _one_line(refused.sentence)
        head = (
            f"HTTP/1.1 {refused.status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        await self._client.write(head.encode() + body)
        await self._finish_client()

    async def _finish_client(self) -> None:
        """Close after an answer. What the client still sends is read: closing before would discard our answer."""
        self._client.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while await self._client.read():
                    pass

    def _count_refusal(self, refused: _Refused) -> None:
        counts = self._proxy.counts
        match refused.status:
            case 403:
                counts.refused += 1
            case 502:
                counts.failed += 1
            case _:
                counts.invalid += 1
        if len(self._session.refusals) < MAX_REFUSALS:
            self._session.refusals[refused.sentence] = None
        log.info("egress: refused in session %s: %s", self._scope.session, refused.sentence)

    # Where to

    @asynccontextmanager
    async def _open(self, host: str, port: int, scheme: str) -> AsyncIterator[Upstream]:
        """The connection to an allowed host. Raises `_Refused`."""
        connector = self._proxy.connector
        if is_address(host) and not connector.guard.permits(host, port, host):
            raise _private(host)
        request = EgressRequest(host, port, scheme, self._scope, self._accepted)
        if why := await self._proxy.decide(request):
            raise _Refused(403, why)
        begun, opened = time.monotonic(), False
        try:
            async with connector.open(host, port, plain=scheme == "http") as upstream:
                opened = True
                self._proxy.counts.allowed += 1
                with self._proxy.track(request):
                    yield upstream
        except errors.ForbiddenAddress as error:
            raise _private(host) from error
        except OSError as error:
            if opened:
                raise
            why = "it took too long" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise _Refused(502, f"{format_authority(host, port)} cannot be reached: {why}.") from error
        finally:
            if opened:
                self._log(host, port, time.monotonic() - begun)

    def _log(self, host: str, port: int, seconds: float) -> None:
        self._proxy.counts.bytes_in += self._received
        self._proxy.counts.bytes_out += self._sent
        log.info(
            "egress: %s, %d bytes in, %d out, %.1f s, session %s",
            *(format_authority(host, port), self._received, self._sent, seconds, self._scope.session),
        )

    # Kinds of requests

    async def _serve_connect(self, request: RequestParser) -> None:
        try:
            host, port = parse_authority(request.target.decode("utf-8"))
        except ValueError as error:
            raise BadRequest(f"CONNECT needs HOST:PORT: {error}.") from error
        async with self._open(host, port, "tunnel") as upstream:
            await self._client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._serve_tunnel(upstream, host, port)

    async def _serve_socks(self) -> None:
        client = self._client
        async with asyncio.timeout(self._proxy.limits.head_seconds):
            _, count = await client.read_exactly(2)
            if 0 not in await client.read_exactly(count):
                await client.write(b"\x05\xff")
                return
            await client.write(b"\x05\x00")
            _, command, _, kind = await client.read_exactly(4)
            size = {1: 4, 4: 16}.get(kind) or (await client.read_exactly(1))[0]
            name = await client.read_exactly(size)
            port = int.from_bytes(await client.read_exactly(2))
        try:
            if command != 1 or not port or kind not in (1, 3, 4):
                raise _Refused(400, "This SOCKS request is not supported: only TCP connections are.")
            family = {1: socket.AF_INET, 4: socket.AF_INET6}.get(kind)
            try:
                host = normalise_host(name.decode() if family is None else socket.inet_ntop(family, name))
            except ValueError as error:
                raise _Refused(400, f"This host is invalid: {error}.") from error
            async with self._open(host, port, "socks") as upstream:
                await client.write(b"\x05\x00\x00\x01" + bytes(6))
                await self._serve_tunnel(upstream, host, port)
        except _Refused as refused:
            self._count_refusal(refused)
            await client.write(bytes((5, _SOCKS_CODES[refused.status], 0, 1)) + bytes(6))
            await self._finish_client()

    async def _serve_request(self, request: RequestParser) -> None:
        host, port, path = parse_url(request.target)
        check_host_header(request, host, port)
        async with self._open(host, port, "http") as upstream, self._pass_both_ways(upstream.stream):
            await self._send_request(request, upstream, (host, port), path)

    # Bytes

    async def _serve_tunnel(self, upstream: Upstream, host: str, port: int) -> None:
        """Pass on bytes in both directions; those of the client once it is known that they are for `host`."""
        try:
            async with self._pass_both_ways(upstream.stream):
                if request := await self._check_first_bytes(host, port):
                    await self._send_request(request, upstream, (host, port), request.target)
                else:
                    await self._send(upstream.stream)
        except BadRequest as error:  # the client speaks HTTP inside the tunnel
            await self._answer(_Refused(error.status, str(error)))

    async def _check_first_bytes(self, host: str, port: int) -> RequestParser | None:
        """The request, if the tunnel is used for unencrypted HTTP.

        Raises `BadRequest` if it, or OSError if TLS, names another host.
        """
        client = self._client
        while not client.ahead:
            try:
                await client.peek_more()
            except EOFError:
                return None
        async with asyncio.timeout(self._proxy.limits.head_seconds):
            if client.ahead[0] == _TLS:
                await self._check_server_name(host)
                return None
            while (plain := starts_http(client.ahead)) is None:
                await client.peek_more()
            if not plain:
                return None
            try:
                request = RequestParser(await client.read_head(MAX_HEAD_BYTES))
            except ValueError as error:
                raise BadRequest(f"This request is not valid: {error}.") from error
        check_tunnelled_request(request, host, port)
        return request

    async def _check_server_name(self, host: str) -> None:
        try:
            while (names := read_server_names(self._client.ahead)) is None:
                await self._client.peek_more()
            wrong = [name for name in names if normalise_host(name) != host]
        except ValueError as error:
            self._count_refusal(_Refused(400, f"The connection to {host} was closed: {error}."))
            raise ConnectionAbortedError(f"invalid TLS: {error}") from error
        if wrong:
            sentence = f"The connection to {host} was closed: its TLS server name is {wrong[0][:100]}, another host."
            self._count_refusal(_Refused(403, sentence))
            raise ConnectionAbortedError(sentence)

    async def _send_request(
        self, request: RequestParser, upstream: Upstream, place: tuple[str, int], path: bytes
    ) -> None:
        """Send one request; what follows it is sent only if the server agrees to another protocol."""
        authority = format_authority(*place).removesuffix(":80")
        target = b"http://" + authority.encode() + path if upstream.forwards else path
        encoder = encode_request(request, target, authority, upstream.headers)
        await self._pass_on(upstream.stream, encoder.head)
        while not request.over:
            if not (data := await self._client.read()):
                raise EOFError("the client left before the end of its request")
            request.feed(data)
            await self._pass_on(upstream.stream, encoder.piece(request.take()))
        await self._pass_on(upstream.stream, encoder.end())
        if request.upgrade:
            await self._answered.wait()
            if self._start.endswith(b" 101"):
                await self._send(upstream.stream)
        elif not await self._client.read():
            upstream.stream.end()

    @asynccontextmanager
    async def _pass_both_ways(self, stream: ByteStream) -> AsyncIterator[None]:
        """Pass on to the client what `stream` sends, while the block does the other direction."""
        limit = self._proxy.limits.idle_seconds
        with unwrap_error_group():
            async with asyncio.timeout(limit) as self._idle, asyncio.TaskGroup() as group:
                group.create_task(self._receive(stream))
                yield

    async def _send(self, target: ByteStream) -> None:
        while data := await self._client.read():
            await self._pass_on(target, data)
        target.end()

    async def _pass_on(self, target: ByteStream, data: bytes) -> None:
        if data:
            self._sent += len(data)
            self._defer_timeout()
            await target.write(data)

    async def _receive(self, source: ByteStream) -> None:
        while data := await source.read():
            self._received += len(data)
            self._defer_timeout()
            if len(self._start) < _STATUS_BYTES:
                self._start += data[: _STATUS_BYTES - len(self._start)]
                if len(self._start) == _STATUS_BYTES:
                    self._answered.set()
            await self._client.write(data)
        self._answered.set()
        self._client.end()

    def _defer_timeout(self) -> None:
        """Start the idle time again; not with every block, which would be slow."""
        now, limit = asyncio.get_running_loop().time(), self._proxy.limits.idle_seconds
        if self._idle is not None and (self._idle.when() or 0.0) - now < 0.9 * limit and not self._idle.expired():
            self._idle.reschedule(now + limit)


def _private(host: str) -> _Refused:
    return _Refused(
        403,
        f"{host} is an address of this machine or of a private network. To allow it, add it to fetch.allow in "
        "config.toml.",
    )


def _one_line(sentence: str) -> str:
    """A sentence as the reason in an HTTP status line."""
    return "".join(char if " " <= char <= "~" else "?" for char in sentence)[:MAX_PHRASE_CHARS]
