"""What is said in Slack: sent, changed, taken back, each tried once; what may be there is looked for."""

from contextlib import suppress
from typing import Any

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.platforms import Piece
from alipes.kernel.turns import Address
from alipes.platforms.slack import outbound
from alipes.platforms.slack.begun import Begun, Entry
from alipes.platforms.slack.calls import Calls, code
from alipes.platforms.slack.listening import Listening
from alipes.platforms.slack.markup import escape

FILE = "file:"
"""Before the id of a message that is a file: Slack tells the file's, not the message's."""
SIGN = "eyes"
EARLY = 60.0
"""Seconds by which Slack's clock may be behind ours."""
PAGE = 200
_NOTHING_TO_HANG_FROM = ("thread_not_found", "message_not_found", "cannot_reply_to_message")


class Speaking:
    """Lives as long as the listening."""

    def __init__(self, calls: Calls, listening: Listening, begun: Begun) -> None:
        self._calls, self._listening, self._begun = calls, listening, begun
        self._files = listening.files
        self._signs: dict[str, str] = {}
        """By conversation: the message that bears our sign that we are at it."""

    async def send(self, address: Address, piece: Piece) -> str:
        before = self._begun.begin(piece.id)
        found = await self._find(address, piece, before) if before else ""
        if not found:
            place = outbound.place(address, piece.reply_to)
            found = await self._post(place, piece)
        self._begun.there(piece.id)
        self._unsign(address)
        return found

    async def _post(self, place: dict[str, Any], piece: Piece, *, marked: bool = True) -> str:
        body = outbound.body(piece, marked=marked)
        try:
            sent = await self._calls("sending", "chat_postMessage", **place, **body)
        except DeliveryError as error:
            why = code(error)
            if "reply_broadcast" in place and why in _NOTHING_TO_HANG_FROM:
                return await self._post({"channel": place["channel"]}, piece, marked=marked)
            if marked and why in outbound.UNSHOWABLE:
                return await self._post(place, piece, marked=False)
            if not error.uncertain:
                self._begun.done(piece.id)
            raise
        return str(sent["ts"])

    async def _find(self, address: Address, piece: Piece, before: Entry) -> str:
        """The message that an earlier try of the same became; empty if it became none."""
        arguments: dict[str, Any] = {"channel": address.chat, "include_all_metadata": True, "limit": PAGE}
        arguments["oldest"] = f"{before.at - EARLY:.6f}"
        method = "conversations_history"
        if address.thread:
            method, arguments["ts"] = "conversations_replies", address.thread
        try:
            told = await self._calls("looking for a message", method, **arguments)
        except Gone:
            return ""  # there is no such chat, so it is not there
        except DeliveryError as error:
            raise DeliveryError(f"It may be there. {error}", retry_after=error.retry_after) from error
        mine = [each for each in told["messages"] if outbound.is_it(each, piece.id)]
        return str(mine[0]["ts"]) if mine else ""

    async def show(self, address: Address, piece: Piece) -> str:
        """A file: brought first, then shown in the chat."""
        assert piece.media
        before = self._begun.begin(piece.id)
        file = before.note if before else ""
        if not file or not await self._shown(file):
            try:
                file = file or await self._files.bring(piece)
                if piece.id:
                    self._begun.note(piece.id, file)
                await self._reveal(address, piece, file)
            except DeliveryError as error:
                if not error.uncertain:
                    self._begun.done(piece.id)
                raise
        self._begun.there(piece.id)
        self._unsign(address)
        return f"{FILE}{file}"

    async def _reveal(self, address: Address, piece: Piece, file: str) -> None:
        assert piece.media
        here = {"channel_id": address.chat, "thread_ts": address.thread or None}
        told = [{"id": file, "title": piece.media.name or None}]
        words = escape(piece.plain or piece.media.caption)
        await self._calls(
            "sending a file",
            "files_completeUploadExternal",
            files=[{key: value for key, value in each.items() if value} for each in told],
            initial_comment=words or None,
            **here,
        )

    async def _shown(self, file: str) -> bool:
        try:
            told = await self._calls("looking for a file", "files_info", file=file)
        except Gone:
            return False
        except DeliveryError as error:
            raise DeliveryError(f"It may be there. {error}", retry_after=error.retry_after) from error
        return bool(told["file"].get("shares"))

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        if message.startswith(FILE):
            raise Gone("Slack does not let a file be changed that was sent.")
        here = {"channel": address.chat, "ts": message}
        try:
            body = outbound.body(piece, fresh=False)
            await self._calls("changing a message", "chat_update", **here, **body)
        except Gone as error:
            if code(error) not in outbound.UNSHOWABLE:
                raise
            body = outbound.body(piece, fresh=False, marked=False)
            await self._calls("changing a message", "chat_update", **here, **body)

    async def delete(self, address: Address, message: str) -> None:
        if message.startswith(FILE):
            await self._calls("deleting a file", "files_delete", file=message.removeprefix(FILE))
        else:
            await self._calls("deleting a message", "chat_delete", channel=address.chat, ts=message)

    async def sign(self, address: Address) -> None:
        """A bot cannot be seen typing: what was said last bears a pair of eyes until it is answered."""
        lane = f"{address.chat}/{address.thread}"
        latest = self._listening.latest.get(lane, "")
        if latest and self._signs.get(lane) != latest:
            self._unsign(address)
            self._signs[lane] = latest
            await self._react("reactions_add", address.chat, latest)

    def _unsign(self, address: Address) -> None:
        lane = f"{address.chat}/{address.thread}"
        if signed := self._signs.pop(lane, ""):
            self._listening.lanes.put("signs", lambda: self._react("reactions_remove", address.chat, signed))

    async def _react(self, method: str, channel: str, message: str) -> None:
        with suppress(DeliveryError):  # it is worth nothing to try that again, nor to hold up anything else
            await self._calls("giving a sign", method, channel=channel, timestamp=message, name=SIGN)
