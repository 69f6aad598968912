"""Converts mails to incoming messages: authentication, sender, thread, text and attachments."""

import email
import email.policy
import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from email.errors import MessageError
from email.message import EmailMessage
from pathlib import Path

from msgspec import Struct, structs

from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.kernel.turns import Address
from alipes.platforms.email import reply_text
from alipes.platforms.email.threads import IDS, OWN_ID, MailThread, thread_name
from alipes.platforms.files import Downloads, media_kind

_COMMENT = re.compile(r"\((?:[^()\\]|\\.)*\)")
_METHOD = re.compile(r"^([a-z0-9-]+)(?:/\d+)?\s*=\s*([a-z]+)\b(.*)$", re.IGNORECASE | re.DOTALL)
_PROPERTY = re.compile(r"\b([a-z]+\.[a-z0-9-]+)\s*=\s*(\"[^\"]*\"|[^\s;]+)", re.IGNORECASE)
_BY = re.compile(r"\bby\s+([\w.-]+)", re.IGNORECASE)


class AuthResult(Struct, frozen=True):
    method: str
    result: str
    about: dict[str, str]


def is_authenticated(headers: Sequence[tuple[str, str]], sender: str, server: str = "") -> bool:
    """True if the receiving server authenticated `sender`. `headers`: all, in order; `server`: its name."""
    found = _results(headers, server)
    if found is None:
        return False
    address, domain = sender.lower(), sender.lower().rpartition("@")[2]
    if any(each.method == "dmarc" and each.result == "fail" for each in found):
        return False
    return any(each.result == "pass" and _about(each, address, domain) for each in found)


def _about(checked: AuthResult, address: str, domain: str) -> bool:
    """True if the check is about this sender and not another one in the same mail."""
    about = checked.about
    match checked.method:
        case "dmarc":
            return _covers(about.get("header.from", ""), domain)
        case "dkim":
            return _covers(about.get("header.d", "") or about.get("header.i", ""), domain)
        case "spf":
            return _covers(about.get("smtp.mailfrom", ""), domain)
        case "auth":
            return about.get("smtp.auth", "") == address
    return False


def _covers(name: str, domain: str) -> bool:
    """A domain authenticates itself and its subdomains."""
    its = name.rpartition("@")[2].strip(".")
    return "." in its and (domain == its or domain.endswith(f".{its}"))


def _results(headers: Sequence[tuple[str, str]], server: str) -> list[AuthResult] | None:
    """Checks of the first trusted header; None if there is none."""
    for at, (name, value) in enumerate(headers):
        if name.lower() != "authentication-results":
            continue
        id, *methods = _COMMENT.sub(" ", value).split(";")
        teller = id.split()[0].lower() if id.split() else ""
        if server:
            if teller == server.lower():
                return _checked(methods)
        else:
            return _checked(methods) if teller in _receivers(headers, at) else None
    return None


def _receivers(headers: Sequence[tuple[str, str]], at: int) -> set[str]:
    """Servers that received the mail above this header, and the next one below: some add it before Received."""
    signed = [(place, value) for place, (name, value) in enumerate(headers) if name.lower() == "received"]
    above, below = [v for p, v in signed if p < at], [v for p, v in signed if p > at]
    found = [_BY.search(_COMMENT.sub(" ", value)) for value in (*above, *below[:1])]
    return {by[1].lower() for by in found if by}


def _checked(methods: Sequence[str]) -> list[AuthResult]:
    found = []
    for method in methods:
        if match := _METHOD.match(method.strip()):
            pairs = _PROPERTY.findall(match[3])
            about = {name.lower(): value.strip('"').lower() for name, value in pairs}
            found.append(AuthResult(match[1].lower(), match[2].lower(), about))
    return found


NAME = "email"
_TROUBLE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError, MessageError)
"""What the mail parser raises for some malformed mails."""
MAX_IMAGE_BYTES = 5_000_000
MAX_DECORATION_BYTES = 16_000
MAX_TEXT_CHARS = 500_000
"""Characters of a text that are read."""
MAX_HTML_CHARS = 200_000
"""The same for HTML, which is slow to parse."""
MAX_HEADER_CHARS, MAX_LONG_HEADER_CHARS = 2000, 20_000
"""Characters of a header that are read."""
_LONG = ("references",)
_READ = ("from", "subject", "message-id", "in-reply-to", "references", "return-path", "auto-submitted",
         "precedence", "content-type", "content-disposition", "content-transfer-encoding", "list-id",
         "list-post", "list-unsubscribe", "feedback-id")  # fmt: skip
