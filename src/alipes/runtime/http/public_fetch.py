"""Fetches URLs given by a model: public addresses only, also after DNS lookups and redirects."""

import asyncio
import logging
import zlib
from collections.abc import Collection, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urljoin

from msgspec import Struct

from alipes.runtime.http.clients import ClientScope, HttpClient
from alipes.runtime.http.egress import DecideEgress, EgressCounts, EgressRequest, is_address, normalise_host
from alipes.runtime.http.lazy_httpx import errors, httpx2
from alipes.runtime.http.sockets import resolve_addresses
from alipes.runtime.sandbox.backend import CommandScope

log = logging.getLogger(__name__)

MAX_REDIRECTS = 5
_HOW_TO_ALLOW = "it was not fetched. To allow it, add it to fetch.allow in config.toml"
NO_CALLER = CommandScope()
CLOUD_METADATA = (ip_network("168.63.129.16/32"), ip_network("192.0.0.0/24"))
"""Formally public addresses at which clouds serve metadata and secrets."""
_NAT64 = ip_network("64:ff9b::/96")
"""IPv6 addresses that embed IPv4 ones."""
_ISATAP = 0x5EFE
"""The third quarter of an ISATAP address, before its IPv4 address; one bit of it may be set."""
_GLOBAL_UNICAST, _DOCUMENTATION = ip_network("2000::/3"), ip_network("3fff::/20")


