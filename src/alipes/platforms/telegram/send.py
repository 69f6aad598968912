"""Sends to Telegram: messages, files, edits, typing, the command menu. Raises only `DeliveryError`."""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button, Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.files import media_name, read_outgoing
from alipes.platforms.markup import strip_controls, utf16_length
from alipes.platforms.telegram.api import (
    CALL_TIMEOUT,
    FAILURES,
    FileUpload,
    SentMessage,
    TelegramApi,
    TelegramError,
    translate_error,
)
from alipes.platforms.telegram.markup import CAPTION, format_markdown

Params: TypeAlias = dict[str, Any]

PHOTO, FILE = 10 << 20, 50 << 20
"""Size limits for photos and files."""
DATA = 64
"""Bytes of data per button."""
ROW = 36
"""Characters per row of buttons."""
COMMANDS, ABOUT = 100, 256
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_METHODS = {"image": "photo", "audio": "audio", "voice": "voice", "video": "video", "file": "document"}
_PHOTOS = (".jpg", ".jpeg", ".png", ".webp")


def chat_params(address: Address) -> Params:
    where: Params = {"chat_id": int(address.chat) if address.chat.lstrip("-").isdigit() else address.chat}
    # the first topic of a forum has the number one and must not be named
    if address.thread.isdigit() and address.thread != "1":
        where["message_thread_id"] = int(address.thread)
    return where


def text_params(part: MessagePart, *, caption: bool, marked: bool) -> Params:
    """Parameters for the text of a message or the caption of a file, with or without markup."""
    marked = marked and bool(part.text)
    text = replace_surrogates(part.text if marked else part.plain or part.text)
    if caption and not text:
        return {}
    given: Params = {"caption": text} if caption else {"text": text, "link_preview_options": {"is_disabled": True}}
    return given | {"parse_mode": "HTML"} if marked else given


def reply_params(part: MessagePart) -> Params:
    given: Params = {}
    if part.buttons:
        given |= keyboard(part.buttons)
    if part.reply_to.isdigit():
        answered = {"message_id": int(part.reply_to), "allow_sending_without_reply": True}
        given["reply_parameters"] = answered
    return given


def keyboard(buttons: tuple[Button, ...]) -> Params:
    """Buttons in rows that fit on a phone. A button with too much data is dropped: people can answer in words."""
    rows: list[list[dict[str, str]]] = []
    room = 0
    for button in buttons:
        if not 1 <= len(button.data.encode()) <= DATA:
            continue
        label = strip_controls(button.label) or button.data
        if not rows or len(label) > room:
            rows.append([])
            room = ROW
        rows[-1].append({"text": label, "callback_data": button.data})
        room -= len(label) + 4
    return {"reply_markup": {"inline_keyboard": rows}}


def split_caption(media: Media, part: MessagePart) -> tuple[MessagePart, MessagePart | None]:
    """The caption of a file, and a text that follows if it does not fit."""
    if part.text:
        caption = MessagePart(text=part.text, plain=part.plain or part.text)
    else:
        first = format_markdown(media.caption)
        caption = first[0] if len(first) == 1 else MessagePart(plain=media.caption)
    if utf16_length(caption.plain) > CAPTION:
        return MessagePart(), caption
    return caption, None


def read_upload(media: Media) -> tuple[str, FileUpload]:
    """The method that sends a file, and its content. Raises `Undeliverable` for a file that cannot be sent."""
    data = read_outgoing(media, "Telegram", FILE)
    if not data:
        raise Undeliverable(f"Telegram does not accept empty files ({media.path}).")
    picture = Path(media.path).suffix.lower() in _PHOTOS and len(data) <= PHOTO
    field = _METHODS[media.kind] if media.kind != "image" or picture else "document"
    return f"send{field.title()}", FileUpload(field, media_name(media), data)


