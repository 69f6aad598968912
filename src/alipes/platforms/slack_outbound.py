"""What goes out to Slack: a piece as its Web API takes it. It sends nothing."""

from typing import Any

from alipes.kernel.delivery import Button
from alipes.kernel.platforms import Piece
from alipes.kernel.turns import Address
from alipes.platforms.slack_markup import escape

SECTION = 3000
"""Characters of one block of text."""
BUTTONS, LABEL = 25, 75
EVENT = "alipes_message"
"""What the note about a message is called that goes along with it, for us to find it by."""


def place(address: Address, reply_to: str = "") -> dict[str, Any]:
    """Where a new message stands. An answer to one in a channel hangs from that, and is shown there too."""
    here: dict[str, Any] = {"channel": address.chat}
    if address.thread:
        here["thread_ts"] = address.thread
    elif reply_to:
        here |= {"thread_ts": reply_to, "reply_broadcast": True}
    return here


def body(piece: Piece, *, fresh: bool = True) -> dict[str, Any]:
    """The content of a message; `fresh`: it is sent, not changed."""
    # What was never written as mrkdwn, such as the name of a file, calls nobody either.
    text = escape(piece.plain) if piece.text == piece.plain else piece.text
    # `parse` is named since it means something else for changes where it is not; `<!channel>` is escaped.
    told: dict[str, Any] = {"text": text, "parse": "none", "link_names": False}
    if piece.buttons:
        told["blocks"] = _blocks(text, piece.buttons)
    elif not fresh:
        told["blocks"] = []
    if fresh:
        # What a link leads to is not fetched: a model could be made to tell others something by an address.
        told |= {"unfurl_links": False, "unfurl_media": False, "mrkdwn": True}
        if piece.id:
            told["metadata"] = {"event_type": EVENT, "event_payload": {"id": piece.id}}
    return told


def is_it(message: dict[str, Any], id: str) -> bool:
    """Is this message the one that was sent with this id of ours?"""
    note = message.get("metadata") or {}
    return note.get("event_type") == EVENT and (note.get("event_payload") or {}).get("id") == id


def _blocks(text: str, buttons: tuple[Button, ...]) -> list[dict[str, Any]]:
    sections = [
        {"type": "section", "text": {"type": "mrkdwn", "text": part, "verbatim": True}} for part in _cut(text)
    ]
    elements = [
        {
            "type": "button",
            "action_id": f"alipes-{number}",
            "text": {"type": "plain_text", "text": (button.label or button.data)[:LABEL], "emoji": False},
            "value": button.data,
        }
        for number, button in enumerate(buttons[:BUTTONS])
    ]
    return [*sections, {"type": "actions", "elements": elements}]


def _cut(text: str) -> list[str]:
    """Parts that fit into a block, at the ends of lines where there are some."""
    parts = []
    while len(text) > SECTION:
        end = text.rfind("\n", SECTION // 2, SECTION) + 1 or SECTION
        parts.append(text[:end])
        text = text[end:]
    return [*parts, text] if text else parts
