"""Builds mails from messages (HTML and plain text, in their thread) and sends them by SMTP."""

import asyncio
import mimetypes
import re
import ssl
from contextlib import suppress
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import formataddr, formatdate

import aiosmtplib
from aiosmtplib import SMTP, SMTPException, SMTPResponseException
from markdown_it import MarkdownIt

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.email.settings import Security
from alipes.platforms.email.threads import MailThread, make_message_id
from alipes.platforms.files import media_name, read_outgoing
from alipes.platforms.markup import Span, Spans, parse_markdown, plain_text, strip_controls

LONGEST = 1_000_000
"""Characters: one mail per answer, however long."""
MAX_ATTACHMENT_BYTES = 25_000_000
MAX_SUBJECT_CHARS = 70
# remote pictures would be loaded by whatever opens the mail
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
# the library would put an id on its own line, which confuses some programs
MAIL_POLICY = SMTP_POLICY.clone(max_line_length=600)
_STYLE = (
    "body{font-family:sans-serif;line-height:1.4}"
    "pre{background:#f4f4f4;padding:.6em;overflow-x:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .6em}"
    "blockquote{border-left:3px solid #bbb;margin-left:0;padding-left:1em}"
)
_AGAIN = re.compile(r"^(?:(?:re|aw|sv|antw|rif|odp)\s*:\s*)+", re.IGNORECASE)


def format_markdown(markdown: str) -> tuple[MessagePart, ...]:
    """The one mail for a text; none if it is empty."""
    words = plain_text(_quoting(parse_markdown(markdown).spans)).strip()
    if not words:
        return ()
    head = f"<head><style>{_STYLE}</style></head>"
    page = f"<html>{head}<body>\n{_PARSER.render(markdown)}</body></html>\n"
    return (MessagePart(text=page, plain=words),)


def build_mail(ours: str, address: Address, thread: MailThread, part: MessagePart) -> EmailMessage:
    """Raises `Undeliverable` for something that can never be sent."""
    incoming = EmailMessage(policy=SMTP_POLICY)
    words = part.plain or part.text or (part.media.caption if part.media else "")
    incoming["From"] = formataddr(("alipes", ours))
    incoming["To"] = address.chat
    incoming["Subject"] = _subject(thread, words, part.media)
    incoming["Date"] = formatdate(localtime=False, usegmt=True)
    incoming["Message-ID"] = make_message_id(part.id or words, address.thread, ours.rpartition("@")[2])
    if thread.references:
        incoming["In-Reply-To"] = thread.references[-1]
        incoming["References"] = " ".join(thread.references)
    # automatic responders must not answer us
    incoming["Auto-Submitted"] = "auto-replied" if thread.references else "auto-generated"
    incoming["X-Auto-Response-Suppress"] = "All"
    incoming.set_content(f"{words}\n", charset="utf-8", cte="quoted-printable")
    if part.plain and part.text:
        incoming.add_alternative(part.text, subtype="html", charset="utf-8", cte="quoted-printable")
    if part.media:
        _attach(incoming, part.media)
    return incoming


def _quoting(spans: Spans) -> list[Span]:
    """The same with `> ` before every quoted line."""
    incoming: list[Span] = []
    fresh = True
    for span in spans:
        quote = span.find("quote") is not None
        text = f"{'> ' if fresh else ''}{span.text}".replace("\n", "\n> ") if quote else span.text
        incoming.append(Span(text, span.marks))
        fresh = not quote and text.endswith("\n")
    return incoming


def _subject(thread: MailThread, words: str, media: Media | None) -> str:
    if thread.references:
        return f"Re: {_AGAIN.sub('', strip_controls(thread.subject)).strip()}".strip()
    first = next((line.strip() for line in strip_controls(words).splitlines() if line.strip()), "")
    first = first or (media_name(media) if media else "") or "A message"
    return first if len(first) <= MAX_SUBJECT_CHARS else f"{first[: MAX_SUBJECT_CHARS - 1].rstrip()}…"


def _attach(incoming: EmailMessage, media: Media) -> None:
    data = read_outgoing(media, "mail", MAX_ATTACHMENT_BYTES)
    kind = mimetypes.guess_type(media.path)[0] or "application/octet-stream"
    major, _, minor = kind.partition("/")
    incoming.add_attachment(data, maintype=major, subtype=minor, filename=media_name(media))


RETRY_LATER = 60.0
"""Seconds before a temporary rejection is retried (greylisting, a full queue)."""
_ADDRESS = re.compile(r"[^@\s<>,;:\"()\[\]\\\x00-\x1f]+@[^@\s<>,;:\"()\[\]\\\x00-\x1f]+")


class EmailSender:
    """One connection per mail: mail is rare, and an old connection may be dead."""

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
        if not _ADDRESS.fullmatch(to):
            raise Undeliverable(f"{to!r} is not a mail address.")
        content = await asyncio.to_thread(mail.as_bytes, policy=MAIL_POLICY)
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
                await self._open_envelope(client, ours, to)
            except (SMTPException, OSError) as failure:
                raise self._translate_error(failure, to) from failure
            try:
                await client.data(content)
            except (SMTPException, OSError) as failure:
                raise self._translate_error(failure, to, uncertain=True) from failure
            with suppress(SMTPException, OSError):  # the mail was accepted; a failure now does not matter
                await client.quit(timeout=2.0)
        finally:
            client.close()
        return str(mail["Message-ID"])

    async def _open_envelope(self, client: SMTP, ours: str, to: str) -> None:
        await client.connect()
        await client.ehlo()
        if client.server_auth_methods:
            await client.login(*self._login)
        options = [] if (ours + to).isascii() else ["SMTPUTF8"]
        await client.mail(ours, options=options, encoding="utf-8")
        await client.rcpt(to, encoding="utf-8")

    def _translate_error(self, failure: Exception, to: str, *, uncertain: bool = False) -> DeliveryError:
        """Translate an SMTP failure. `uncertain`: the mail itself was being transferred."""
        match failure:
            case aiosmtplib.SMTPAuthenticationError():
                return DeliveryError(f"The mail server does not accept our password ({failure.code}).")
            case SMTPResponseException() if failure.code in (421, 450, 451, 452):
                why = f"The mail server asks to retry later ({failure.code} {failure.message})."
                return DeliveryError(why, retry_after=RETRY_LATER)
            case aiosmtplib.SMTPSenderRefused() | aiosmtplib.SMTPHeloError():
                return DeliveryError(
                    f"The mail server does not accept mail from us ({failure.code} {failure.message})."
                )
            case SMTPResponseException() if 500 <= failure.code < 600:
                return Undeliverable(f"The mail server rejects mail to {to} ({failure.code} {failure.message}).")
            case SMTPResponseException() if failure.code > 0:
                return DeliveryError(f"The mail server rejects it for now ({failure.code} {failure.message}).")
        host, port, _ = self._where
        if uncertain:
            return DeliveryError("The mail server did not confirm the mail.", uncertain=True)
        return DeliveryError(f"The mail server {host}:{port} cannot be used ({failure}).")
