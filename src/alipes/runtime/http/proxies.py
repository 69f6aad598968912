"""Transports of a client: direct or through a proxy, with the trusted certificates."""

import logging
import os
import re
import ssl
from collections.abc import Mapping
from functools import cached_property
from ipaddress import IPv6Network, ip_address, ip_network
from typing import Any

import httpx2

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Proxies
from alipes.runtime.http.sockets import MayConnect
from alipes.runtime.http.transport import DirectTransport

log = logging.getLogger(__name__)

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=300.0)
"""No limit on connections: with one, requests would wait for unrelated ones."""
LOOPBACK = ("localhost", "127.0.0.0/8", "::1")


def is_loopback(host: str) -> bool:
    """True if `host` is this machine: a loopback address or `localhost`."""
    name = host.removeprefix("[").removesuffix("]")
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


class TlsTrust:
    """Trusted certificates: one TLS context per scope, built for the first handshake."""

    def __init__(self, given: ssl.SSLContext | str | None = None) -> None:
        """`given`: a context, the path of a CA file, or None for the system's CAs."""
        self._given = given

    @cached_property
    def tls(self) -> ssl.SSLContext:
        if isinstance(self._given, ssl.SSLContext):
            return self._given
        if self._given is None:
            return system_trust(ssl.get_default_verify_paths())
        try:
            return ssl.create_default_context(cafile=self._given)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"The CA file {self._given} cannot be used ({error}): give a PEM file.") from error

    @cached_property
    def none(self) -> ssl.SSLContext:
        """For pools of plain connections: trusts nothing, so that TLS by mistake fails."""
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def system_trust(paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """The system's CAs, looked up by hash at the handshake where the system offers that.

    Reading the whole bundle costs 20 ms of CPU; its directory of hashed names costs 3 and is
    equivalent if it contains no fewer certificates.
    """
    bundle, folder = paths.openssl_cafile, paths.openssl_capath
    if not (os.path.isfile(bundle) and os.path.isdir(folder)):
        return httpx2.create_ssl_context(trust_env=False)
    with open(bundle, "rb") as file:
        wanted = file.read().count(b"-----BEGIN CERTIFICATE-----")
    hashed = re.compile(r"[0-9a-f]{8}\.\d+")
    with os.scandir(folder) as entries:
        # `is_file` follows links: dangling ones do not count.
        found = sum(1 for entry in entries if hashed.fullmatch(entry.name) and entry.is_file())
    if not wanted or found < wanted:
        return httpx2.create_ssl_context(trust_env=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(capath=folder)
    return context


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
            return await self._straight.handle_async_request(request)
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
        for way in (self._straight, *self._pools.values()):
            await way.aclose()

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


def proxy_routes(proxies: Proxies, trust: TlsTrust) -> dict[str, RouteTransport | None]:
    """By URL pattern: the transport through a proxy, or None for direct hosts.

    This machine is always reached directly: a proxy could not reach it, and our own child
    processes listen there.
    """
    ways: dict[str, RouteTransport | None] = {}
    for scheme, url in (("http", proxies.http), ("https", proxies.https), ("all", proxies.all)):
        if url:
            ways[f"{scheme}://"] = RouteTransport(trust, url)
    if not ways or "*" in proxies.no:
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


def choose_proxy(proxies: Proxies, scheme: str, host: str, port: int) -> str:
    """The URL of the proxy for a connection to a normalised host; empty if it is made directly."""
    url = {"http": proxies.http, "https": proxies.https}[scheme] or proxies.all
    if not url or "*" in proxies.no or is_loopback(host):
        return ""
    if any(_excludes(entry, host, port) for entry in proxies.no):
        return ""
    return url if "://" in url else f"http://{url}"


def _excludes(entry: str, host: str, port: int) -> bool:
    """True if an entry of NO_PROXY names the host: exactly, as its domain, or as its network."""
    try:
        return ip_address(host) in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        name, _, number = entry.lower().rpartition(":")
        if name and number.isdecimal():
            return int(number) == port and _excludes(name, host, port)
        domain = entry.lower().removeprefix("*").removeprefix(".").removesuffix(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))


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
