"""Connections to other hosts for the egress proxy: directly, or through the user's own HTTP or SOCKS proxy."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from ipaddress import ip_address
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from alipes.kernel.models import Proxies
from alipes.runtime.http.egress import format_authority, is_address
from alipes.runtime.http.http1 import Headers
from alipes.runtime.http.lazy_httpx import errors
from alipes.runtime.http.proxies import TlsTrust, choose_proxy
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.http.sockets import resolve_addresses

CONNECT_TIMEOUT_S = 30.0
ADDRESS_TIMEOUT_S = 8.0
"""Seconds for one of several addresses of a host."""
CLOSE_TIMEOUT_S = 1.0
MAX_ADDRESSES = 8
BUFFER_BYTES = 64 * 1024
_PROXY_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_SOCKS_ERRORS = {
    1: "general failure", 2: "not allowed", 3: "network unreachable", 4: "host unreachable", 5: "connection refused",
    6: "timed out", 7: "command not supported", 8: "address type not supported",
}  # fmt: skip


class ByteStream:
    """Both directions of a connection, with bytes that were read ahead."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer, self.ahead = reader, writer, b""

    async def read(self) -> bytes:
        """At least one byte; empty at the end."""
        if self.ahead:
            data, self.ahead = self.ahead, b""
            return data
        return await self._reader.read(BUFFER_BYTES)

    async def peek_more(self) -> None:
        """Read ahead. Raises EOFError at the end."""
        if not (data := await self._reader.read(BUFFER_BYTES)):
            raise EOFError("the connection ended")
        self.ahead += data

    async def read_exactly(self, size: int) -> bytes:
        while len(self.ahead) < size:
            await self.peek_more()
        data, self.ahead = self.ahead[:size], self.ahead[size:]
        return data

    async def read_head(self, largest: int) -> bytes:
        """Up to and including the empty line. Raises EOFError, or ValueError if there is none in `largest` bytes."""
        while (end := self.ahead.find(b"\r\n\r\n")) < 0:
            if len(self.ahead) > largest:
                raise ValueError(f"the head has more than {largest} bytes")
            await self.peek_more()
        return await self.read_exactly(end + 4)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def end(self) -> None:
        """No more will be written; the other direction stays open."""
        if self.writer.can_write_eof() and not self.writer.is_closing():
            self.writer.write_eof()

    async def close(self) -> None:
        """Close both directions. What was written and not sent yet is discarded after a moment."""
        self.writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.writer.wait_closed()
        except OSError:  # also if it takes too long
            self.abort()

    def abort(self) -> None:
        self.writer.transport.abort()


class Upstream(Struct, frozen=True):
    stream: ByteStream
    forwards: bool = False
    """The user's HTTP proxy is at the other end: it expects whole URLs."""
    headers: Headers = []
    """For that proxy, with each request."""


class UpstreamConnector:
    """Opens connections to allowed addresses of hosts."""

    def __init__(self, guard: AddressGuard, proxies: Proxies | None = None, trust: TlsTrust | None = None) -> None:
        self.guard, self._proxies, self._trust = guard, proxies or Proxies(), trust or TlsTrust()

    @asynccontextmanager
    async def open(self, host: str, port: int, *, plain: bool) -> AsyncIterator[Upstream]:
        """A connection to a normalised host; `plain`: for unencrypted HTTP.

        Raises `ForbiddenAddress`, or OSError (also TimeoutError) if it cannot be made.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            upstream = await self._connect(host, port, plain)
        try:
            yield upstream
        finally:
            upstream.stream.abort()

    async def _connect(self, host: str, port: int, plain: bool) -> Upstream:
        url = choose_proxy(self._proxies, "http" if plain else "https", host, port)
        if not url:
            return Upstream(await self._connect_directly(host, port))
        await self.guard.check_name(host, port)
        proxy = urlsplit(url)
        with ExitStack() as on_failure:
            stream = await self._connect_to_proxy(proxy)
            on_failure.callback(stream.abort)
            upstream = Upstream(stream)
            if proxy.scheme.startswith("socks"):
                await _ask_socks(stream, proxy, host, port)
            elif plain:
                upstream = Upstream(stream, True, _authorization(proxy))
            else:
                await _ask_connect(stream, format_authority(host, port), _authorization(proxy))
            on_failure.pop_all()
        return upstream

    async def _connect_directly(self, host: str, port: int) -> ByteStream:
        """Connect to exactly one of the addresses that were checked."""
        found = await resolve_addresses(host, port)
        allowed = [each for each in found if self.guard.permits(host, port, each)]
        if found and not allowed:
            raise errors.ForbiddenAddress(f"{host} is an address of this machine or of a private network")
        failure: OSError = OSError("the name has no address")
        for address in allowed[:MAX_ADDRESSES]:
            try:
                async with asyncio.timeout(ADDRESS_TIMEOUT_S if len(allowed) > 1 else None):
                    return ByteStream(*await asyncio.open_connection(address, port, limit=BUFFER_BYTES))
            except OSError as error:
                failure = error
        raise failure

    async def _connect_to_proxy(self, proxy: SplitResult) -> ByteStream:
        port = proxy.port or _PROXY_PORTS[proxy.scheme]
        tls = self._trust.tls if proxy.scheme == "https" else None
        return ByteStream(*await asyncio.open_connection(proxy.hostname, port, ssl=tls, limit=BUFFER_BYTES))


def _authorization(proxy: SplitResult) -> Headers:
    if not proxy.username:
        return []
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [(b"proxy-authorization", b"Basic " + base64.b64encode(pair.encode()))]


async def _ask_connect(stream: ByteStream, authority: str, headers: Headers) -> None:
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    await stream.write(b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (authority.encode(), authority.encode(), lines))
    try:
        status = (await stream.read_head(BUFFER_BYTES)).split(maxsplit=2)[1]
    except (EOFError, ValueError, IndexError) as error:
        raise OSError("your proxy gave no answer") from error
    if not status.startswith(b"2"):
        raise OSError(f"your proxy refused it with status {status.decode('ascii', 'replace')[:3]}")


async def _ask_socks(stream: ByteStream, proxy: SplitResult, host: str, port: int) -> None:
    name = unquote(proxy.username or "").encode()
    try:
        await stream.write(b"\x05\x01\x02" if name else b"\x05\x01\x00")
        _, method = await stream.read_exactly(2)
        if method == 2 and name:
            secret = unquote(proxy.password or "").encode()
            await stream.write(b"\x01" + bytes([len(name)]) + name + bytes([len(secret)]) + secret)
            if (await stream.read_exactly(2))[1] != 0:
                raise OSError("your proxy does not accept its password")
        elif method != 0:
            raise OSError("your proxy wants another way to log in")
        await stream.write(b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2))
        _, code, _, kind = await stream.read_exactly(4)
        if code:
            raise OSError(f"your proxy refused it: {_SOCKS_ERRORS.get(code, code)}")
        size = {1: 4, 4: 16}.get(kind) or (await stream.read_exactly(1))[0]
        await stream.read_exactly(size + 2)
    except EOFError as error:
        raise OSError("your proxy closed the connection") from error


def _socks_address(host: str) -> bytes:
    if not is_address(host):
        return b"\x03" + bytes([len(host)]) + host.encode()
    packed = ip_address(host).packed
    return (b"\x01" if len(packed) == 4 else b"\x04") + packed
