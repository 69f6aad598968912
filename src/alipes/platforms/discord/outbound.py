"""What goes out to Discord: a piece as its REST API takes it, and its refusals in our words."""

import hashlib
from pathlib import Path
from typing import Any

import aiohttp
import discord
import msgspec

from alipes.kernel.delivery import Button
from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.platforms import Piece
from alipes.platforms.unanswered import brief, unanswered

NONCE = 25
ROW, ROWS, LABEL = 5, 5, 80
DESCRIPTION = 100
COMMANDS = 100


def body(piece: Piece, *, fresh: bool = True) -> dict[str, Any]:
    """The JSON of a message; `fresh`: it is sent, not changed."""
    text = piece.text or (piece.media.caption if piece.media else "")
    # The model may write `@everyone`; nobody is called by what it writes, only whom it answers.
    told: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": [], "replied_user": True}}
    if piece.buttons or not fresh:
        told["components"] = _rows(piece.buttons)
    if not fresh:
        return told
    if piece.id:
        told |= {"nonce": nonce(piece.id), "enforce_nonce": True}
    if piece.reply_to:
        told["message_reference"] = {"message_id": piece.reply_to, "fail_if_not_exists": False}
    if piece.media:
        told["attachments"] = [{"id": 0, "filename": _name(piece)}]
    return told


def form(piece: Piece, told: dict[str, Any], data: bytes) -> list[dict[str, Any]]:
    """The same with a file."""
    file = {
        "name": "files[0]",
        "value": data,
        "filename": _name(piece),
        "content_type": "application/octet-stream",
    }
    return [{"name": "payload_json", "value": msgspec.json.encode(told).decode()}, file]


def nonce(name: str) -> str:
    """Ours where it fits, else its digest: the same for the same."""
    return name if len(name) <= NONCE else hashlib.blake2b(name.encode(), digest_size=NONCE // 2).hexdigest()


def slash_commands(commands: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    """Our commands as Discord registers them. What follows the name is one free text."""
    option = {"type": 3, "name": "arguments", "description": "what the command is about", "required": False}
    return [
        {"name": name.lower(), "description": (about or name)[:DESCRIPTION], "type": 1, "options": [option]}
        for name, about in commands[:COMMANDS]
    ]


def ours(theirs: BaseException, doing: str) -> DeliveryError:
    """A failed call of theirs, by who acts next."""
    match theirs:
        case discord.RateLimited():
            wait = theirs.retry_after
            return DeliveryError(f"Discord asks to wait {wait:.1f} s before {doing}.", retry_after=wait)
        case discord.NotFound():
            return Gone(f"Discord has no such chat or message any more ({doing}: {theirs.text or theirs}).")
        case discord.Forbidden():
            return Gone(f"Discord does not let the bot write there ({doing}: {theirs.text or theirs}).")
        case discord.DiscordServerError():
            return DeliveryError(f"Discord failed with {theirs.status} while {doing}.", uncertain=True)
        case discord.HTTPException() if theirs.status == 401:
            return DeliveryError(f"Discord does not accept the bot's token ({doing}).")
        case discord.HTTPException():
            return Gone(f"Discord refuses it ({doing}: {theirs.text or theirs}).")
    sent = not isinstance(theirs, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return unanswered("Discord", doing, brief(theirs), sent=sent, late=isinstance(theirs, TimeoutError))


def _name(piece: Piece) -> str:
    assert piece.media
    return piece.media.name or Path(piece.media.path).name or "file"


def _rows(buttons: tuple[Button, ...]) -> list[dict[str, Any]]:
    """At most five rows of five; Discord shows no more."""
    made = [
        {
            "type": 2,
            "style": 2,
            "label": button.label[:LABEL] or button.data[:LABEL],
            "custom_id": button.data,
        }
        for button in buttons[: ROW * ROWS]
    ]
    return [{"type": 1, "components": made[at : at + ROW]} for at in range(0, len(made), ROW)]
