"""Sends to Matrix: messages, files, edits, typing. One attempt each; raises `DeliveryError`."""

import logging
import secrets
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import nio  # type: ignore[import-untyped]
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.matrix import payloads
from alipes.platforms.matrix.client import FAILURES, MatrixClient, expect
from alipes.platforms.matrix.files import upload_media
from alipes.platforms.matrix.parse import EventCache, RoomEvent
from alipes.platforms.matrix.payloads import MESSAGE, REACTION, transaction_id, translate_error
from alipes.platforms.state_files import put_bounded

log = logging.getLogger(__name__)
T = TypeVar("T")

TYPING = 8.0
"""Seconds that a typing indicator lasts."""
JOIN_DELAY = 0.3
"""Seconds until a room that we just joined is known."""
MAX_QUESTIONS = 200


class MatrixSender:
    def __init__(self, client: MatrixClient, cache: EventCache) -> None:
        self._client, self._cache = client, cache
        self._typing: dict[str, float] = {}
        """Until when each room shows us typing."""
        self._offered: dict[str, list[str]] = {}
        """Our reactions to each question, which people press as buttons."""

    async def send(self, address: Address, part: MessagePart) -> str:
        address = await self._resolve_room(address)
        if part.media is not None:
            sealed = self._client.rooms[address.chat].encrypted
            caption = part.plain or part.text or part.media.caption
            body = await _guard("sending a file", upload_media(self._client, part.media, caption, sealed=sealed))
        else:
            body = payloads.text_content(part)
        content = payloads.message_content(address, part, body, self._cache.sender(part.reply_to))
        await self._stop_typing(address.chat)
        name = transaction_id(part.id) if part.id else secrets.token_hex(16)
        sent = await _guard("sending a message", self._client.send_event(address.chat, MESSAGE, content, name))
        self._cache.put(sent, RoomEvent(sent, str(self._client.user_id), MESSAGE, content))
        if part.buttons:
            await self._add_buttons(address.chat, sent, list(payloads.button_labels(part.buttons)))
        return sent

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        address = await self._resolve_room(address)
        content = payloads.edit_content(message, part)
        put = self._client.send_event(address.chat, MESSAGE, content, secrets.token_hex(16))
        await _guard("editing a message", put)
        self._cache.update(message, content["m.new_content"])
        if not part.buttons:
            for reaction in self._offered.pop(message, ()):
                await self._try(self._redact(address.chat, reaction))

    async def delete(self, address: Address, message: str) -> None:
        try:
            await _guard("deleting a message", self._redact(address.chat, message))
        except Undeliverable:
            log.debug("a message to be deleted does not exist")

    async def typing(self, address: Address) -> None:
        asked = self._client.room_typing(address.chat, True, int(TYPING * 1000) + 2000)
        await _guard("showing the typing indicator", _expect(asked, nio.RoomTypingResponse))
        self._typing[address.chat] = time.monotonic() + TYPING

    async def _resolve_room(self, address: Address) -> Address:
        """Find the room, since we must know whether it is encrypted. `@person:server` is their direct chat."""
        address = payloads.split_server(address)
        room_id = address.chat
        if room_id in self._client.rooms:
            return address
        if room_id.startswith("@"):
            return replace(address, chat=self._direct_room(room_id))
        if room_id not in self._client.invited_rooms:
            raise Undeliverable("We are not in that room on Matrix.")
        await _guard("joining a room", _expect(self._client.join(room_id), nio.JoinResponse))
        raise DeliveryError("We just joined that room on Matrix.", retry_after=JOIN_DELAY)

    def _direct_room(self, person: str) -> str:
        for room in self._client.rooms.values():
            heroes = room.summary.heroes if room.summary else None  # members, also if they never wrote
            if room.member_count == 2 and (person in room.users or person in (heroes or ())):
                return str(room.room_id)
        raise Undeliverable(f"We have no direct chat with {person} on Matrix: they must write to us first.")

    async def _stop_typing(self, room_id: str) -> None:
        """End the typing indicator when a message is sent: the homeserver does not."""
        if self._typing.pop(room_id, 0.0) > time.monotonic():
            asked = self._client.room_typing(room_id, False)
            await self._try(_expect(asked, nio.RoomTypingResponse))

    async def _add_buttons(self, room_id: str, message: str, labels: list[str]) -> None:
        """Add reactions for people to press; without them people can answer in words."""
        incoming = self._offered.setdefault(message, [])
        for label in labels:
            name = transaction_id(f"{message} {label}")
            content = payloads.reaction_content(message, label)
            incoming.append(await self._try(self._client.send_event(room_id, REACTION, content, name)) or "")
        put_bounded(self._offered, message, [each for each in incoming if each], MAX_QUESTIONS)

    async def _redact(self, room_id: str, event: str) -> None:
        asked = self._client.room_redact(room_id, event, tx_id=transaction_id(f"redact {event}"))
        await _expect(asked, nio.RoomRedactResponse)

    async def _try(self, work: Awaitable[T]) -> T | None:
        """Await something unimportant."""
        try:
            return await work
        except FAILURES as failure:
            log.debug("an optional call failed: %s", failure)
            return None


async def _expect(asked: Coroutine[Any, Any, Any], kind: type[T]) -> T:
    return expect(await asked, kind)


async def _guard(doing: str, work: Awaitable[T]) -> T:
    try:
        return await work
    except FAILURES as failure:
        raise translate_error(failure, doing) from failure
