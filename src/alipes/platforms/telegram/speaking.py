"""Speaking on Telegram: messages, files, changes, signs, the menu. It raises `DeliveryError` kinds only."""

import asyncio
import logging
from typing import TypeVar

from alipes.kernel.delivery import Media
from alipes.kernel.errors import DeliveryError
from alipes.kernel.platforms import Piece
from alipes.kernel.turns import Address
from alipes.platforms.telegram import outbound
from alipes.platforms.telegram.api import FAILURES, PATIENCE, Api, Refusal, Upload, ours
from alipes.platforms.telegram.outbound import Given
from alipes.platforms.telegram.words import Sent

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
        given = outbound.place(address) | outbound.around(piece)
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
            given |= outbound.keyboard(piece.buttons)
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
            await self._ask("sendChatAction", bool, outbound.place(address) | {"action": "typing"})
        except FAILURES as theirs:
            raise ours(theirs, "showing that we type") from theirs

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        shown, self.commands = outbound.menu(commands)
        try:
            await self._api.call("setMyCommands", bool, {"commands": shown})
        except FAILURES as theirs:
            raise ours(theirs, "showing the commands") from theirs

    async def _send_file(self, address: Address, piece: Piece, media: Media, given: Given) -> str:
        method, upload = await asyncio.to_thread(outbound.upload, media)
        caption, rest = outbound.captioned(media, piece)
        try:
            sent = await self._worded(method, caption, given, upload)
        except Refusal as theirs:
            if method == "sendDocument" or not theirs.says(*_NO_PICTURE):
                raise
            upload = Upload("document", upload.name, upload.data)
            sent = await self._worded("sendDocument", caption, given, upload)
        if rest is not None:
            try:
                await self._worded("sendMessage", rest, outbound.place(address))
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
    return {"chat_id": outbound.place(address)["chat_id"], "message_id": int(message)}


def _words(piece: Piece, caption: bool, *, marked: bool) -> Given:
    given = outbound.words(piece, marked=marked)
    if not caption:
        return given
    if not given["text"]:
        return {}
    mode = {"parse_mode": given["parse_mode"]} if "parse_mode" in given else {}
    return {"caption": given["text"], **mode}
