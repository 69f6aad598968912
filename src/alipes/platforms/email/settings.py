"""Mail as a platform: how it is configured and opened. What needs a library is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.kernel.platform import Platform
from alipes.platforms.connection import needed
from alipes.runtime.http.proxies import is_loopback


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
    authserv: str = ""
    """By which name the receiving server signs its Authentication-Results; empty: as it received the mail."""
    ca_file: str = ""
    renew: float = 50.0
    """Seconds that we wait to be told of new mail before we ask: a dead connection is noticed then."""
    patience: float = 30.0
    """Seconds in which the mail server must answer."""


def open_email(settings: EmailSettings) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError."""
    name, _, domain = settings.address.partition("@")
    if not name or not domain or not settings.address.isprintable() or " " in settings.address:
        raise ConfigError(f"email.address: {settings.address!r} is no mail address.")
    for key, (host, _, security) in (("imap", settings.imap), ("smtp", settings.smtp)):
        if security == "none" and not is_loopback(host):
            raise ConfigError(
                f"email.{key}_security: `none` would show the password to everybody on the way to {host}; "
                "it is for servers on this machine."
            )
    with needed("Mail", "aiosmtplib", "email"):
        from alipes.platforms.email.platform import Email  # noqa: PLC0415
    return Email(settings)
