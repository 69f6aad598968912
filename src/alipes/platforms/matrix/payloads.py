"""Matrix HTML and event contents for outgoing messages, and Matrix errors as ours."""

import hashlib
import json
import re
from itertools import groupby
from typing import Any, TypeAlias

import httpx2
import nio  # type: ignore[import-untyped]
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.connection import describe_error, no_answer_error
from alipes.platforms.markup.markdown import parse_markdown
from alipes.platforms.markup.spans import Span, Spans, TextMark, plain_text, split_text
from alipes.platforms.matrix.client import MatrixError
from alipes.runtime.http.clients import NOT_SENT

LONGEST = 8000
"""Characters. An event holds 64 KiB with the text twice, perhaps encrypted."""
MAX_JSON_BYTES = 30_000
"""Bytes of JSON for both forms of the text."""
_TAGS = {"bold": "strong", "italic": "em", "strike": "del", "code": "code", "quote": "blockquote"}
_BLOCKS = ("quote", "pre")
_MARKUP = re.compile(r"<(?!br>)")


def format_markdown(markdown: str, longest: int = LONGEST, room: int = MAX_JSON_BYTES) -> tuple[MessagePart, ...]:
    """Split a text into messages of at most `longest` characters."""

    def fits(spans: Spans) -> bool:
        words = plain_text(spans)
        return len(words) <= longest and len(json.dumps((words, to_html(spans)))) <= room

    parts = split_text(parse_markdown(markdown), fits, longest)
    return tuple(MessagePart(text=to_html(part), plain=plain_text(part)) for part in parts)


def has_markup(text: str) -> bool:
    """True if the HTML says more than the plain text."""
    return _MARKUP.search(text) is not None


def to_html(spans: Spans) -> str:
    """HTML for Matrix clients. Blocks have lines of their own, so blank lines around them are dropped."""
    out: list[str] = []
    after = False
    groups = [(block, tuple(group)) for block, group in groupby(spans, _block)]
    for number, (block, group) in enumerate(groups):
        text = "".join(span.text for span in group)
        if block is None:
            before = number + 1 < len(groups)
            group = _without_edges(group, left=after, right=before)
            out.append(_lines(group))
        elif block.kind == "pre":
            language = f' class="language-{_attribute(block.value)}"' if block.value else ""
            out.append(f"<pre><code{language}>{escape(text)}\n</code></pre>")
        else:
            inside = tuple(Span(span.text, tuple(m for m in span.marks if m != block)) for span in group)
            out.append(f"<blockquote>{to_html(inside)}</blockquote>")
        after = block is not None
    return "".join(out)


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(span: Span) -> TextMark | None:
    return next((mark for mark in span.marks if mark.kind in _BLOCKS), None)


def _without_edges(spans: Spans, *, left: bool, right: bool) -> Spans:
    out = list(spans)
    if left and out:
        out[0] = Span(out[0].text.lstrip("\n"), out[0].marks)
    if right and out:
        out[-1] = Span(out[-1].text.rstrip("\n"), out[-1].marks)
    return tuple(span for span in out if span.text)


def _lines(spans: Spans) -> str:
    """Write spans as balanced HTML: each closes what the next does not need."""
    out: list[str] = []
    opened: tuple[TextMark, ...] = ()
    for span in spans:
        marks = _shown(span)
        kept = sum(1 for _ in _common(opened, marks))
        out += [_close(mark) for mark in reversed(opened[kept:])]
        out += [_open(mark) for mark in marks[kept:]]
        out.append(escape(span.text).replace("\n", "<br>"))
        opened = marks
    out += [_close(mark) for mark in reversed(opened)]
    return _indented("".join(out))


def _indented(text: str) -> str:
    """Keep spaces at the start of a line visible."""
    return re.sub(r"(^|<br>)( +)", lambda match: match[1] + "\u00a0" * len(match[2]), text)


def _shown(span: Span) -> tuple[TextMark, ...]:
    """Marks of a span: each kind once, code innermost."""
    kinds = {mark.kind: mark for mark in reversed(span.marks)}
    return tuple(sorted(reversed(kinds.values()), key=lambda mark: mark.kind == "code"))


def _common(one: tuple[TextMark, ...], other: tuple[TextMark, ...]) -> list[TextMark]:
    found: list[TextMark] = []
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        found.append(mine)
    return found


