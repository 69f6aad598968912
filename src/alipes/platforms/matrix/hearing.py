"""One event of a room becomes an arrival, with its files, and is handed over. It asks for no news itself."""

import logging
import time
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.platforms import Arrival, Take, Welcome
from alipes.platforms.matrix import inbound
from alipes.platforms.matrix.client import Client, given
from alipes.platforms.matrix.files import Files
from alipes.platforms.matrix.inbound import Around, Place, Reader, Said
from alipes.platforms.matrix.outbound import REACTION
from alipes.platforms.matrix.recall import Recall

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
        said = inbound.said(event.source)
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
        address = inbound.address(self._place(room_id, by), "", by, self.reader)
        return Arrival(id=f"invitation:{room_id}", address=address, sender=by, name=by)

    async def welcomes(self, made: Arrival) -> bool:
        return await self._welcome(made)

    async def hand_over(self, made: Arrival) -> None:
        await self._take(made)

    def unread(self, room_id: str, sender: str, thread: str) -> Arrival:
        """One that nobody could read so far, without its words."""
        place = self._place(room_id, sender)
        return Arrival(id="", address=inbound.address(place, thread, sender, self.reader), sender=sender)

    async def _arrival(self, room_id: str, event: Said) -> Arrival | None:
        place = self._place(room_id, event.sender)
        if event.type == REACTION:
            about = await self._recall.find(room_id, str(event.related.get("event_id") or ""))
            return inbound.pressed(event, about, place, self.reader) if about else None
        if not inbound.spoken(event):
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
        made = inbound.arrival(event, place, self.reader, around)
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
