"""Messages that could not be decrypted: their keys are asked for, the person is told once, and they wait."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platforms import Arrival, Piece
from alipes.platforms.matrix.client import TROUBLE, Client
from alipes.platforms.matrix.hearing import Hearing, old
from alipes.platforms.matrix.inbound import said

log = logging.getLogger(__name__)

KEPT = 200
TEXT = (
    "I could not decrypt that message: its key did not reach me. I have asked for the key, and answer when "
    "it comes. If it does not, please send the message again."
)
Say = Callable[[Arrival, Piece], Awaitable[None]]


class Unread:
    """`changed` is called whenever what waits is to be kept anew."""

    def __init__(
        self,
        client: Client,
        hearing: Hearing,
        waiting: tuple[dict[str, Any], ...],
        *,
        say: Say,
        changed: Callable[[], None],
    ) -> None:
        self._client, self._hearing, self._say, self._changed = client, hearing, say, changed
        self._coming: set[str] = set()
        """Those that can be read, and are being handed over."""
        self._waiting = {str(each.get("event_id")): each for each in waiting if not old(each)}

    @property
    def waiting(self) -> tuple[dict[str, Any], ...]:
        return tuple(self._waiting.values())

    async def keep(self, room_id: str, event: Any) -> None:
        """Somebody said something that we cannot read."""
        found = said(event.source)
        if found is None or found.sender == self._client.user_id or old(event.source):
            return
        if self._client.olm is None or found.id in self._waiting:
            return
        made = self._hearing.unread(room_id, found.sender, found.thread)
        if not await self._hearing.welcomes(made):
            return
        first = all(each["room_id"] != room_id for each in self._waiting.values())
        self._waiting[found.id] = {**event.source, "room_id": room_id}
        if len(self._waiting) > KEPT:
            del self._waiting[next(iter(self._waiting))]
        self._changed()
        try:
            if event.session_id not in self._client.outgoing_key_requests:
                await self._client.request_room_key(event)
        except TROUBLE as theirs:
            log.warning("a key could not be asked for: %s", theirs)
        if first:
            await self._tell(made, Piece(text=TEXT, id=f"unread:{found.id}", reply_to=found.id))

    async def _tell(self, made: Arrival, piece: Piece) -> None:
        try:
            await self._say(made, piece)
        except DeliveryError as error:
            log.warning("nobody could be told that a message was not read: %s", error)

    def readable(self) -> list[tuple[str, Any]]:
        """Those that can be read by now, with their rooms; each is given once."""
        found = []
        for id, source in self._waiting.items():
            event = nio.Event.parse_encrypted_event(source)
            if id in self._coming or self._client.olm is None or not isinstance(event, nio.MegolmEvent):
                continue
            try:
                found.append((str(source["room_id"]), self._client.decrypt_event(event)))
            except nio.EncryptionError:
                continue
            self._coming.add(id)
        return found

    def done(self, id: str) -> None:
        self._waiting.pop(id, None)
        self._coming.discard(id)
        self._changed()
