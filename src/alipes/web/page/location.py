"""Where a browser sees the page: its address, whether it is encrypted, and who asks, behind a proxy or not."""

import ipaddress
import re
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.requests import Request

from alipes.web.auth import peer_address

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")
"""A path that can be in a cookie as it is."""


class PageLocation(Struct, frozen=True):
    """What one request says about it."""

    peer: str
    """The address of the caller."""
    secure: bool
    """True if the browser uses https."""
    path: str
    """The folder of the page, with a slash at both ends."""
    url: str
    """The address of the page, with a slash at the end."""


class PageLocator:
    """`address`: `page.address`, where the page is reached. `trusted`: proxies whose headers count; of all others they
    are ignored."""

    def __init__(self, address: str = "", trusted: Iterable[str] = ()) -> None:
        self._address = address.rstrip("/")
        self._trusted: tuple[_Network, ...] = tuple(ipaddress.ip_network(each) for each in trusted)

    def locate(self, request: Request) -> PageLocation:
        peer, headers = peer_address(request.client), request.headers
        secure, path = request.url.scheme == "https", ""
        host = headers.get("host", "")
        if self._is_trusted(peer):
            secure = secure or headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https"
            prefix = headers.get("x-forwarded-prefix", "")
            path = prefix.rstrip("/") if _PREFIX.fullmatch(prefix) else ""
            peer = self._find_peer(peer, headers.get("x-forwarded-for", ""))
        if self._address:
            address = urlsplit(self._address)
            if host == address.netloc or headers.get("origin", "") == f"{address.scheme}://{address.netloc}":
                secure, path, host = secure or address.scheme == "https", address.path, address.netloc
        url = f"{'https' if secure else 'http'}://{host}{path}/"
        return PageLocation(peer, secure, f"{path}/", url)

    def _is_trusted(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._trusted)

    def _find_peer(self, peer: str, forwarded: str) -> str:
        """The last address that is not one of the trusted proxies: everything before it may be invented."""
        for each in reversed([part.strip() for part in forwarded.split(",")]):
            if not each:
                continue
            peer = each
            if not self._is_trusted(each):
                break
        return peer
