"""What goes out by mail: Markdown as HTML and as plain text, and a mail in its thread. It sends nothing."""

import asyncio
import mimetypes
import re
import ssl
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import formataddr, formatdate
from pathlib import Path

import aiosmtplib
from aiosmtplib import SMTP, SMTPException, SMTPResponseException
from markdown_it import MarkdownIt

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.outbox import Media
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.platforms.email.imap import Security
from alipes.platforms.email.threads import Thread, message_id
from alipes.platforms.files import readable
from alipes.platforms.markup.markdown import read
from alipes.platforms.markup.spans import Span, Spans, harmless, plain

LONGEST = 1_000_000
"""Letters: one mail per answer, however long."""
LARGEST = 25_000_000
SUBJECT = 70
# Pictures from elsewhere would be fetched by whoever opens the mail.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
# An id on a line of its own, as the library would break it by default, confuses some programs.
WIRE = SMTP_POLICY.clone(max_line_length=600)
_STYLE = (
    "body{font-family:sans-serif;line-height:1.4}"
    "pre{background:#f4f4f4;padding:.6em;overflow-x:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .6em}"
    "blockquote{border-left:3px solid #bbb;margin-left:0;padding-left:1em}"
)
_AGAIN = re.compile(r"^(?:(?:re|aw|sv|antw|rif|odp)\s*:\s*)+", re.IGNORECASE)


def pieces(markdown: str) -> tuple[Piece, ...]:
    """The one mail that a text is; none where there is nothing to read."""
    words = plain(_quoting(read(markdown).spans)).strip()
    if not words:
        return ()
    head = f"<head><style>{_STYLE}</style></head>"
    page = f"<html>{head}<body>\n{_PARSER.render(markdown)}</body></html>\n"
    return (Piece(text=page, plain=words),)


def mail(ours: str, address: Address, thread: Thread, piece: Piece) -> EmailMessage:
    """Raises Gone for what can never be sent."""
    made = EmailMessage(policy=SMTP_POLICY)
    words = piece.plain or piece.text or (piece.media.caption if piece.media else "")
    made["From"] = formataddr(("alipes", ours))
    made["To"] = address.chat
    made["Subject"] = _subject(thread, words, piece.media)
    made["Date"] = formatdate(localtime=False, usegmt=True)
    made["Message-ID"] = message_id(piece.id or words, address.thread, ours.rpartition("@")[2])
    if thread.references:
        made["In-Reply-To"] = thread.references[-1]
        made["References"] = " ".join(thread.references)
    # Who answers by himself shall not answer us.
    made["Auto-Submitted"] = "auto-replied" if thread.references else "auto-generated"
    made["X-Auto-Response-Suppress"] = "All"
    made.set_content(f"{words}\n", charset="utf-8", cte="quoted-printable")
    if piece.plain and piece.text:
        made.add_alternative(piece.text, subtype="html", charset="utf-8", cte="quoted-printable")
    if piece.media:
        _attach(made, piece.media)
    return made


def _quoting(spans: Spans) -> list[Span]:
    """The same with the sign of mail before every line that is quoted."""
    made: list[Span] = []
    fresh = True
    for span in spans:
        quote = any(mark.kind == "quote" for mark in span.marks)
        text = f"{'> ' if fresh else ''}{span.text}".replace("\n", "\n> ") if quote else span.text
        made.append(Span(text, span.marks))
        fresh = not quote and text.endswith("\n")
    return made


def _subject(thread: Thread, words: str, media: Media | None) -> str:
    if thread.references:
        return f"Re: {_AGAIN.sub('', harmless(thread.subject)).strip()}".strip()
    first = next((line.strip() for line in harmless(words).splitlines() if line.strip()), "")
    first = first or (_name(media) if media else "") or "A message"
    return first if len(first) <= SUBJECT else f"{first[: SUBJECT - 1].rstrip()}…"


def _attach(made: EmailMessage, media: Media) -> None:
    path = Path(media.path)
    with readable(media.path):
        size = path.stat().st_size
        if size > LARGEST:
            raise Gone(f"No mail takes a file of {size >> 20} MB ({_name(media)}).")
        data = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    major, _, minor = kind.partition("/")
    made.add_attachment(data, maintype=major, subtype=minor, filename=_name(media))


def _name(media: Media) -> str:
    return harmless(media.name) or Path(media.path).name


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