_ROBOTS = re.compile(r"^(?:mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?)(?:[+=-].*)?@", re.IGNORECASE)
_SEALS = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
_ODD = re.compile(r"[^\w.+@ -]+")


class UnreadableMail(Exception):
    """The mail cannot be parsed."""


class ParsedMail(Struct, frozen=True):
    incoming: IncomingMessage
    """Without attachments."""
    thread: MailThread
    """State of its thread, including this mail."""
    raw: EmailMessage


def parse_head(head: bytes, ours: str, *, authenticated: bool, server: str) -> tuple[str, ParsedMail | None]:
    """Parse the head of a mail; or say why it is skipped. Raises `UnreadableMail`."""
    try:
        message = _parsed(head)
        if why := _not_for_us(message, ours):
            return why, None
        parsed = _letter(head, message, ())
        headers = [(name, str(value)) for name, value in message.raw_items()]
    except _TROUBLE as error:
        raise UnreadableMail(f"{type(error).__name__}: {error}") from error
    if authenticated and not is_authenticated(headers, parsed.incoming.sender, server):
        return f"the receiving server does not confirm that it is from {parsed.incoming.sender}", None
    return "", parsed


def parse_mail(raw: bytes, folder: Path | None, commands: Collection[str]) -> ParsedMail:
    """Parse a whole mail and save its attachments in `folder`; None: drop them. Raises `UnreadableMail`."""
    try:
        parsed = _letter(raw, _parsed(raw), commands)
        return structs.replace(parsed, incoming=_with_files(parsed, folder)) if folder else parsed
    except _TROUBLE as error:
        raise UnreadableMail(f"{type(error).__name__}: {error}") from error


def _parsed(raw: bytes) -> EmailMessage:
    """Parse a mail. Very long header lines are rejected, since the parser takes a minute for some of them."""
    head = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[0]
    for line in re.sub(rb"\r?\n[ \t]+", b" ", head).split(b"\n"):
        called = line.partition(b":")[0].strip().lower().decode("ascii", "replace")
        if len(line) > (MAX_LONG_HEADER_CHARS if called in _LONG else MAX_HEADER_CHARS) and called in _READ:
            raise UnreadableMail(f"its {called} header has {len(line):,} characters")
    return email.message_from_bytes(raw, policy=email.policy.default)


def _sender(message: EmailMessage) -> tuple[str, str]:
    """Lower-case address and name of the sender; empty if there is not exactly one."""
    froms = message.get_all("From", [])
    found = list(froms[0].addresses) if len(froms) == 1 else []
    if len(found) != 1 or not re.fullmatch(r"[^@\s<>,;:\"()]+@[^@\s<>,;:\"()]+", found[0].addr_spec):
        return "", ""
    return found[0].addr_spec.lower(), found[0].display_name.strip()


def _not_for_us(message: EmailMessage, ours: str) -> str:
    """Why a mail must not be answered; empty if it may."""
    person, _ = _sender(message)
    if not person:
        return "it has no single sender"
    if person == ours.lower() or OWN_ID.fullmatch(str(message.get("Message-ID", "")).strip()):
        return "it is our own"
    if str(message.get("Auto-Submitted", "no")).split(";")[0].strip().lower() != "no":
        return "it was sent automatically"
    if str(message.get("Precedence", "")).strip().lower() in ("bulk", "junk", "list"):
        return "it is bulk mail"
    if any(message.get(each) is not None for each in ("List-Id", "List-Post", "List-Unsubscribe", "Feedback-ID")):
        return "it is from a mailing list"
    if str(message.get("Return-Path", "x")).strip() == "<>" or message.get_content_type() == "multipart/report":
        return "it is a delivery report"
    return "it is from a no-reply address" if _ROBOTS.match(person) else ""


def _letter(raw: bytes, message: EmailMessage, commands: Collection[str]) -> ParsedMail:
    """Build the result from `message`, which is `raw` parsed."""
    person, called = _sender(message)
    own = next(iter(IDS.findall(str(message.get("Message-ID", "")))), "") or f"<{_digest(raw)}@unnamed>"
    references = _references(message)
    thread = thread_name(own, references)
    words = reply_text.split_reply(_text(message))
    text, quoted = words.own, words.quoted
    if references and OWN_ID.fullmatch(references[-1]):
        # our own quoted text is known; kept only where they wrote between its lines
        text, quoted = words.woven or words.own, ""
    subject = " ".join(str(message.get("Subject", "")).split())
    incoming = IncomingMessage(
        id=f"{person} {own}",
        address=Address(NAME, person, thread=thread),
        sender=person,
        name=called or person,
        text=_said(text, "" if references else subject, commands),
        message=own,
        quoted=quoted,
    )
    return ParsedMail(incoming, MailThread(subject, (*references, own)), message)


