"""What goes out to Slack: a piece as its Web API takes it. It sends nothing."""

from typing import Any

import msgspec

from alipes.kernel.delivery import Button
from alipes.kernel.platforms import Piece
from alipes.kernel.turns import Address
from alipes.platforms.slack.markup import RICH, escape

SECTION = 3000
"""Characters of one block of plain text."""
BUTTONS, LABEL = 25, 75
EVENT = "alipes_message"
"""What the note about a message is called that goes along with it, for us to find it by."""
UNSHOWABLE = ("invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long")
"""Slack does not like how it is marked up."""


def place(address: Address, reply_to: str = "") -> dict[str, Any]:
    """Where a new message stands. An answer to one in a channel hangs from that, and is shown there too."""
    here: dict[str, Any] = {"channel": address.chat}
    if address.thread:
        here["thread_ts"] = address.thread
    elif reply_to:
        here |= {"thread_ts": reply_to, "reply_broadcast": True}
    return here


def body(piece: Piece, *, fresh: bool = True, marked: bool = True) -> dict[str, Any]:
    """The content of a message. `fresh`: it is sent, not changed; not `marked`: as plain words."""
    words = piece.plain or piece.text
    rich = piece.text.startswith(RICH) and marked
    # `parse` is named since it means something else for changes where it is not.
    told: dict[str, Any] = {"text": escape(words), "parse": "none", "link_names": False}
    if rich or piece.buttons or not fresh:
        shown = [msgspec.json.decode(piece.text)] if rich else _plain(words) if piece.buttons else []
        told["blocks"] = [*shown, *_actions(piece.buttons)]
    if fresh:
        # What a link leads to is not fetched: a model could be made to tell others something by an address.
        told |= {"unfurl_links": False, "unfurl_media": False, "mrkdwn": False}
        if piece.id:
            told["metadata"] = {"event_type": EVENT, "event_payload": {"id": piece.id}}
    return told


def is_it(message: dict[str, Any], id: str) -> bool:
    """Is this message the one that was sent with this id of ours?"""
    note = message.get("metadata") or {}
    return note.get("event_type") == EVENT and (note.get("event_payload") or {}).get("id") == id


def _actions(buttons: tuple[Button, ...]) -> list[dict[str, Any]]:
    elements = [
        {
            "type": "button",
            "action_id": f"alipes-{number}",
            "text": {"type": "plain_text", "text": (button.label or button.data)[:LABEL], "emoji": False},
            "value": button.data,
        }
        for number, button in enumerate(buttons[:BUTTONS])
    ]
    return [{"type": "actions", "elements": elements}] if elements else []


def _plain(text: str) -> list[dict[str, Any]]:
    """Words in blocks, at the ends of lines where there are some."""
    parts = []
    while text:
        end = len(text) if len(text) <= SECTION else text.rfind("\n", SECTION // 2, SECTION) + 1 or SECTION
        parts.append(text[:end])
        text = text[end:]
    return [
        {"type": "section", "text": {"type": "plain_text", "text": part, "emoji": False}} for part in parts
    ]