def command_menu(commands: tuple[tuple[str, str], ...]) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The command menu, and our names by the names in it."""
    names: dict[str, str] = {}
    shown: list[dict[str, str]] = []
    for name, about in commands:
        plain = re.sub("[-:.]", "_", name.lower())
        if plain in names or not _COMMAND.fullmatch(plain):
            continue
        names[plain] = name
        shown.append({"command": plain, "description": (strip_controls(about) or name)[:ABOUT]})
    return shown[:COMMANDS], names


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as JSON."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


log = logging.getLogger(__name__)
T = TypeVar("T")

UPLOADING = 110.0
"""Seconds for an upload."""
_NO_PICTURE = ("photo_", "image_process_failed", "voice_messages_forbidden", "wrong type of", "video_content")
"""Errors after which a picture is sent as a file instead."""


@contextmanager
def translated_errors(doing: str, *ignored: str) -> Iterator[None]:
    """Raises `DeliveryError` for a failed call, except for errors that mention `ignored`."""
    try:
        yield
    except FAILURES as failure:
        if not (isinstance(failure, TelegramError) and failure.mentions(*ignored)):
            raise translate_error(failure, doing) from failure


class TelegramSender:
    def __init__(self, api: TelegramApi, patience: float = CALL_TIMEOUT) -> None:
        self._api, self._patience = api, patience
        self._moved: dict[int | str, int] = {}
        """New ids of groups that became supergroups."""
        self.commands: dict[str, str] = {}
        """Our commands by their names in Telegram's menu."""

    async def send(self, address: Address, part: MessagePart) -> str:
        given = chat_params(address) | reply_params(part)
        with translated_errors("sending a message"):
            if part.media is not None:
                return await self._send_file(address, part, part.media, given)
            sent = await self._call_with_text("sendMessage", part, given)
        return str(sent.message_id)

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        given = _message(address, message)
        if part.buttons:
            given |= keyboard(part.buttons)
        with translated_errors("editing a message", "message is not modified"):
            try:
                await self._call_with_text("editMessageText", part, given)
            except TelegramError as failure:
                if not failure.mentions("no text in the message"):
                    raise
                await self._call_with_text("editMessageCaption", part, given)

    async def delete(self, address: Address, message: str) -> None:
        with translated_errors("deleting a message", "message to delete not found"):
            await self._call("deleteMessage", bool, _message(address, message))

    async def typing(self, address: Address) -> None:
        with translated_errors("showing the typing indicator"):
            await self._call("sendChatAction", bool, chat_params(address) | {"action": "typing"})

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        shown, self.commands = command_menu(commands)
        with translated_errors("setting the commands"):
            await self._api.call("setMyCommands", bool, {"commands": shown})

    async def _send_file(self, address: Address, part: MessagePart, media: Media, given: Params) -> str:
        method, upload = await asyncio.to_thread(read_upload, media)
        caption, rest = split_caption(media, part)
        try:
            sent = await self._call_with_text(method, caption, given, upload)
        except TelegramError as failure:
            if method == "sendDocument" or not failure.mentions(*_NO_PICTURE):
                raise
            upload = FileUpload("document", upload.name, upload.data)
            sent = await self._call_with_text("sendDocument", caption, given, upload)
        if rest is not None:
            try:
                await self._call_with_text("sendMessage", rest, chat_params(address))
            except FAILURES as failure:
                error = translate_error(failure, "sending the text of a file")
                # the file was sent: a retry would send it again
                raise DeliveryError(str(error), retry_after=error.retry_after, uncertain=True) from failure
        return str(sent.message_id)

    async def _call_with_text(
        self, method: str, part: MessagePart, given: Params, upload: FileUpload | None = None
    ) -> SentMessage:
        """Call a method with text; if the markup is rejected, again without it."""
        caption = upload is not None or method == "editMessageCaption"
        try:
            return await self._call(
                method, SentMessage, given | text_params(part, caption=caption, marked=True), upload
            )
        except TelegramError as failure:
            if not failure.mentions("can't parse entities") or not part.text:
                raise
            log.warning("Telegram rejected our markup; sending plain text: %s", failure.why)
            return await self._call(
                method, SentMessage, given | text_params(part, caption=caption, marked=False), upload
            )

    async def _call(self, method: str, kind: type[T], given: Params, upload: FileUpload | None = None) -> T:
        """Call a method for a chat, which may have a new id."""
        patience = UPLOADING if upload else self._patience
        chat = given["chat_id"]
        given = given | {"chat_id": self._moved.get(chat, chat)}
        try:
            return await self._api.call(method, kind, given, upload=upload, patience=patience)
        except TelegramError as failure:
            moved = failure.parameters.migrate_to_chat_id
            if moved is None:
                raise
            self._moved[chat] = moved
        given = given | {"chat_id": moved}
        return await self._api.call(method, kind, given, upload=upload, patience=patience)


def _message(address: Address, message: str) -> Params:
    return {"chat_id": chat_params(address)["chat_id"], "message_id": int(message)}