def _with_files(parsed: ParsedMail, folder: Path) -> IncomingMessage:
    """Add the attachments: images for the model, files for tools, saved in `folder`."""
    downloads = Downloads(folder, sys.maxsize, MAX_IMAGE_BYTES)
    prefix = _digest(parsed.incoming.id.encode())[:12]
    for number, part in enumerate(_attached(parsed.raw)):
        kind, name = part.get_content_type(), _filename(part, number)
        try:
            file = ReceivedFile(f"{prefix}-{number}-{name}", media_kind(kind), name, kind)
            downloads.save_bytes(file, _data(part))
        except OSError as error:
            downloads.notes.append(f"[{name}: could not be saved, {error.strerror}]")
    return downloads.attach_to(parsed.incoming)


def _said(text: str, subject: str, commands: Collection[str]) -> str:
    """A command is the first paragraph. For the first mail of a thread the subject is added."""
    named = re.match(r"/([a-z_-]+)(?=\s|$)", text)
    if named and named[1] in commands:
        return text.split("\n\n")[0]
    return f"Subject: {subject}\n\n{text}" if subject and text else subject or text


def _references(message: EmailMessage) -> tuple[str, ...]:
    """Oldest first."""
    parsed = IDS.findall(str(message.get("References", "")))
    answered = IDS.findall(str(message.get("In-Reply-To", "")))
    return tuple(dict.fromkeys((*parsed, *answered[:1])))


def _text(message: EmailMessage) -> str:
    """The text: plain text if there is any, otherwise from the HTML."""
    plain = [_decoded(part) for part in _bodies(message) if part.get_content_type() == "text/plain"]
    if any(each.strip() for each in plain):
        return "\n".join(plain)[:MAX_TEXT_CHARS]
    pages = [_decoded(part) for part in _bodies(message) if part.get_content_type() == "text/html"]
    return "\n\n".join(reply_text.html_to_text(each[:MAX_HTML_CHARS]) for each in pages)[:MAX_TEXT_CHARS]


def _bodies(message: EmailMessage) -> Iterator[EmailMessage]:
    return filter(_is_body, _leaves(message))


def _is_body(part: EmailMessage) -> bool:
    attached = part.get_content_disposition() == "attachment" or bool(part.get_filename())
    return part.get_content_type() in ("text/plain", "text/html") and not attached


def _attached(message: EmailMessage) -> Iterator[EmailMessage]:
    """Attachments except signatures and decoration."""
    for each in _leaves(message):
        if not _is_body(each) and each.get_content_type() not in _SEALS and not _is_ornament(each):
            yield each


def _is_ornament(part: EmailMessage) -> bool:
    """True for a small inline picture, such as a company logo."""
    within = part.get("Content-ID") is not None and part.get_content_disposition() != "attachment"
    return within and part.get_content_maintype() == "image" and len(_data(part)) < MAX_DECORATION_BYTES


def _leaves(message: EmailMessage) -> Iterator[EmailMessage]:
    """The parts with content, in order. An attached mail is one part."""
    waiting = [message]
    while waiting:
        part = waiting.pop(0)
        if part.is_multipart() and part.get_content_type() != "message/rfc822":
            waiting = [*(each for each in part.iter_parts() if isinstance(each, EmailMessage)), *waiting]
        else:
            yield part


def _data(part: EmailMessage) -> bytes:
    if part.is_multipart():
        return b"".join(each.as_bytes() for each in part.iter_parts())
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _decoded(part: EmailMessage) -> str:
    """Decode with the declared charset if that works."""
    data = _data(part)
    for charset in (part.get_content_charset() or "utf-8", "utf-8"):
        try:
            return data.decode(charset)
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("cp1252", "replace")


def _filename(part: EmailMessage, number: int) -> str:
    given = (part.get_filename() or "").replace("\\", "/").rpartition("/")[2]
    clean = _ODD.sub("_", given).strip(" .")[-80:]
    suffix = {"message/rfc822": ".eml", "text/calendar": ".ics"}.get(part.get_content_type(), "")
    return clean or f"attachment-{number + 1}{suffix}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
