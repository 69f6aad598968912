"""A mail as an `Arrival`: who wrote what in which thread, and is it for us at all. It fetches nothing."""

import email
import email.policy
import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from email.errors import MessageError
from email.message import EmailMessage
from pathlib import Path

from msgspec import Struct, structs

from alipes.kernel.messages import SEEN_BY_MODELS, Image
from alipes.kernel.platform import Arrival, Filed
from alipes.kernel.turns import Address
from alipes.platforms.email import reply_text
from alipes.platforms.email.threads import IDS, OURS, Thread, name
from alipes.platforms.files import kind_of, save

_COMMENT = re.compile(r"\((?:[^()\\]|\\.)*\)")
_METHOD = re.compile(r"^([a-z0-9-]+)(?:/\d+)?\s*=\s*([a-z]+)\b(.*)$", re.IGNORECASE | re.DOTALL)
_PROPERTY = re.compile(r"\b([a-z]+\.[a-z0-9-]+)\s*=\s*(\"[^\"]*\"|[^\s;]+)", re.IGNORECASE)
_BY = re.compile(r"\bby\s+([\w.-]+)", re.IGNORECASE)


class Checked(Struct, frozen=True):
    """One check and its outcome."""

    method: str
    result: str
    about: dict[str, str]


def vouched(headers: Sequence[tuple[str, str]], sender: str, server: str = "") -> bool:
    """Does the receiving server vouch for `sender`? `headers`: all of them, in order; `server`: its name."""
    found = _results(headers, server)
    if found is None:
        return False
    address, domain = sender.lower(), sender.lower().rpartition("@")[2]
    if any(each.method == "dmarc" and each.result == "fail" for each in found):
        return False
    return any(each.result == "pass" and _about(each, address, domain) for each in found)


def _about(checked: Checked, address: str, domain: str) -> bool:
    """Is it this sender that passed, and not somebody else in the same mail?"""
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
    """A domain that vouches does so for its own, and for what lies below it."""
    its = name.rpartition("@")[2].strip(".")
    return "." in its and (domain == its or domain.endswith(f".{its}"))


def _results(headers: Sequence[tuple[str, str]], server: str) -> list[Checked] | None:
    """What the first trusted header tells; None: there is none."""
    for at, (name, value) in enumerate(headers):  # noqa: F402
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
    """Who passed the mail on above this place, and next below it: some tell before they sign for it."""
    signed = [(place, value) for place, (name, value) in enumerate(headers) if name.lower() == "received"]
    above, below = [v for p, v in signed if p < at], [v for p, v in signed if p > at]
    found = [_BY.search(_COMMENT.sub(" ", value)) for value in (*above, *below[:1])]
    return {by[1].lower() for by in found if by}


def _checked(methods: Sequence[str]) -> list[Checked]:
    found = []
    for method in methods:
        if match := _METHOD.match(method.strip()):
            pairs = _PROPERTY.findall(match[3])
            about = {name.lower(): value.strip('"').lower() for name, value in pairs}
            found.append(Checked(match[1].lower(), match[2].lower(), about))
    return found


NAME = "email"
_TROUBLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    RecursionError,
    MessageError,
)
"""What the library that reads mail raises for some that no program ever wrote on purpose."""
PICTURE = 5_000_000
ORNAMENT = 16_000
LONGEST = 500_000
"""Letters of a text that are read."""
PAGE = 200_000
"""The same of HTML, which takes the longer the less sense it makes."""
LINE, LINES = 2000, 20_000
"""Letters of a header that is read."""
_LONG = ("references",)
_READ = ("from", "subject", "message-id", "in-reply-to", "references", "return-path", "auto-submitted",
         "precedence", "content-type", "content-disposition", "content-transfer-encoding", "list-id",
         "list-post", "list-unsubscribe", "feedback-id")  # fmt: skip
_ROBOTS = re.compile(
    r"^(?:mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?)(?:[+=-].*)?@", re.IGNORECASE
)
_SEALS = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
_ODD = re.compile(r"[^\w.+@ -]+")


class Unreadable(Exception):
    """Nobody can say what is in this mail."""


class Letter(Struct, frozen=True):
    """A mail, read."""

    arrival: Arrival
    """Without what was attached."""
    thread: Thread
    """Where its conversation stands with it."""
    raw: EmailMessage


def glance(head: bytes, ours: str, *, authenticated: bool, server: str) -> tuple[str, Letter | None]:
    """What the head of a mail tells; or why it is left out. Raises Unreadable."""
    try:
        message = _parsed(head)
        if why := _not_for_us(message, ours):
            return why, None
        told = _letter(head, message, ())
        headers = [(name, str(value)) for name, value in message.raw_items()]
    except _TROUBLE as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error
    if authenticated and not vouched(headers, told.arrival.sender, server):
        return f"the receiving server does not vouch that it is from {told.arrival.sender}", None
    return "", told


def opened(raw: bytes, folder: Path | None, commands: Collection[str]) -> Letter:
    """The whole mail, with what was attached saved in `folder`; None: nothing is. Raises Unreadable."""
    try:
        told = _letter(raw, _parsed(raw), commands)
        return structs.replace(told, arrival=_with_files(told, folder)) if folder else told
    except _TROUBLE as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def _parsed(raw: bytes) -> EmailMessage:
    """The library takes a minute for some heads of 60 kB, which anybody can send: so none has such lines."""
    head = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[0]
    for line in re.sub(rb"\r?\n[ \t]+", b" ", head).split(b"\n"):
        called = line.partition(b":")[0].strip().lower().decode("ascii", "replace")
        if len(line) > (LINES if called in _LONG else LINE) and called in _READ:
            raise Unreadable(f"its {called} has {len(line):,} letters")
    return email.message_from_bytes(raw, policy=email.policy.default)


