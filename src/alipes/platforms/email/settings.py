"""Settings of mail."""

from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.platforms.email.imap import Security
from alipes.runtime.http.proxies import is_loopback


class EmailSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where received files and the read position are stored."""
    address: str
    user: str
    password: Secret
    imap: tuple[str, int, Security]
    """Host, port and transport security."""
    smtp: tuple[str, int, Security]
    mailbox: str = "INBOX"
    trust: Literal["authenticated", "anyone"] = "authenticated"
    authserv: str = ""
    """Server name in trusted Authentication-Results headers; empty: the server that received the mail."""
    ca_file: str = ""
    renew: float = 50.0
    """Longest IDLE, in seconds: a dead connection is noticed after it."""
    patience: float = 30.0
    """Timeout of a command, in seconds."""

    @classmethod
    def from_config(cls, settings: Settings, folder: Path) -> Self:
        chosen = settings.messengers.email
        return cls(
            address=chosen.address,
            user=chosen.user or chosen.address,
            password=chosen.password,
            imap=(chosen.imap_host, chosen.imap_port, chosen.imap_security),
            smtp=(chosen.smtp_host or chosen.imap_host, chosen.smtp_port, chosen.smtp_security),
            mailbox=chosen.folder,
            trust=chosen.trust,
            authserv=chosen.authserv,
            folder=folder,
            ca_file=settings.ca_file,
        )

    def check(self) -> None:
        name, _, domain = self.address.partition("@")
        if not name or not domain or not self.address.isprintable() or " " in self.address:
            raise ConfigError(f"email.address: {self.address!r} is not a mail address.")
        for key, (host, _, security) in (("imap", self.imap), ("smtp", self.smtp)):
            if security == "none" and not is_loopback(host):
                raise ConfigError(
                    f"email.{key}_security: `none` would send the password to {host} unencrypted; it is only "
                    "allowed for servers on this machine."
                )
