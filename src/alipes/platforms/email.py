"""Email as a platform: how it is configured and opened. A library it needs is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.endpoints import Secret
from alipes.kernel.errors import ConfigError
from alipes.kernel.platforms import Platform


class EmailSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where files that people send are kept, and how far we have listened."""
    address: str
    user: str
    password: Secret
    imap: tuple[str, int, Literal["tls", "starttls", "none"]]
    """Host, port, and how the way there is protected."""
    smtp: tuple[str, int, Literal["tls", "starttls", "none"]]
    mailbox: str = "INBOX"
    trust: Literal["authenticated", "anyone"] = "authenticated"
    ca_file: str = ""


def open_email(settings: EmailSettings) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError."""
    raise ConfigError("Email is not built yet.")
