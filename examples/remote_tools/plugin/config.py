"""What `[plugins.entries.remote_tools]` may say. A value that cannot be meant is refused with the reason."""

from ipaddress import ip_address
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]


class Config(Struct, kw_only=True, frozen=True):
    host: str = "127.0.0.1"
    """An address of this machine that no other machine reaches."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8765
    """0: any that is free; `/remote` tells which."""
    origins: tuple[str, ...] = ()
    """Pages that may connect, beside our own: `https://example.org`, without a path."""
    timeout: Seconds = 60.0
    """Of a call of a tool that names none."""
    max_timeout: Seconds = 600.0
    hello: Seconds = 5.0
    """How soon a client must have said hello."""
    heartbeat: Seconds = 10.0
    """A client that is silently gone is noticed after at most twice this."""
    clients: Count = 16
    tools: Count = 32
    """Of one client."""
    calls: Count = 64
    """Open at one client at the same time."""
    message_bytes: Annotated[int, Meta(ge=1024, le=64 * 2**20)] = 2**20

    def __post_init__(self) -> None:
        if not _loopback(self.host):
            raise ValueError(f"host must be an address of this machine such as 127.0.0.1, not {self.host}")
        if self.timeout > self.max_timeout:
            raise ValueError(f"timeout is {self.timeout:g} s, more than max_timeout ({self.max_timeout:g} s)")
        for origin in self.origins:
            if not origin.startswith(("http://", "https://")) or origin.count("/") != 2:
                raise ValueError(f"an origin is scheme and host, such as https://example.org, not {origin}")


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
