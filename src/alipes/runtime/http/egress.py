"""Egress requests: who wants to connect where, and who decides; hosts in one normal form."""

import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.sandbox.backend import CommandScope

_NAME = lazy_pattern(
    r"(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
_NUMBERS = lazy_pattern(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}")
"""IPv4 addresses as `inet_aton` reads them: decimal, octal or hexadecimal, in one to four parts."""
_LAST_NUMBER = lazy_pattern(r"(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)")


class EgressRequest(Struct, frozen=True):
    """A connection that a command or a tool wants to make."""

    host: str
    """As `normalise_host` returns it."""
    port: int
    scheme: str
    """`http`: an unencrypted request; `tunnel` or `socks`: any bytes; `fetch`: a tool of ours fetches a URL."""
    scope: CommandScope = CommandScope()
    client: socket.socket | None = None
    """Our end of the connection to the program that asks; it may be closed meanwhile."""
    by_command: bool = False
    """A command wants to connect, not a tool of ours."""
    command: str = ""
    """The command that wants to connect, if it is known."""
    keys: bool = False
    """It is for SSH, by a command that may use the person's SSH agent."""


class EgressCounts(Struct):
    """Totals since the start."""

    allowed: int = 0
    refused: int = 0
    failed: int = 0
    """Allowed, but the host could not be reached."""
    invalid: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


EgressRule: TypeAlias = Literal["allow", "deny", "ask"]
DecideEgress: TypeAlias = Callable[[EgressRequest], Awaitable[str]]
"""Why a connection is not allowed, as a sentence that says how to allow it; empty if it is allowed."""


def normalise_host(text: str) -> str:
    """A host name in lower case and ASCII without a final dot, or an address in its usual form, IPv6 without brackets.

    Raises ValueError if it is neither.
    """
    host = text.strip("[]") if text.startswith("[") and text.endswith("]") else text
    if "%" in host:
        raise ValueError(f"{text[:100]!r} is not a host: remove the %")
    if ":" in host:
        return str(IPv6Address(host))
    if not host.isascii():
        try:
            host = httpx2.URL(f"http://{host}/").raw_host.decode("ascii")
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise ValueError(f"{text[:100]!r} is not a host: {error}") from error
    host = host.lower().removesuffix(".")
    if _LAST_NUMBER.fullmatch(host):
        return _normalise_ipv4(host, text)
    if not _NAME.fullmatch(host):
        raise ValueError(f"{text[:100]!r} is not a host")
    return host


def _normalise_ipv4(host: str, text: str) -> str:
    try:
        if not _NUMBERS.fullmatch(host):
            raise ValueError
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, ValueError) as error:
        raise ValueError(f"{text[:100]!r} is not an IPv4 address") from error


def is_address(host: str) -> bool:
    """True if a normalised host is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def format_authority(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_authority(text: str, default_port: int = 0) -> tuple[str, int]:
    """Host and port of HOST:PORT, the host normalised. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(default_port)
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError(f"{text[:100]!r} needs a port from 1 to 65535")
    return normalise_host(host), int(port)
