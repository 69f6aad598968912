"""What goes out to Telegram: a piece as a method with its parameters. It makes no call."""

import re
from pathlib import Path
from typing import Any, TypeAlias

from alipes.kernel.delivery import Button, Media
from alipes.kernel.errors import Gone
from alipes.kernel.platforms import Piece
from alipes.kernel.turns import Address
from alipes.platforms.files import readable
from alipes.platforms.markup import harmless, utf16
from alipes.platforms.telegram.api import Upload
from alipes.platforms.telegram.markup import CAPTION, pieces

Given: TypeAlias = dict[str, Any]

PHOTO, FILE = 10 << 20, 50 << 20
"""The largest photo, and the largest file, that a bot may send."""
DATA = 64
"""Bytes that a button can carry."""
ROW = 36
"""Letters on one row of buttons."""
COMMANDS, ABOUT = 100, 256
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_METHODS = {"image": "photo", "audio": "audio", "voice": "voice", "video": "video", "file": "document"}
_PHOTOS = (".jpg", ".jpeg", ".png", ".webp")


def place(address: Address) -> Given:
    where: Given = {"chat_id": int(address.chat) if address.chat.lstrip("-").isdigit() else address.chat}
    # The first topic of a forum has the number one, and must not be named.
    if address.thread.isdigit() and address.thread != "1":
        where["message_thread_id"] = int(address.thread)
    return where


def words(piece: Piece, *, marked: bool) -> Given:
    """The text of a message, with its markup or without."""
    if marked and piece.text:
        given: Given = {"text": harmless_lines(piece.text), "parse_mode": "HTML"}
    else:
        given = {"text": harmless_lines(piece.plain or piece.text)}
    return given | {"link_preview_options": {"is_disabled": True}}


def around(piece: Piece) -> Given:
    """What a new message has besides its words."""
    given: Given = {}
    if piece.buttons:
        given |= keyboard(piece.buttons)
    if piece.reply_to.isdigit():
        answered = {"message_id": int(piece.reply_to), "allow_sending_without_reply": True}
        given["reply_parameters"] = answered
    return given


def keyboard(buttons: tuple[Button, ...]) -> Given:
    """Buttons in rows that a phone can show. One whose data does not fit is left out: words do as well."""
    rows: list[list[dict[str, str]]] = []
    room = 0
    for button in buttons:
        if not 1 <= len(button.data.encode()) <= DATA:
            continue
        label = harmless(button.label) or button.data
        if not rows or len(label) > room:
            rows.append([])
            room = ROW
        rows[-1].append({"text": label, "callback_data": button.data})
        room -= len(label) + 4
    return {"reply_markup": {"inline_keyboard": rows}}


def captioned(media: Media, piece: Piece) -> tuple[Piece, Piece | None]:
    """The caption that goes with a file, and what does not fit there and follows it."""
    if piece.text:
        caption = Piece(text=piece.text, plain=piece.plain or piece.text)
    else:
        first = pieces(media.caption)
        caption = first[0] if len(first) == 1 else Piece(plain=media.caption)
    if utf16(caption.plain) > CAPTION:
        return Piece(), caption
    return caption, None


def upload(media: Media) -> tuple[str, Upload]:
    """The method that sends a file, and the file, read. Raises Gone for one that cannot be sent, ever."""
    path = Path(media.path)
    with readable(media.path):
        size = path.stat().st_size
        if size > FILE:
            raise Gone(f"Telegram takes no file of {size >> 20} MB ({media.name or path.name}).")
        data = path.read_bytes()
    if not data:
        raise Gone(f"The file {media.path} is empty, and Telegram takes none such.")
    picture = path.suffix.lower() in _PHOTOS and size <= PHOTO
    field = _METHODS[media.kind] if media.kind != "image" or picture else "document"
    return f"send{field.title()}", Upload(field, harmless(media.name) or path.name, data)


def menu(commands: tuple[tuple[str, str], ...]) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Commands as Telegram can show them, and our names by the names that it shows."""
    names: dict[str, str] = {}
    shown: list[dict[str, str]] = []
    for name, about in commands:
        plain = name.lower().replace("-", "_")
        if plain in names or not _COMMAND.fullmatch(plain):
            continue
        names[plain] = name
        shown.append({"command": plain, "description": (harmless(about) or name)[:ABOUT]})
    return shown[:COMMANDS], names


def harmless_lines(text: str) -> str:
    """Also what others wrote must be sendable: half a character is not JSON."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
