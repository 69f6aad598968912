"""What goes out to Matrix: a piece as an event's content, and refusals in our words. It sends nothing."""

import hashlib
import json
import re
from itertools import groupby
from typing import Any, TypeAlias

import httpx2
import nio  # type: ignore[import-untyped]
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.outbox import Button
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.platforms.connection import brief, unanswered
from alipes.platforms.markup.markdown import read
from alipes.platforms.markup.spans import Mark, Span, Spans, cut, plain
from alipes.platforms.matrix.client import Refusal
from alipes.runtime.http.clients import NOT_SENT

LONGEST = 8000
"""Characters. An event holds 64 KiB, its words twice and perhaps encrypted; people scroll."""
ROOM = 30_000
"""Bytes of JSON for both forms of the words."""
_TAGS = {"bold": "strong", "italic": "em", "strike": "del", "code": "code", "quote": "blockquote"}
_BLOCKS = ("quote", "pre")
_MARKUP = re.compile(r"<(?!br>)")


def pieces(markdown: str, longest: int = LONGEST, room: int = ROOM) -> tuple[Piece, ...]:
    """A text as messages of at most `longest` characters."""

    def fits(spans: Spans) -> bool:
        words = plain(spans)
        return len(words) <= longest and len(json.dumps((words, html(spans)))) <= room

    parts = cut(read(markdown), fits, longest)
    return tuple(Piece(text=html(part), plain=plain(part)) for part in parts)


def marked(text: str) -> bool:
    """Whether there is more in it than the plain words say."""
    return _MARKUP.search(text) is not None


def html(spans: Spans) -> str:
    """What Matrix's clients show; blocks stand on lines of their own, so the blanks around them go."""
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
            out.append(f"<blockquote>{html(inside)}</blockquote>")
        after = block is not None
    return "".join(out)


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(span: Span) -> Mark | None:
    return next((mark for mark in span.marks if mark.kind in _BLOCKS), None)


def _without_edges(spans: Spans, *, left: bool, right: bool) -> Spans:
    out = list(spans)
    if left and out:
        out[0] = Span(out[0].text.lstrip("\n"), out[0].marks)
    if right and out:
        out[-1] = Span(out[-1].text.rstrip("\n"), out[-1].marks)
    return tuple(span for span in out if span.text)


def _lines(spans: Spans) -> str:
    """Balanced by construction: what is open at a span's end and not wanted by the next is closed."""
    out: list[str] = []
    opened: tuple[Mark, ...] = ()
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
    """Blanks at the beginning of a line would not be shown."""
    return re.sub(r"(^|<br>)( +)", lambda match: match[1] + "\u00a0" * len(match[2]), text)


def _shown(span: Span) -> tuple[Mark, ...]:
    """Each kind once, code innermost of all."""
    kinds = {mark.kind: mark for mark in reversed(span.marks)}
    return tuple(sorted(reversed(kinds.values()), key=lambda mark: mark.kind == "code"))


def _common(one: tuple[Mark, ...], other: tuple[Mark, ...]) -> list[Mark]:
    found: list[Mark] = []
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        found.append(mine)
    return found


def _open(mark: Mark) -> str:
    return f'<a href="{_attribute(mark.value)}">' if mark.kind == "link" else f"<{_TAGS[mark.kind]}>"


def _close(mark: Mark) -> str:
    return "</a>" if mark.kind == "link" else f"</{_TAGS[mark.kind]}>"


def _attribute(text: str) -> str:
    return escape(text).replace('"', "&quot;")


Content: TypeAlias = dict[str, Any]

BUTTONS = "alipes.buttons"
"""In the content of a question of ours: what each reaction stands for."""
MESSAGE, REACTION = "m.room.message", "m.reaction"
LABEL = 60
FALLBACK = 200
"""Letters of a change that a client shows which knows no changes."""
_GONE = ("M_FORBIDDEN", "M_NOT_FOUND", "M_TOO_LARGE", "M_BAD_JSON", "M_NOT_JSON", "M_INVALID_PARAM")


def place(address: Address) -> Address:
    """Where it is meant to go: `!room:server` is a room, though typed it looks like one with a thread."""
    server, _, thread = address.thread.partition(":$")
    if not server or server.startswith("$"):
        return address
    return replace(address, chat=f"{address.chat}:{server}", thread=f"${thread}" if thread else "")


def words(piece: Piece) -> Content:
    """The text of a message. Nobody is called by what a model writes: there are no mentions in it."""
    told: Content = {"msgtype": "m.text", "body": piece.plain or piece.text, "m.mentions": {}}
    if piece.text and piece.plain and marked(piece.text):
        told |= {"format": "org.matrix.custom.html", "formatted_body": piece.text}
    return told


def fresh(address: Address, piece: Piece, told: Content, answered: str = "") -> Content:
    """As a new message there; `answered`: who wrote what it answers, and is called by that."""
    if piece.buttons:
        told = told | {BUTTONS: labelled(piece.buttons)}
    if piece.reply_to and answered:
        told = told | {"m.mentions": {"user_ids": [answered]}}
    related: Content = {}
    if address.thread:
        related = {"rel_type": "m.thread", "event_id": address.thread, "is_falling_back": not piece.reply_to}
    if piece.reply_to or address.thread:
        related["m.in_reply_to"] = {"event_id": piece.reply_to or address.thread}
    return told | {"m.relates_to": related} if related else told


def labelled(buttons: tuple[Button, ...]) -> dict[str, str]:
    """What each reaction stands for; one is as long as a line under a message can be."""
    return {(button.label or button.data)[:LABEL]: button.data for button in buttons}


def changed(message: str, piece: Piece) -> Content:
    """The same as a change of `message`."""
    told = words(piece)
    body = told["body"]
    short = body if len(body) <= FALLBACK else f"{body[:FALLBACK]}…"
    return {
        "msgtype": "m.text",
        "body": f"* {short}",
        "m.mentions": {},
        "m.new_content": told,
        "m.relates_to": {"rel_type": "m.replace", "event_id": message},
    }


def reaction(message: str, key: str) -> Content:
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": message, "key": key}}


def transaction(name: str) -> str:
    """The same for the same: by it the homeserver knows what it has already."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def ours(theirs: Exception, doing: str) -> DeliveryError:
    """A failed call of theirs, by who acts next."""
    match theirs:
        case Refusal(wait=float(wait)):
            return DeliveryError(f"Matrix asks to wait {wait:.1f} s before {doing}.", retry_after=wait)
        case Refusal(code="M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN"):
            return DeliveryError(f"The homeserver does not accept our login ({doing}).")
        case Refusal(code=code) if code in _GONE or (code and 400 <= theirs.status < 500):
            return Gone(f"The homeserver refuses it ({doing}: {theirs.why}).")
        case Refusal():
            return DeliveryError(
                f"The homeserver failed with {theirs.status or theirs.why} while {doing}.", uncertain=True
            )
        case nio.EncryptionError() | nio.LocalProtocolError():
            return DeliveryError(f"It could not be encrypted ({doing}: {theirs}).")
    sent, late = not isinstance(theirs, NOT_SENT), isinstance(theirs, httpx2.TimeoutException)
    return unanswered("the homeserver", doing, brief(theirs), sent=sent, late=late)
