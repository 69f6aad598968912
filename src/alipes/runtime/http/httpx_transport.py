"""Connections of httpx2's clients, which vendors' SDKs and other libraries take: direct, or through a proxy."""

import logging
from collections.abc import AsyncIterator, Mapping
from ipaddress import IPv6Network, ip_network
from typing import Any

import httpx2

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Proxies
from alipes.runtime.http.http1 import ResponseHead
from alipes.runtime.http.messages import HttpRequest, HttpResponse, ResponseBody, Timeouts, parse_url
from alipes.runtime.http.proxies import LOOPBACK, TlsTrust
from alipes.runtime.http.sockets import MayConnect
from alipes.runtime.http.transport import DirectTransport

log = logging.getLogger(__name__)

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=300.0)
"""No limit on connections: with one, requests would wait for unrelated ones."""


class _Handshake:
    """Traces the connecting of one request through a proxy and closes a socket whose handshake failed.

    If cancelled inside a TLS or SOCKS handshake, the library would leak the socket.
    """

    _stream: Any = None

    def __init__(self, handshakes: int) -> None:
        """`handshakes`: those with the proxy itself, before one with the server."""
        self._left = handshakes
        self.connected = False
        """The proxy was reached."""
        self.tunnelled = False
        """The proxy connected to the server."""

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        match event.partition(".")[2]:
            case "connect_tcp.complete":
                self._stream = info["return_value"]
                self.connected = True
            case "start_tls.started":
                self.tunnelled = self._left == 0
                self._left -= 1
            case "start_tls.failed" | "setup_socks5_connection.failed" if self._stream is not None:
                await self._stream.aclose()


class RouteTransport(httpx2.AsyncBaseTransport):
    """One route: direct, or through `proxy` by httpx2's own transport."""

    def __init__(self, trust: TlsTrust, proxy: str = "", permits: MayConnect | None = None) -> None:
        """`permits`: which addresses may be connected to directly; see sockets.py."""
        self._trust = trust
        self._proxy = proxy if "://" in proxy or not proxy else f"http://{proxy}"
        self._name = self._proxy.partition("://")[2].rpartition("@")[2].rstrip("/")
        """Host and port of the proxy, without its password."""
        self._straight = DirectTransport(lambda: trust.tls, permits)
        self._pools: dict[bool, httpx2.AsyncHTTPTransport] = {}
        """Pools of the proxy for plain and TLS connections, created when needed."""
        self.requests = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        if not self._proxy:
            return _make_response(await self._straight.send(_read_request(request)))
        secure = request.url.scheme == "https"
        trace = _Handshake(int(self._proxy.startswith("https:")))
        request.extensions = {"trace": trace, **request.extensions}
        try:
            return await self._pool(secure).handle_async_request(request)
        except httpx2.TransportError as error:
            if trace.tunnelled or (trace.connected and isinstance(error, httpx2.TimeoutException)):
                raise
            said = f"the proxy {self._name}: {error or type(error).__name__}"
            # A plain request was sent to the proxy itself, and may have had an effect.
            kind = httpx2.ProxyError if secure or not trace.connected else type(error)
            raise kind(said) from error

    async def aclose(self) -> None:
        await self._straight.aclose()
        for pool in self._pools.values():
            await pool.aclose()

    def _pool(self, secure: bool) -> httpx2.AsyncHTTPTransport:
        if secure not in self._pools:
            # Otherwise the library would create a context from the environment.
            context = self._trust.tls if self._proxy.startswith("https:") else None
            proxy = httpx2.Proxy(self._proxy, ssl_context=context)
            trust = self._trust.tls if secure else self._trust.none
            try:
                self._pools[secure] = httpx2.AsyncHTTPTransport(
                    verify=trust, trust_env=False, limits=LIMITS, proxy=proxy
                )
            except ImportError as missing:
                raise ConfigError("A SOCKS proxy needs another package: pip install socksio") from missing
        return self._pools[secure]


def _read_request(request: httpx2.Request) -> HttpRequest:
    limits: Mapping[str, float | None] = request.extensions.get("timeout", {})
    timeouts = Timeouts(limits.get("connect"), limits.get("read"), limits.get("write"))
    stream = request.stream
    if isinstance(stream, httpx2.ByteStream):  # complete: nothing to wait for
        body: bytes | httpx2.AsyncByteStream = b"".join(stream)
    else:
        assert isinstance(stream, httpx2.AsyncByteStream)
        body = stream
    return HttpRequest(request.method, parse_url(request.url), request.headers.raw, body, timeouts)


def _make_response(response: HttpResponse) -> httpx2.Response:
    head = response.head
    more = {"http_version": head.version, "reason_phrase": head.reason}
    return httpx2.Response(head.status, headers=head.headers, stream=_HttpxBody(response.aiter_raw()), extensions=more)


class _HttpxBody(httpx2.AsyncByteStream):
    def __init__(self, body: ResponseBody) -> None:
        self._body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body

    async def aclose(self) -> None:
        await self._body.aclose()


class _ProxiedBody(ResponseBody):
    def __init__(self, response: httpx2.Response) -> None:
        self._response, self._blocks = response, aiter(response.aiter_raw())

    async def __anext__(self) -> bytes:
        return await anext(self._blocks)

    async def aclose(self) -> None:
        await self._response.aclose()


async def send_by_httpx(client: httpx2.AsyncClient, request: httpx2.Request) -> HttpResponse:
    """Send a request by a client of httpx2, which chooses the way; returns the head of the response."""
    response = await client.send(request, stream=True)
    version = response.extensions.get("http_version", b"HTTP/1.1")
    head = ResponseHead(response.status_code, response.reason_phrase.encode(), version, response.headers.raw)
    return HttpResponse(head, _ProxiedBody(response))


def proxy_routes(proxies: Proxies, trust: TlsTrust) -> dict[str, RouteTransport | None]:
    """By URL pattern: the transport through a proxy, or None for direct hosts.

    This machine is always reached directly: a proxy could not reach it, and our own child
    processes listen there.
    """
    ways: dict[str, RouteTransport | None] = {}
    for scheme, url in (("http", proxies.http), ("https", proxies.https), ("all", proxies.all)):
        if url:
            ways[f"{scheme}://"] = RouteTransport(trust, url)
    if not proxies.used:
        return {}
    for host in (*LOOPBACK, *proxies.no):
        pattern = _pattern(host)
        try:
            httpx2.URL(pattern)
        except httpx2.InvalidURL:
            log.warning("ignoring invalid NO_PROXY entry %r", host)
        else:
            ways[pattern] = None
    return ways


def _pattern(host: str) -> str:
    """A NO_PROXY entry as a URL pattern: a name includes its subdomains, a network its addresses."""
    if "://" in host:
        return host
    try:
        network = ip_network(host.strip("[]"), strict=False)
    except ValueError:
        exact = host == "localhost" or host.startswith("[")
        return f"all://{host}" if exact else f"all://*{host.removeprefix('*')}"
    address = f"[{network.network_address}]" if isinstance(network, IPv6Network) else f"{network.network_address}"
    return f"all://{address}" if network.num_addresses == 1 else f"all://{address}/{network.prefixlen}"
