"""What goes out by mail: Markdown as HTML and as plain text, and a mail in its thread. It sends nothing."""

import mimetypes
import re
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formataddr, formatdate
from pathlib import Path

from markdown_it import MarkdownIt

from alipes.kernel.delivery import Media
from alipes.kernel.errors import Gone
from alipes.kernel.platforms import Piece
from alipes.kernel.turns import Address
from alipes.platforms.email_threads import Thread, message_id
from alipes.platforms.markup import harmless, plain
from alipes.platforms.markup_reading import read

LONGEST = 1_000_000
"""Letters: one mail per answer, however long."""
LARGEST = 25_000_000
SUBJECT = 70
# Pictures from elsewhere would be fetched by whoever opens the mail.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
# Ids in lines of their own, as it would break them by default, confuse some programs.
_POLICY = SMTP.clone(max_line_length=600)
_STYLE = "font-family:sans-serif;line-height:1.4"
_AGAIN = re.compile(r"^(?:(?:re|aw|sv|antw|rif|odp)\s*:\s*)+", re.IGNORECASE)


def pieces(markdown: str) -> tuple[Piece, ...]:
    """The one mail that a text is; none where there is nothing to read."""
    words = plain(read(markdown).spans).strip()
    if not words:
        return ()
    page = f'<html><body style="{_STYLE}">\n{_PARSER.render(markdown)}</body></html>\n'
    return (Piece(text=page, plain=words),)


def mail(ours: str, address: Address, thread: Thread, piece: Piece) -> EmailMessage:
    """Raises Gone for what can never be sent."""
    made = EmailMessage(policy=_POLICY)
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


def _subject(thread: Thread, words: str, media: Media | None) -> str:
    if thread.references:
        return f"Re: {_AGAIN.sub('', harmless(thread.subject)).strip()}".strip()
    first = next((line.strip() for line in harmless(words).splitlines() if line.strip()), "")
    first = first or (_name(media) if media else "") or "A message"
    return first if len(first) <= SUBJECT else f"{first[: SUBJECT - 1].rstrip()}…"


def _attach(made: EmailMessage, media: Media) -> None:
    path = Path(media.path)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise Gone(f"No mail takes a file of {size >> 20} MB ({_name(media)}).")
        data = path.read_bytes()
    except OSError as error:
        raise Gone(f"The file {media.path} cannot be read: {error.strerror}.") from error
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    major, _, minor = kind.partition("/")
    made.add_attachment(data, maintype=major, subtype=minor, filename=_name(media))


def _name(media: Media) -> str:
    return harmless(media.name) or Path(media.path).name
