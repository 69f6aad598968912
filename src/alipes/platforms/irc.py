"""IRC as a platform: how it is configured and opened. A library it needs is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.endpoints import Secret
from alipes.kernel.errors import ConfigError
from alipes.kernel.platforms import Platform


class IrcSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where files that people send are kept, and how far we have listened."""
    host: str
    port: int = 6697
    tls: bool = True
    nick: str = "alipes"
    channels: tuple[str, ...] = ()
    password: Secret = Secret()
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    ca_file: str = ""


def open_irc(settings: IrcSettings) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError."""
    raise ConfigError("Irc is not built yet.")
