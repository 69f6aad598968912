"""Settings in `[plugins.entries.remote_tools]`. An invalid value is refused with the reason."""

from ipaddress import ip_address
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]


class Config(Struct, kw_only=True, frozen=True):
    host: str = "127.0.0.1"
    """A loopback address."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8765
    """0: any free port; `/remote` shows it."""
    origins: tuple[str, ...] = ()
    """Other pages that may connect: `https://example.org`, without a path."""
    timeout: Seconds = 60.0
    """Timeout of tools that set none."""
    max_timeout: Seconds = 600.0
    hello: Seconds = 5.0
    """Time limit for a client's hello."""
    heartbeat: Seconds = 10.0
    """A dead client is noticed after at most twice this time."""
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
