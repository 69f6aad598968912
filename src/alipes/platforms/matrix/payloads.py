"""Matrix HTML and event contents for outgoing messages, and Matrix errors as ours."""

import hashlib
import json
import re
from itertools import groupby
from typing import Any, TypeAlias

import nio  # type: ignore[import-untyped]
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.connection import describe_error, no_answer_error
from alipes.platforms.markup import (
    Span,
    Spans,
    escape_attribute,
    escape_html,
    format_parts,
    inline_marks,
    join_text,
    plain_text,
    write_html,
)
from alipes.platforms.matrix.client import MatrixError
from alipes.runtime.http.lazy_httpx import errors, httpx2

LONGEST = 8000
"""Characters. An event holds 64 KiB with the text twice, perhaps encrypted."""
MAX_JSON_BYTES = 30_000
"""Bytes of JSON for both forms of the text."""
_TAGS = {"bold": "strong", "italic": "em", "strike": "del", "code": "code"}
_MARKUP = re.compile(r"<(?!br>)")


def format_markdown(markdown: str) -> tuple[MessagePart, ...]:

    def fits(spans: Spans) -> bool:
        words = plain_text(spans)
        return len(words) <= LONGEST and len(json.dumps((words, to_html(spans)))) <= MAX_JSON_BYTES

    return format_parts(markdown, LONGEST, fits, to_html)


def has_markup(text: str) -> bool:
    """True if the HTML says more than the plain text."""
    return _MARKUP.search(text) is not None


def to_html(spans: Spans) -> str:
    """HTML for Matrix clients. Blocks have lines of their own, so blank lines around them are dropped."""
    out = ""
    groups = [(block, list(group)) for block, group in groupby(spans, lambda span: span.find("quote", "pre"))]
    for number, (block, group) in enumerate(groups):
        if block is None:
            if number:
                group[0] = Span(group[0].text.lstrip("\n"), group[0].marks)
            if number + 1 < len(groups):
                group[-1] = Span(group[-1].text.rstrip("\n"), group[-1].marks)
            out += _lines(tuple(span for span in group if span.text))
        elif block.kind == "pre":
            language = f' class="language-{escape_attribute(block.value)}"' if block.value else ""
            out += f"<pre><code{language}>{escape_html(join_text(group))}\n</code></pre>"
        else:
            inside = tuple(span.without(block) for span in group)
            out += f"<blockquote>{to_html(inside)}</blockquote>"
    return out


def _lines(spans: Spans) -> str:
    """Lines of text. Spaces at the start of a line stay visible."""
    text = write_html(spans, _TAGS, inline_marks).replace("\n", "<br>")
    return re.sub(r"(^|<br>)( +)", lambda match: match[1] + "\u00a0" * len(match[2]), text)


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


def text_content(part: MessagePart) -> Content:
    """Content of a text message. It has no mentions: a model must not notify people."""
    content: Content = {"msgtype": "m.text", "body": part.plain or part.text, "m.mentions": {}}
    if part.text and part.plain and has_markup(part.text):
        content |= {"format": "org.matrix.custom.html", "formatted_body": part.text}
    return content


def message_content(address: Address, part: MessagePart, content: Content, answered: str = "") -> Content:
    """Content of a new message; `answered`: author of the message it replies to, who is notified."""
    if part.buttons:
        content = content | {BUTTONS: button_labels(part.buttons)}
    if part.reply_to and answered:
        content = content | {"m.mentions": {"user_ids": [answered]}}
    related: Content = {}
    if address.thread:
        related = {"rel_type": "m.thread", "event_id": address.thread, "is_falling_back": not part.reply_to}
    if part.reply_to or address.thread:
        related["m.in_reply_to"] = {"event_id": part.reply_to or address.thread}
    return content | {"m.relates_to": related} if related else content


def button_labels(buttons: tuple[Button, ...]) -> dict[str, str]:
    """Data of each reaction by its label."""
    return {(button.label or button.data)[:LABEL]: button.data for button in buttons}


def edit_content(message: str, part: MessagePart) -> Content:
    content = text_content(part)
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
    sent, late = not isinstance(failure, errors.NOT_SENT), isinstance(failure, httpx2.TimeoutException)
    return no_answer_error("the homeserver", doing, describe_error(failure), sent=sent, late=late)
