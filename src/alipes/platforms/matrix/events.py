"""One event of a room becomes an arrival, with its files, and is handed over. It asks for no news itself."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Arrival, Piece, Take, Welcome
from alipes.platforms.matrix import parse
from alipes.platforms.matrix.client import TROUBLE, Client, given
from alipes.platforms.matrix.files import Files
from alipes.platforms.matrix.parse import Around, Place, Reader, Recall, Said, said
from alipes.platforms.matrix.payloads import REACTION

log = logging.getLogger(__name__)

OLDEST = 86_400.0
"""Seconds after which a message that nobody heard is not answered any more."""


class Hearing:
    """Raises whatever `take` raises, and `TROUBLE` kinds: then it is to be heard again."""

    def __init__(self, client: Client, recall: Recall, files: Files, take: Take, welcome: Welcome) -> None:
        self._client, self._recall, self._files = client, recall, files
        self._take, self._welcome = take, welcome
        self.reader = Reader()

    async def hear(self, room_id: str, event: Any) -> None:
        """An event that is decrypted, if it ever was encrypted."""
        said = parse.said(event.source)
        if said is None or not await self._genuine(event):
            return
        self._recall.keep(said.id, said)
        if said.sender == self._client.user_id or old(event.source):
            return
        made = await self._arrival(room_id, said)
        if made is not None:
            await self._take(made)

    def invited(self, room_id: str, by: str) -> Arrival:
        """The invitation as an arrival without words."""
        address = parse.address(self._place(room_id, by), "", by, self.reader)
        return Arrival(id=f"invitation:{room_id}", address=address, sender=by, name=by)

    async def welcomes(self, made: Arrival) -> bool:
        return await self._welcome(made)

    async def hand_over(self, made: Arrival) -> None:
        await self._take(made)

    def unread(self, room_id: str, sender: str, thread: str) -> Arrival:
        """One that nobody could read so far, without its words."""
        place = self._place(room_id, sender)
        return Arrival(id="", address=parse.address(place, thread, sender, self.reader), sender=sender)

    async def _arrival(self, room_id: str, event: Said) -> Arrival | None:
        place = self._place(room_id, event.sender)
        if event.type == REACTION:
            about = await self._recall.find(room_id, str(event.related.get("event_id") or ""))
            return parse.pressed(event, about, place, self.reader) if about else None
        if not parse.spoken(event):
            return None
        original = await self._recall.find(room_id, event.changes)
        if event.changes and (original is None or original.sender != event.sender):
            return None  # nobody puts words into the mouth of another
        if original is not None:
            self._recall.change(original.id, event.told)
        origin = original or event
        answered = await self._recall.find(room_id, origin.answers)
        around = Around(
            answered=answered,
            whose=self._place(room_id, answered.sender).who if answered else "",
            root=await self._recall.find(room_id, origin.thread),
            original=original,
        )
        made = parse.arrival(event, place, self.reader, around)
        if event.file and made.addressed and await self._welcome(made):
            made = await self._files.fetch(made, event)
        return made

    def _place(self, room_id: str, sender: str) -> Place:
        room, me = self._client.rooms.get(room_id), str(self._client.user_id)
        local = me[1:].partition(":")[0]
        if room is None:
            return Place(room_id, me, (local,), sender, group=False)
        ours = room.users[me].display_name if me in room.users else ""
        names = tuple(dict.fromkeys(filter(None, (ours, local))))
        who = room.user_name(sender) or sender
        return Place(room_id, me, names, who, group=room.member_count > 2)

    async def _genuine(self, event: Any) -> bool:
        """Whoever encrypted it is who the homeserver says it is from."""
        if not getattr(event, "decrypted", False) or event.sender == self._client.user_id:
            return True
        if not self._known(event):
            self._client.olm.users_for_key_query.add(event.sender)
            given(await self._client.keys_query(), nio.KeysQueryResponse)
        if self._known(event):
            return True
        log.warning("a message was left out: no device of its sender %s wrote it", event.sender)
        return False

    def _known(self, event: Any) -> bool:
        devices = self._client.device_store[event.sender].values()
        return any(device.curve25519 == event.sender_key for device in devices)


def old(source: dict[str, Any]) -> bool:
    said = source.get("origin_server_ts")
    return isinstance(said, int) and said / 1000 < time.time() - OLDEST


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
