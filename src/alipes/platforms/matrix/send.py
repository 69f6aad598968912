"""Speaking on Matrix: messages, files, changes, signs. It raises `DeliveryError` kinds, and tries once."""

import logging
import secrets
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import nio  # type: ignore[import-untyped]
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.platforms.matrix import payloads
from alipes.platforms.matrix.client import TROUBLE, Client, given
from alipes.platforms.matrix.files import uploaded
from alipes.platforms.matrix.parse import Recall, Said
from alipes.platforms.matrix.payloads import MESSAGE, REACTION, ours, transaction
from alipes.platforms.state_files import put

log = logging.getLogger(__name__)
T = TypeVar("T")

TYPING = 8.0
"""Seconds that a sign of typing lasts."""
LATER = 0.3
"""Seconds after which a room is known that we have just come into."""
QUESTIONS = 200


class Speaker:
    """One device's voice."""

    def __init__(self, client: Client, recall: Recall) -> None:
        self._client, self._recall = client, recall
        self._typing: dict[str, float] = {}
        """Until when each room sees us typing."""
        self._offered: dict[str, list[str]] = {}
        """By question, our own reactions to it, which people press."""

    async def send(self, address: Address, piece: Piece) -> str:
        address = await self._enter(address)
        if piece.media is not None:
            sealed = self._client.rooms[address.chat].encrypted
            caption = piece.plain or piece.text or piece.media.caption
            told = await _tried("sending a file", uploaded(self._client, piece.media, caption, sealed=sealed))
        else:
            told = payloads.words(piece)
        content = payloads.fresh(address, piece, told, self._recall.sender(piece.reply_to))
        await self._rest(address.chat)
        name = transaction(piece.id) if piece.id else secrets.token_hex(16)
        sent = await _tried("sending a message", self._client.put(address.chat, MESSAGE, content, name))
        self._recall.keep(sent, Said(sent, str(self._client.user_id), MESSAGE, content))
        if piece.buttons:
            await self._offer(address.chat, sent, list(payloads.labelled(piece.buttons)))
        return sent

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        address = await self._enter(address)
        content = payloads.changed(message, piece)
        put = self._client.put(address.chat, MESSAGE, content, secrets.token_hex(16))
        await _tried("changing a message", put)
        self._recall.change(message, content["m.new_content"])
        if not piece.buttons:
            for reaction in self._offered.pop(message, ()):
                await self._quietly(self._redact(address.chat, reaction))

    async def delete(self, address: Address, message: str) -> None:
        try:
            await _tried("taking a message back", self._redact(address.chat, message))
        except Gone:
            log.debug("a message that was to be taken back is not there")

    async def typing(self, address: Address) -> None:
        asked = self._client.room_typing(address.chat, True, int(TYPING * 1000) + 2000)
        await _tried("showing that we type", _given(asked, nio.RoomTypingResponse))
        self._typing[address.chat] = time.monotonic() + TYPING

    async def _enter(self, address: Address) -> Address:
        """Only where we know whether it is encrypted may we speak. `@person:server` is the chat with them."""
        address = payloads.place(address)
        room_id = address.chat
        if room_id in self._client.rooms:
            return address
        if room_id.startswith("@"):
            return replace(address, chat=self._shared(room_id))
        if room_id not in self._client.invited_rooms:
            raise Gone("We are not in that room on Matrix (any more).")
        await _tried("entering a room", _given(self._client.join(room_id), nio.JoinResponse))
        raise DeliveryError("We have only just come into that room on Matrix.", retry_after=LATER)

    def _shared(self, person: str) -> str:
        for room in self._client.rooms.values():
            heroes = room.summary.heroes if room.summary else None  # who is there, also if they never spoke
            if room.member_count == 2 and (person in room.users or person in (heroes or ())):
                return str(room.room_id)
        raise Gone(f"We have no direct chat with {person} on Matrix: let them write to us first.")

    async def _rest(self, room_id: str) -> None:
        """What was being typed is said: the sign goes, which the homeserver does not do by itself."""
        if self._typing.pop(room_id, 0.0) > time.monotonic():
            asked = self._client.room_typing(room_id, False)
            await self._quietly(_given(asked, nio.RoomTypingResponse))

    async def _offer(self, room_id: str, message: str, labels: list[str]) -> None:
        """Reactions of our own, for people to press; who finds none there answers in words."""
        made = self._offered.setdefault(message, [])
        for label in labels:
            name = transaction(f"{message} {label}")
            content = payloads.reaction(message, label)
            made.append(await self._quietly(self._client.put(room_id, REACTION, content, name)) or "")
        put(self._offered, message, [each for each in made if each], QUESTIONS)

    async def _redact(self, room_id: str, event: str) -> None:
        asked = self._client.room_redact(room_id, event, tx_id=transaction(f"redact {event}"))
        await _given(asked, nio.RoomRedactResponse)

    async def _quietly(self, work: Awaitable[T]) -> T | None:
        """Nobody is the worse if it fails."""
        try:
            return await work
        except TROUBLE as theirs:
            log.debug("something beside a message failed: %s", theirs)
            return None


async def _given(asked: Coroutine[Any, Any, Any], kind: type[T]) -> T:
    return given(await asked, kind)


async def _tried(doing: str, work: Awaitable[T]) -> T:
    try:
        return await work
    except TROUBLE as theirs:
        raise ours(theirs, doing) from theirs
