"""What a model names is fetched here: from public addresses only, wherever names and redirects lead."""

import asyncio
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urljoin

import httpx2
from msgspec import Struct

from alipes.runtime.http.clients import ClientScope, Http
from alipes.runtime.http.sockets import Forbidden, addresses

REDIRECTS = 5
CLOUD = (ip_network("168.63.129.16/32"), ip_network("192.0.0.0/24"))
"""Addresses that count as public, and at which a cloud tells its machines their secrets."""
_TRANSLATED = ip_network("64:ff9b::/96")
"""IPv6 addresses that stand for IPv4 ones."""


class NotFetched(Exception):
    """A sentence for whoever asked."""


class Fetched(Struct, frozen=True):
    url: str
    """Where it was found in the end."""
    kind: str
    """Its media type, as the server told it; may be empty."""
    data: bytes


def is_public(address: str) -> bool:
    """Is it neither this machine nor a private network, nor anything that leads there?"""
    found = ip_address(address.partition("%")[0])
    inner = _inside(found) if isinstance(found, IPv6Address) else None
    if inner is not None:
        return is_public(str(inner))
    return found.is_global and not found.is_multicast and not any(found in each for each in CLOUD)


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for."""
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


class Fetcher:
    """Fetches what is public, and from hosts that the operator named."""

    def __init__(self, scope: ClientScope, allowed: Collection[str] = (), *, name: str = "fetch") -> None:
        """`allowed`: hosts, as HOST or HOST:PORT, that may be private."""
        self._scope, self._name = scope, name
        self._allowed = frozenset(each.lower() for each in allowed)

    @property
    def _http(self) -> Http:
        return self._scope.http(self._name, stall=30.0, permits=self._permits)

    def _permits(self, host: str, port: int, address: str) -> bool:
        host = host.lower().strip("[]")
        return host in self._allowed or f"{host}:{port}" in self._allowed or is_public(address)

    async def fetch(self, url: str, *, largest: int, seconds: float = 60.0) -> Fetched:
        """Raises `NotFetched`."""
        try:
            async with asyncio.timeout(seconds):
                for _ in range(REDIRECTS + 1):
                    found = await self._one(url, largest)
                    if isinstance(found, Fetched):
                        return found
                    url = urljoin(url, found)
        except TimeoutError as late:
            raise NotFetched(f"{_shown(url)} did not answer within {seconds:.0f} s") from late
        except Forbidden as error:
            raise NotFetched(f"{error}, and is not fetched") from error
        except httpx2.HTTPError as error:
            why = str(error) or type(error).__name__
            raise NotFetched(f"{_shown(url)} could not be fetched: {why}") from error
        raise NotFetched(f"{_shown(url)} leads on and on: more than {REDIRECTS} times")

    async def _one(self, url: str, largest: int) -> Fetched | str:
        """What is there, or where it leads on to."""
        await self._check(url)
        async with self._http.stream("GET", url, headers={"accept-encoding": "identity"}) as response:
            if response.is_redirect and "location" in response.headers:
                return str(response.headers["location"])
            if response.status_code != 200:
                raise NotFetched(f"{_shown(url)} answered {response.status_code}")
            data = bytearray()
            async for piece in response.aiter_raw():
                data += piece
                if len(data) > largest:
                    raise NotFetched(f"{_shown(url)} is larger than {largest:,} bytes")
            kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
            return Fetched(url, kind, bytes(data))

    async def _check(self, url: str) -> None:
        try:
            place = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise NotFetched(f"{url[:200]!r} is no address: {error}") from error
        if place.scheme not in ("http", "https") or not place.host:
            raise NotFetched(f"{url[:200]!r} cannot be fetched: give an http or https address")
        if place.userinfo:
            raise NotFetched("an address with a name or password in it is not fetched")
        if self._http.detoured:  # a proxy connects for us, so that we look up ourselves where it will
            port = place.port or (443 if place.scheme == "https" else 80)
            try:
                found = await addresses(place.host, port)
            except OSError:
                found = []  # only the proxy knows such names
            if found and not all(self._permits(place.host, port, each) for each in found):
                raise Forbidden(f"{place.host} is an address of this machine or of a private network")


def _shown(url: str) -> str:
    """Without what may be a secret in it."""
    return url.partition("?")[0][:200]
