"""What goes out to Matrix: a piece as an event's content, and refusals in our words. It sends nothing."""

import hashlib
from typing import Any, TypeAlias

import httpx2
import nio  # type: ignore[import-untyped]
from msgspec.structs import replace

from alipes.kernel.delivery import Button
from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.platforms import Piece
from alipes.kernel.turns import Address
from alipes.platforms.matrix.client import Refusal
from alipes.platforms.matrix.markup import marked
from alipes.platforms.unanswered import brief, unanswered
from alipes.runtime.clients import NOT_SENT

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
