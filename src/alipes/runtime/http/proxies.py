"""The ways out: straight or through the operator's proxy, plain or TLS. Whose they are, `clients` knows."""

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
from alipes.runtime.http.sockets import Permits
from alipes.runtime.http.transport import Straight

log = logging.getLogger(__name__)

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=300.0)
"""No ceiling on connections: with one, a request waits for the end of strangers' requests."""
LOOPBACK = ("localhost", "127.0.0.0/8", "::1")


def is_loopback(host: str) -> bool:
    """Is it this machine alone, by number or by its one reserved name?"""
    name = host.removeprefix("[").removesuffix("]")
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


class Trust:
    """Whom TLS believes: one context for a whole scope, built when the first handshake needs it."""

    def __init__(self, given: ssl.SSLContext | str | None = None) -> None:
        """`given`: a context, the path of a CA file, or None for what the system trusts."""
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
            raise ConfigError(
                f"The CA file {self._given} cannot be used ({error}); give a PEM file."
            ) from error

    @cached_property
    def none(self) -> ssl.SSLContext:
        """For pools of plain connections: it trusts nobody, so TLS by mistake fails closed."""
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def system_trust(paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """The system's CAs, looked up by hash at the handshake where the system offers that.

    Reading the whole bundle costs 20 ms of CPU; its folder of hashed names costs 3, and is as
    good when it holds no fewer certificates than the bundle.
    """
    bundle, folder = paths.openssl_cafile, paths.openssl_capath
    if not (os.path.isfile(bundle) and os.path.isdir(folder)):
        return httpx2.create_ssl_context(trust_env=False)
    with open(bundle, "rb") as file:
        wanted = file.read().count(b"-----BEGIN CERTIFICATE-----")
    hashed = re.compile(r"[0-9a-f]{8}\.\d+")
    with os.scandir(folder) as entries:
        # `is_file` follows links: copied without what they point to, they are worth nothing.
        found = sum(1 for entry in entries if hashed.fullmatch(entry.name) and entry.is_file())
    if not wanted or found < wanted:
        return httpx2.create_ssl_context(trust_env=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(capath=folder)
    return context


class _Handshake:
    """Follows one request's connecting, and closes a socket whose handshake did not end well.

    Cancelled inside a TLS or SOCKS handshake, the library forgets the socket and the loop keeps it.
    """

    _stream: Any = None

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        match event.partition(".")[2]:
            case "connect_tcp.complete":
                self._stream = info["return_value"]
            case "start_tls.failed" | "setup_socks5_connection.failed" if self._stream is not None:
                await self._stream.aclose()


class Wire(httpx2.AsyncBaseTransport):
    """One way out: straight, or through `proxy`, where the library speaks for us."""

    def __init__(self, trust: Trust, proxy: str = "", permits: Permits | None = None) -> None:
        """`permits`: where we may connect to, straight; see `sockets`."""
        self._trust = trust
        self._proxy = proxy if "://" in proxy or not proxy else f"http://{proxy}"
        self._straight = Straight(lambda: trust.tls, permits)
        self._pools: dict[bool, httpx2.AsyncHTTPTransport] = {}
        """Those of the proxy, one for plain and one for TLS, each made by need."""
        self.requests = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        if not self._proxy:
            return await self._straight.handle_async_request(request)
        request.extensions = {"trace": _Handshake(), **request.extensions}
        return await self._pool(request.url.scheme == "https").handle_async_request(request)

    async def aclose(self) -> None:
        for way in (self._straight, *self._pools.values()):
            await way.aclose()

    def _pool(self, secure: bool) -> httpx2.AsyncHTTPTransport:
        if secure not in self._pools:
            try:
                self._pools[secure] = httpx2.AsyncHTTPTransport(
                    verify=self._trust.tls if secure else self._trust.none,
                    trust_env=False,
                    limits=LIMITS,
                    proxy=self._through(),
                )
            except ImportError as missing:
                raise ConfigError("A SOCKS proxy needs one more package: pip install socksio") from missing
        return self._pools[secure]

    def _through(self) -> httpx2.Proxy:
        # Without a context of ours the library would make one, and read the environment for it.
        context = self._trust.tls if self._proxy.startswith("https:") else None
        return httpx2.Proxy(self._proxy, ssl_context=context)


def detours(proxies: Proxies, trust: Trust) -> dict[str, Wire | None]:
    """By URL pattern: the wire through a proxy, or None for hosts that are reached straight.

    This machine is always reached straight: a proxy could not reach it, and our own child
    processes listen there.
    """
    ways: dict[str, Wire | None] = {}
    for scheme, url in (("http", proxies.http), ("https", proxies.https), ("all", proxies.all)):
        if url:
            ways[f"{scheme}://"] = Wire(trust, url)
    if not ways or "*" in proxies.no:
        return {}
    for host in (*LOOPBACK, *proxies.no):
        pattern = _pattern(host)
        try:
            httpx2.URL(pattern)
        except httpx2.InvalidURL:
            log.warning("NO_PROXY names %r, which is no host; it is ignored", host)
        else:
            ways[pattern] = None
    return ways


def _pattern(host: str) -> str:
    """A word of NO_PROXY as a URL pattern: a name also means its subdomains, a network its addresses."""
    if "://" in host:
        return host
    try:
        network = ip_network(host.strip("[]"), strict=False)
    except ValueError:
        exact = host == "localhost" or host.startswith("[")
        return f"all://{host}" if exact else f"all://*{host.removeprefix('*')}"
    address = (
        f"[{network.network_address}]" if isinstance(network, IPv6Network) else f"{network.network_address}"
    )
    return f"all://{address}" if network.num_addresses == 1 else f"all://{address}/{network.prefixlen}"
