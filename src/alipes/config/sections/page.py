"""Settings of the page in the browser."""

import re
from typing import Annotated

from msgspec import Struct

from alipes.config.urls import InvalidValue
from alipes.config.value_types import ENDPOINT, NETWORKS, ValueType

_PLAIN_ADDRESS = r"https?://[^/]+(?:/[A-Za-z0-9._~-]+)*"


def _address(value: object) -> str:
    address = str(ENDPOINT.check(value))
    if address and not re.fullmatch(_PLAIN_ADDRESS, address):
        raise InvalidValue("has a path with other characters than letters, digits, - . _ ~ and /")
    return address


class PageConfig(Struct, frozen=True):
    address: Annotated[
        str,
        ValueType("address", _address),
        "Address at which your browsers reach the page, such as https://agent.example.com or https://HOST/agent, if it "
        "is not that of `alipes serve` itself. `alipes page` prints links to it, its host is accepted like those in "
        "`api.hosts`, and `/page` works in private chats of owners. Empty: only the address of `alipes serve`.",
    ] = ""
    trusted_proxies: Annotated[
        tuple[str, ...],
        NETWORKS,
        "Addresses or networks of reverse proxies whose headers X-Forwarded-For, X-Forwarded-Proto and "
        "X-Forwarded-Prefix count for the page. Those of all others are ignored.",
    ] = ()
