"""Sending mail through the operator's server, each try once. It raises `DeliveryError` kinds only."""

import asyncio
import re
import ssl
from email.message import EmailMessage

import aiosmtplib
from aiosmtplib import SMTP, SMTPException, SMTPResponseException

from alipes.kernel.errors import DeliveryError, Gone
from alipes.platforms.email.imap import Security
from alipes.platforms.email.outbound import WIRE

LATER = 60.0
"""Seconds after which a server is asked again that said `not now` (greylisting, a full queue)."""
_ADDRESS = re.compile(r"[^@\s<>,;:\"()\[\]\\\x00-\x1f]+@[^@\s<>,;:\"()\[\]\\\x00-\x1f]+")


class Post:
    """A connection for each mail: mail is rare, and an old connection is one that may be dead."""

    def __init__(
        self,
        where: tuple[str, int, Security],
        login: tuple[str, str],
        trust: ssl.SSLContext | None,
        *,
        within: float = 60.0,
    ) -> None:
        self._where, self._login, self._trust, self._within = where, login, trust, within

    async def send(self, ours: str, to: str, mail: EmailMessage) -> str:
        """Its Message-ID."""
        if not _ADDRESS.fullmatch(to):
            raise Gone(f"{to!r} is no mail address.")
        content = await asyncio.to_thread(mail.as_bytes, policy=WIRE)
        host, port, security = self._where
        client = SMTP(
            hostname=host,
            port=port,
            use_tls=security == "tls",
            start_tls=security == "starttls",
            tls_context=self._trust if security != "none" else None,
            timeout=self._within,
            local_hostname="localhost",
        )
        try:
            try:
                await self._until_data(client, ours, to)
            except (SMTPException, OSError) as theirs:
                raise self._ours(theirs, to) from theirs
            try:
                await client.data(content)
            except (SMTPException, OSError) as theirs:
                raise self._ours(theirs, to, uncertain=True) from theirs
            await _goodbye(client)
        finally:
            client.close()
        return str(mail["Message-ID"])

    async def _until_data(self, client: SMTP, ours: str, to: str) -> None:
        await client.connect()
        await client.ehlo()
        if client.server_auth_methods:
            await client.login(*self._login)
        options = [] if (ours + to).isascii() else ["SMTPUTF8"]
        await client.mail(ours, options=options, encoding="utf-8")
        await client.rcpt(to, encoding="utf-8")

    def _ours(self, theirs: Exception, to: str, *, uncertain: bool = False) -> DeliveryError:
        """A failure of theirs, by who acts next. `uncertain`: the mail itself was on its way."""
        match theirs:
            case aiosmtplib.SMTPAuthenticationError():
                return DeliveryError(f"The mail server does not accept our password ({theirs.code}).")
            case SMTPResponseException() if theirs.code in (421, 450, 451, 452):
                why = f"The mail server asks to come again later ({theirs.code} {theirs.message})."
                return DeliveryError(why, retry_after=LATER)
            case aiosmtplib.SMTPSenderRefused() | aiosmtplib.SMTPHeloError():
                return DeliveryError(
                    f"The mail server takes no mail from us ({theirs.code} {theirs.message})."
                )
            case SMTPResponseException() if 500 <= theirs.code < 600:
                return Gone(f"The mail server refuses mail to {to} ({theirs.code} {theirs.message}).")
            case SMTPResponseException() if theirs.code > 0:
                return DeliveryError(f"The mail server refuses it for now ({theirs.code} {theirs.message}).")
        host, port, _ = self._where
        if uncertain:
            return DeliveryError("The mail server does not say whether it took the mail.", uncertain=True)
        return DeliveryError(f"The mail server {host}:{port} cannot be used ({theirs}).")


async def _goodbye(client: SMTP) -> None:
    """It was taken; whether we part politely is of no interest."""
    try:
        await client.quit(timeout=2.0)
    except (SMTPException, OSError):
        return