def _open(mark: TextMark) -> str:
    return f'<a href="{_attribute(mark.value)}">' if mark.kind == "link" else f"<{_TAGS[mark.kind]}>"


def _close(mark: TextMark) -> str:
    return "</a>" if mark.kind == "link" else f"</{_TAGS[mark.kind]}>"


def _attribute(text: str) -> str:
    return escape(text).replace('"', "&quot;")


Content: TypeAlias = dict[str, Any]

BUTTONS = "alipes.buttons"
"""Key in the content of a question: the meaning of each reaction."""
MESSAGE, REACTION = "m.room.message", "m.reaction"
LABEL = 60
FALLBACK = 200
"""Characters of an edit that clients without edit support show."""
_GONE = ("M_FORBIDDEN", "M_NOT_FOUND", "M_TOO_LARGE", "M_BAD_JSON", "M_NOT_JSON", "M_INVALID_PARAM")


def split_server(address: Address) -> Address:
    """Move the server from the thread to the chat: `!room:server` typed as a target looks like a thread."""
    server, _, thread = address.thread.partition(":$")
    if not server or server.startswith("$"):
        return address
    return replace(address, chat=f"{address.chat}:{server}", thread=f"${thread}" if thread else "")


def text_content(message_part: MessagePart) -> Content:
    """Content of a text message. It has no mentions: a model must not notify people."""
    content: Content = {"msgtype": "m.text", "body": message_part.plain or message_part.text, "m.mentions": {}}
    if message_part.text and message_part.plain and has_markup(message_part.text):
        content |= {"format": "org.matrix.custom.html", "formatted_body": message_part.text}
    return content


def message_content(address: Address, message_part: MessagePart, content: Content, answered: str = "") -> Content:
    """Content of a new message; `answered`: author of the message it replies to, who is notified."""
    if message_part.buttons:
        content = content | {BUTTONS: button_labels(message_part.buttons)}
    if message_part.reply_to and answered:
        content = content | {"m.mentions": {"user_ids": [answered]}}
    related: Content = {}
    if address.thread:
        related = {"rel_type": "m.thread", "event_id": address.thread, "is_falling_back": not message_part.reply_to}
    if message_part.reply_to or address.thread:
        related["m.in_reply_to"] = {"event_id": message_part.reply_to or address.thread}
    return content | {"m.relates_to": related} if related else content


def button_labels(buttons: tuple[Button, ...]) -> dict[str, str]:
    """Data of each reaction by its label."""
    return {(button.label or button.data)[:LABEL]: button.data for button in buttons}


def edit_content(message: str, message_part: MessagePart) -> Content:
    """Content of an edit of `message`."""
    content = text_content(message_part)
    body = content["body"]
    short = body if len(body) <= FALLBACK else f"{body[:FALLBACK]}…"
    return {
        "msgtype": "m.text",
        "body": f"* {short}",
        "m.mentions": {},
        "m.new_content": content,
        "m.relates_to": {"rel_type": "m.replace", "event_id": message},
    }


def reaction_content(message: str, key: str) -> Content:
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": message, "key": key}}


def transaction_id(name: str) -> str:
    """The same for the same name: the homeserver uses it to drop duplicates."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def translate_error(failure: Exception, doing: str) -> DeliveryError:
    """Translate a failed call."""
    match failure:
        case MatrixError(wait=float(wait)):
            return DeliveryError(f"Matrix asks to wait {wait:.1f} s before {doing}.", retry_after=wait)
        case MatrixError(code="M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN"):
            return DeliveryError(f"The homeserver does not accept our login ({doing}).")
        case MatrixError(code=code) if code in _GONE or (code and 400 <= failure.status < 500):
            return Undeliverable(f"The homeserver rejected it ({doing}: {failure.why}).")
        case MatrixError():
            return DeliveryError(
                f"The homeserver failed with {failure.status or failure.why} while {doing}.", uncertain=True
            )
        case nio.EncryptionError() | nio.LocalProtocolError():
            return DeliveryError(f"Encryption failed ({doing}: {failure}).")
    sent, late = not isinstance(failure, NOT_SENT), isinstance(failure, httpx2.TimeoutException)
    return no_answer_error("the homeserver", doing, describe_error(failure), sent=sent, late=late)
