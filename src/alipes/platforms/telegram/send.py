"""Speaking on Telegram: messages, files, changes, signs, the menu. It raises `DeliveryError` kinds only."""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.outbox import Button, Media
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.platforms.files import readable
from alipes.platforms.markup.spans import harmless, utf16
from alipes.platforms.telegram.api import FAILURES, PATIENCE, Api, Refusal, Sent, Upload, ours
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


log = logging.getLogger(__name__)
T = TypeVar("T")

UPLOADING = 110.0
"""Seconds that a file may take on its way out."""
_NO_PICTURE = ("photo_", "image_process_failed", "voice_messages_forbidden", "wrong type of", "video_content")
"""It is no picture, or none that may be sent as one: as a file it may."""


class Speaker:
    """One bot's voice."""

    def __init__(self, api: Api, patience: float = PATIENCE) -> None:
        self._api, self._patience = api, patience
        self._moved: dict[int | str, int] = {}
        """Groups that became supergroups, and so have another id."""
        self.commands: dict[str, str] = {}
        """Our commands by the names that Telegram's menu bears."""

    async def send(self, address: Address, piece: Piece) -> str:
        given = place(address) | around(piece)
        try:
            if piece.media is not None:
                return await self._send_file(address, piece, piece.media, given)
            sent = await self._worded("sendMessage", piece, given)
        except FAILURES as theirs:
            raise ours(theirs, "sending a message") from theirs
        return str(sent.message_id)

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        given = _message(address, message)
        if piece.buttons:
            given |= keyboard(piece.buttons)
        try:
            try:
                await self._worded("editMessageText", piece, given)
            except Refusal as theirs:
                if not theirs.says("no text in the message"):
                    raise
                await self._worded("editMessageCaption", piece, given)
        except FAILURES as theirs:
            if isinstance(theirs, Refusal) and theirs.says("message is not modified"):
                return
            raise ours(theirs, "changing a message") from theirs

    async def delete(self, address: Address, message: str) -> None:
        try:
            await self._ask("deleteMessage", bool, _message(address, message))
        except FAILURES as theirs:
            if isinstance(theirs, Refusal) and theirs.says("message to delete not found"):
                return
            raise ours(theirs, "taking a message back") from theirs

    async def typing(self, address: Address) -> None:
        try:
            await self._ask("sendChatAction", bool, place(address) | {"action": "typing"})
        except FAILURES as theirs:
            raise ours(theirs, "showing that we type") from theirs

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        shown, self.commands = menu(commands)
        try:
            await self._api.call("setMyCommands", bool, {"commands": shown})
        except FAILURES as theirs:
            raise ours(theirs, "showing the commands") from theirs

    async def _send_file(self, address: Address, piece: Piece, media: Media, given: Given) -> str:
        method, upload = await asyncio.to_thread(upload, media)
        caption, rest = captioned(media, piece)
        try:
            sent = await self._worded(method, caption, given, upload)
        except Refusal as theirs:
            if method == "sendDocument" or not theirs.says(*_NO_PICTURE):
                raise
            upload = Upload("document", upload.name, upload.data)
            sent = await self._worded("sendDocument", caption, given, upload)
        if rest is not None:
            try:
                await self._worded("sendMessage", rest, place(address))
            except FAILURES as theirs:
                error = ours(theirs, "sending what belongs to a file")
                # The file is there: a second try would send it again.
                raise DeliveryError(str(error), retry_after=error.retry_after, uncertain=True) from theirs
        return str(sent.message_id)

    async def _worded(self, method: str, piece: Piece, given: Given, upload: Upload | None = None) -> Sent:
        """A call with text; where its markup is refused, once more without."""
        caption = upload is not None or method == "editMessageCaption"
        try:
            return await self._ask(method, Sent, given | _words(piece, caption, marked=True), upload)
        except Refusal as theirs:
            if not theirs.says("can't parse entities") or not piece.text:
                raise
            log.warning("Telegram refused our markup, so the text goes without it: %s", theirs.why)
            return await self._ask(method, Sent, given | _words(piece, caption, marked=False), upload)

    async def _ask(self, method: str, kind: type[T], given: Given, upload: Upload | None = None) -> T:
        """A call about a chat, which may have moved."""
        patience = UPLOADING if upload else self._patience
        chat = given["chat_id"]
        given = given | {"chat_id": self._moved.get(chat, chat)}
        try:
            return await self._api.call(method, kind, given, upload=upload, patience=patience)
        except Refusal as theirs:
            moved = theirs.parameters.migrate_to_chat_id
            if moved is None:
                raise
            self._moved[chat] = moved
        given = given | {"chat_id": moved}
        return await self._api.call(method, kind, given, upload=upload, patience=patience)


def _message(address: Address, message: str) -> Given:
    return {"chat_id": place(address)["chat_id"], "message_id": int(message)}


def _words(piece: Piece, caption: bool, *, marked: bool) -> Given:
    given = words(piece, marked=marked)
    if not caption:
        return given
    if not given["text"]:
        return {}
    mode = {"parse_mode": given["parse_mode"]} if "parse_mode" in given else {}
    return {"caption": given["text"], **mode}