def _sender(message: EmailMessage) -> tuple[str, str]:
    """Address, in small letters, and name of the one person that it is from; empty if it is not one."""
    froms = message.get_all("From", [])
    found = list(froms[0].addresses) if len(froms) == 1 else []
    if len(found) != 1 or not re.fullmatch(r"[^@\s<>,;:\"()]+@[^@\s<>,;:\"()]+", found[0].addr_spec):
        return "", ""
    return found[0].addr_spec.lower(), found[0].display_name.strip()


def _not_for_us(message: EmailMessage, ours: str) -> str:
    """Why a mail is not to be answered, by anybody who must not answer machines; empty: it is."""
    person, _ = _sender(message)
    if not person:
        return "it is not from one person"
    if person == ours.lower() or OURS.fullmatch(str(message.get("Message-ID", "")).strip()):
        return "it is our own"
    if str(message.get("Auto-Submitted", "no")).split(";")[0].strip().lower() != "no":
        return "a program sent it"
    if str(message.get("Precedence", "")).strip().lower() in ("bulk", "junk", "list"):
        return "it was sent to many"
    if any(
        message.get(each) is not None for each in ("List-Id", "List-Post", "List-Unsubscribe", "Feedback-ID")
    ):
        return "it comes from a list"
    if (
        str(message.get("Return-Path", "x")).strip() == "<>"
        or message.get_content_type() == "multipart/report"
    ):
        return "it tells what became of another mail"
    return "nobody reads what is sent there" if _ROBOTS.match(person) else ""


def _letter(raw: bytes, message: EmailMessage, commands: Collection[str]) -> Letter:
    """What it says. `message`: `raw`, parsed."""
    person, called = _sender(message)
    own = next(iter(IDS.findall(str(message.get("Message-ID", "")))), "") or f"<{_digest(raw)}@unnamed>"
    references = _references(message)
    thread = name(own, references)
    words = reply_text.trimmed(_text(message))
    text, quoted = words.own, words.quoted
    if references and OURS.fullmatch(references[-1]):
        # What they quote of us is known; where they wrote between it, it says what their words are about.
        text, quoted = words.woven or words.own, ""
    subject = " ".join(str(message.get("Subject", "")).split())
    arrival = Arrival(
        id=f"{person} {own}",
        address=Address(NAME, person, thread=thread),
        sender=person,
        name=called or person,
        text=_said(text, "" if references else subject, commands),
        message=own,
        quoted=quoted,
    )
    return Letter(arrival, Thread(subject, (*references, own)), message)


def _with_files(told: Letter, folder: Path) -> Arrival:
    """The arrival with what was attached: pictures for the model, files for tools, saved in `folder`."""
    images: list[Image] = []
    files: list[Filed] = []
    notes: list[str] = []
    for number, part in enumerate(_attached(told.raw)):
        kind, data = part.get_content_type(), _data(part)
        given = _filename(part, number)
        if kind in SEEN_BY_MODELS and len(data) <= PICTURE:
            images.append(Image(kind, data))
            continue
        try:
            path = save(folder / f"{_digest(told.arrival.id.encode())[:12]}-{number}-{given}", data)
        except OSError as error:
            notes.append(f"[{given}: could not be saved, {error.strerror}]")
            continue
        files.append(Filed(path, kind_of(kind), given, kind, len(data)))
    text = "\n".join(filter(None, (told.arrival.text, *notes)))
    return structs.replace(told.arrival, images=tuple(images), files=tuple(files), text=text)


def _said(text: str, subject: str, commands: Collection[str]) -> str:
    """A command is the first paragraph. The subject of what begins a conversation may say the most."""
    named = re.match(r"/([a-z_-]+)(?=\s|$)", text)
    if named and named[1] in commands:
        return text.split("\n\n")[0]
    return f"Subject: {subject}\n\n{text}" if subject and text else subject or text


def _references(message: EmailMessage) -> tuple[str, ...]:
    """The oldest first."""
    told = IDS.findall(str(message.get("References", "")))
    answered = IDS.findall(str(message.get("In-Reply-To", "")))
    return tuple(dict.fromkeys((*told, *answered[:1])))


def _text(message: EmailMessage) -> str:
    """The words: as plain text where there is some, else out of the HTML."""
    plain = [_decoded(part) for part in _bodies(message) if part.get_content_type() == "text/plain"]
    if any(each.strip() for each in plain):
        return "\n".join(plain)[:LONGEST]
    pages = [_decoded(part) for part in _bodies(message) if part.get_content_type() == "text/html"]
    return "\n\n".join(reply_text.from_html(each[:PAGE]) for each in pages)[:LONGEST]


def _bodies(message: EmailMessage) -> Iterator[EmailMessage]:
    return filter(_is_body, _leaves(message))


def _is_body(part: EmailMessage) -> bool:
    attached = part.get_content_disposition() == "attachment" or bool(part.get_filename())
    return part.get_content_type() in ("text/plain", "text/html") and not attached


def _attached(message: EmailMessage) -> Iterator[EmailMessage]:
    """What is neither words nor a seal nor an ornament."""
    for each in _leaves(message):
        if not _is_body(each) and each.get_content_type() not in _SEALS and not _is_ornament(each):
            yield each


def _is_ornament(part: EmailMessage) -> bool:
    """A small picture that belongs into the page, such as the sign of a company."""
    within = part.get("Content-ID") is not None and part.get_content_disposition() != "attachment"
    return within and part.get_content_maintype() == "image" and len(_data(part)) < ORNAMENT


def _leaves(message: EmailMessage) -> Iterator[EmailMessage]:
    """The parts that hold something, in order. A mail inside the mail is one, whatever is in it."""
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
    """In the charset that it names, if it is told the truth."""
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
