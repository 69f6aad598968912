"""Settings of mail."""

from typing import Annotated, Literal, TypeAlias

from alipes.config.platforms import MessengerConfig
from alipes.config.value_types import HOST, PORT, VARIABLE
from alipes.kernel.models import Secret

Security: TypeAlias = Literal["tls", "starttls", "none"]
SECURITY: TypeAlias = Annotated[Security, "How the connection is protected; `none` only on this machine."]


class EmailConfig(MessengerConfig, frozen=True, kw_only=True):
    address: Annotated[str, "The agent's mail address. Empty: mail is not served."] = ""
    user: Annotated[str, "User name for login. Empty: the address."] = ""
    password_env: Annotated[str, VARIABLE, "Variable with the password of the mailbox."] = "EMAIL_PASSWORD"
    password: Secret = Secret()
    imap_host: Annotated[str, HOST, "The IMAP server."] = ""
    imap_port: Annotated[int, PORT, "Its port."] = 993
    imap_security: SECURITY = "tls"
    smtp_host: Annotated[str, HOST, "The SMTP server. Empty: the IMAP server's host."] = ""
    smtp_port: Annotated[int, PORT, "Its port; use 587 with `starttls`."] = 465
    smtp_security: SECURITY = "tls"
    folder: Annotated[str, "The folder whose mail is answered."] = "INBOX"
    trust: Annotated[
        Literal["authenticated", "anyone"],
        "Which senders are believed: only mail that the receiving server authenticated (SPF, DKIM, DMARC in its "
        "Authentication-Results), or any From address, which anybody can forge.",
    ] = "authenticated"
    authserv: Annotated[
        str,
        "Name of the receiving server in Authentication-Results. Empty: the topmost header counts, if it names a "
        "server that received the mail.",
    ] = ""
    renew: float = 50.0
    """Longest IDLE, in seconds: a dead connection is noticed after it."""
    patience: float = 30.0
    """Timeout of a command, in seconds."""

    @property
    def needs(self) -> dict[str, bool]:
        password = {self.password_env: bool(self.password)}
        return {"email.address": bool(self.address), "email.imap_host": bool(self.imap_host)} | password

    @property
    def imap(self) -> tuple[str, int, Security]:
        """Host, port and transport security."""
        return self.imap_host, self.imap_port, self.imap_security

    @property
    def smtp(self) -> tuple[str, int, Security]:
        return self.smtp_host or self.imap_host, self.smtp_port, self.smtp_security