class FetchError(Exception):
    """The message says why."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status
        """HTTP status of the answer; 0 if there was none."""


class FetchRequest(Struct, frozen=True):
    """What is sent. With a body it is a POST, whose redirects are not followed."""

    headers: Mapping[str, str] = {}
    """Not sent to another host after a redirect."""
    body: bytes | None = None


class FetchedResource(Struct, frozen=True):
    url: str
    """The final URL after redirects."""
    kind: str
    """Its media type as sent by the server; may be empty."""
    data: bytes
    charset: str = ""
    """As sent by the server; may be empty or wrong."""


GET = FetchRequest()
INFLATE_CHUNK = 1 << 18
"""Bytes that are decompressed at a time, so that other tasks can run in between."""


def is_public(address: str) -> bool:
    """False for this machine, private networks, and addresses that map to them."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        inner = _embedded_ipv4(found)
        if inner is not None and not is_public(str(inner)):
            return False
        if found.ipv4_mapped is not None or found in _NAT64:
            return True
        # Python 3.11 calls many reserved blocks global; only this one is in use.
        if found not in _GLOBAL_UNICAST or found in _DOCUMENTATION:
            return False
    return found.is_global and not found.is_multicast and not any(found in each for each in CLOUD_METADATA)


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address to which routers or tunnels translate it: NAT64, ISATAP, mapped, 6to4 or Teredo."""
    if address in _NAT64 or (int(address) >> 32) & 0xFDFFFFFF == _ISATAP:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


class AddressGuard:
    """Which addresses may be connected to: public ones, and those of hosts that the operator listed."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        """`allowed`: hosts, as HOST or HOST:PORT, that may be private."""
        self._allowed = frozenset(each.lower() for each in allowed)

    def lists(self, host: str, port: int) -> bool:
        """True if the operator listed the host."""
        host = host.lower().strip("[]")
        return host in self._allowed or f"{host}:{port}" in self._allowed

    def permits(self, host: str, port: int, address: str) -> bool:
        return self.lists(host, port) or is_public(address)

    async def check_name(self, host: str, port: int) -> None:
        """Raise `ForbiddenAddress` if a proxy that connects to `host` would reach a private address.

        A name that only the proxy can resolve is not checked.
        """
        try:
            found = await resolve_addresses(host, port)
        except OSError:
            return
        if not all(self.permits(host, port, each) for each in found):
            raise errors.ForbiddenAddress(f"{host} is an address of this machine or of a private network")


class PublicFetcher:
    """Fetches from public addresses and from hosts that the operator allowed."""

    def __init__(
        self,
        scope: ClientScope,
        allowed: Collection[str] = (),
        *,
        name: str = "fetch",
        decide: DecideEgress | None = None,
        counts: EgressCounts | None = None,
    ) -> None:
        """`allowed`: hosts, as HOST or HOST:PORT, that may be private. `decide`: asked about every host."""
        self._scope, self._name, self._decide = scope, name, decide
        self._counts = counts or EgressCounts()
        self._guard = AddressGuard(allowed)

    @property
    def _http(self) -> HttpClient:
        return self._scope.http(self._name, stall=30.0, permits=self._guard.permits)

    async def check(self, url: str, caller: CommandScope = NO_CALLER) -> None:
        """Raise `FetchError` if the URL may not be fetched for `caller`, whose person may be asked."""
        try:
            await self._check(url, caller)
            place = httpx2.URL(url)
            await self._guard.check_name(place.host, place.port or (443 if place.scheme == "https" else 80))
        except errors.ForbiddenAddress as error:
            raise FetchError(f"{error}; {_HOW_TO_ALLOW}") from error

    async def fetch(
        self,
        url: str,
        *,
        largest: int,
        seconds: float = 60.0,
        caller: CommandScope = NO_CALLER,
        request: FetchRequest = GET,
    ) -> FetchedResource:
        """Fetch for `caller`, whose person may be asked; that time does not count. Raises `FetchError`."""
        left = seconds
        loop = asyncio.get_running_loop()
        try:
            for _ in range(MAX_REDIRECTS + 1):
                await self._check(url, caller)
                begun = loop.time()
                async with asyncio.timeout(left):
                    found = await self._one(url, largest, request)
                self._log(url, found, loop.time() - begun, caller)
                if isinstance(found, FetchedResource):
                    return found
                target = urljoin(url, found)
                if httpx2.URL(target).netloc != httpx2.URL(url).netloc:
                    request = GET
                url, left = target, left - (loop.time() - begun)
        except TimeoutError as late:
            raise FetchError(f"{_without_query(url)} did not answer within {seconds:.0f} s") from late
        except errors.ForbiddenAddress as error:
            raise FetchError(f"{error}; {_HOW_TO_ALLOW}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            why = str(error) or type(error).__name__
            raise FetchError(f"{_without_query(url)} could not be fetched: {why}") from error
        raise FetchError(f"{_without_query(url)} has more than {MAX_REDIRECTS} redirects")

    def _log(self, url: str, found: FetchedResource | str, seconds: float, caller: CommandScope) -> None:
        size = len(found.data) if isinstance(found, FetchedResource) else 0
        self._counts.allowed += 1
        self._counts.bytes_in += size
        place = httpx2.URL(url).netloc.decode("ascii", "replace")  # never the path, which may contain secrets
        log.info("egress: fetched from %s, %d bytes in, %.1f s, session %s", place, size, seconds, caller.session)

    async def _one(self, url: str, largest: int, request: FetchRequest) -> FetchedResource | str:
        """The resource, or the URL of a redirect."""
        method = "GET" if request.body is None else "POST"
        headers = {"accept-encoding": "identity", **request.headers}
        async with self._http.stream(method, url, headers=headers, content=request.body) as response:
            if response.is_redirect and "location" in response.headers and request.body is None:
                return str(response.headers["location"])
            if response.status_code != 200:
                raise FetchError(f"{_without_query(url)} returned status {response.status_code}", response.status_code)
            body = _Body(url, str(response.headers.get("content-encoding", "")), largest)
            async for piece in response.aiter_raw():
                await body.add(piece)
            kind, _, parameters = str(response.headers.get("content-type", "")).partition(";")
            return FetchedResource(url, kind.strip().lower(), bytes(body.data), _charset(parameters))

    async def _check(self, url: str, caller: CommandScope) -> None:
        try:
            place = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise FetchError(f"{url[:200]!r} is not a URL: {error}") from error
        if place.scheme not in ("http", "https") or not place.host:
            raise FetchError(f"{url[:200]!r} cannot be fetched: give an http or https URL")
        if place.userinfo:
            raise FetchError("URLs with a user name or password are not fetched")
        port = place.port or (443 if place.scheme == "https" else 80)
        try:
            host = normalise_host(place.raw_host.decode("ascii"))
        except ValueError as error:
            raise FetchError(f"{_without_query(url)} cannot be fetched: {error}") from error
        if is_address(host) and not self._guard.permits(place.host, port, host):
            raise errors.ForbiddenAddress(f"{place.host} is an address of this machine or of a private network")
        if self._decide is not None and (why := await self._decide(EgressRequest(host, port, "fetch", caller))):
            self._counts.refused += 1
            log.info("egress: refused in session %s: %s", caller.session, why)
            raise FetchError(f"{_without_query(url)} was not fetched. {why}")
        if self._http.uses_proxy:  # the proxy connects, so check the address it would use
            await self._guard.check_name(place.host, port)


class _Body:
    """A body as it arrives, decompressed if the server compressed it in spite of our request."""

    def __init__(self, url: str, encoding: str, largest: int) -> None:
        self.data, self._url, self._largest = bytearray(), url, largest
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise FetchError(f"{_without_query(url)} is compressed as {name[:20]!r}, which cannot be read")
        self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 32) if name not in ("", "identity") else None

    async def add(self, piece: bytes) -> None:
        """Raises `FetchError` if it is too large, also after decompression."""
        if self._inflater is None:
            self.data += piece
            self._check_size()
            return
        try:
            while piece:
                self.data += self._inflater.decompress(piece, INFLATE_CHUNK)
                piece = self._inflater.unconsumed_tail
                self._check_size()
                await asyncio.sleep(0)
        except zlib.error as error:
            raise FetchError(f"{_without_query(self._url)} could not be decompressed: {error}") from error

    def _check_size(self) -> None:
        if len(self.data) > self._largest:
            raise FetchError(f"{_without_query(self._url)} is larger than {self._largest:,} bytes")


def _charset(parameters: str) -> str:
    for each in parameters.split(";"):
        name, _, value = each.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("'\"")[:40]
    return ""


def _without_query(url: str) -> str:
    """Without the query, which may contain secrets."""
    return url.partition("?")[0][:200]
