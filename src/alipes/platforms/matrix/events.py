"""Handles room events: converts them to incoming messages with their files, and waits for missing keys."""

import logging
import time
from collections.abc import Callable
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import IncomingMessage, MessagePart, OnMessage
from alipes.platforms.matrix import parse
from alipes.platforms.matrix.client import FAILURES, MatrixClient, expect
from alipes.platforms.matrix.files import MatrixFiles
from alipes.platforms.matrix.parse import EventCache, ParseOptions, RelatedEvents, RoomEvent, RoomInfo, parse_event
from alipes.platforms.matrix.payloads import REACTION
from alipes.platforms.messenger import MessageSender, Messenger
from alipes.platforms.settings import MatrixSettings
from alipes.platforms.state_files import MAX_AGE

log = logging.getLogger(__name__)


class MatrixEvents:
    """Handles one event at a time. Raises what `on_message` raises, and `FAILURES`: then it is handled again."""

    def __init__(
        self,
        messenger: Messenger[MatrixSettings],
        client: MatrixClient,
        cache: EventCache,
        files: MatrixFiles,
        on_message: OnMessage,
    ) -> None:
        self._messenger, self._client = messenger, client
        self._cache, self._files, self.deliver = cache, files, on_message

    @property
    def _options(self) -> ParseOptions:
        settings = self._messenger.settings
        return ParseOptions(settings.per_user, settings.group, self._messenger.commands)

    async def handle(self, room_id: str, event: Any) -> None:
        """Handle an event that is not encrypted or was decrypted."""
        said = parse.parse_event(event.source)
        if said is None or not await self._is_genuine(event):
            return
        self._cache.put(said.id, said)
        if said.sender == self._client.user_id or is_stale(event.source):
            return
        incoming = await self._to_message(room_id, said)
        if incoming is not None:
            await self.deliver(incoming)

    async def may_fetch(self, incoming: IncomingMessage) -> bool:
        return await self._messenger.may_fetch(incoming)

    def make_empty(self, id: str, room_id: str, sender: str, thread: str = "") -> IncomingMessage:
        """A message without text, for an invitation or an undecrypted event."""
        address = parse.chat_address(self._room_info(room_id, sender), thread, sender, self._options)
        return IncomingMessage(id=id, address=address, sender=sender, name=sender)

    async def _to_message(self, room_id: str, event: RoomEvent) -> IncomingMessage | None:
        place = self._room_info(room_id, event.sender)
        if event.type == REACTION:
            about = await self._cache.find(room_id, str(event.relation.get("event_id") or ""))
            return parse.parse_reaction(event, about, place, self._options) if about else None
        if not parse.is_from_person(event):
            return None
        original = await self._cache.find(room_id, event.replaces)
        if event.replaces and (original is None or original.sender != event.sender):
            return None  # only the author may edit a message
        if original is not None:
            self._cache.update(original.id, event.current_content)
        origin = original or event
        answered = await self._cache.find(room_id, origin.replies_to)
        around = RelatedEvents(
            answered=answered,
            whose=self._room_info(room_id, answered.sender).who if answered else "",
            root=await self._cache.find(room_id, origin.thread),
            original=original,
        )
        incoming = parse.parse_message(event, place, self._options, around)
        if event.file and incoming.addressed and await self.may_fetch(incoming):
            incoming = await self._files.fetch(incoming, event)
        return incoming

    def _room_info(self, room_id: str, sender: str) -> RoomInfo:
        room, me = self._client.rooms.get(room_id), str(self._client.user_id)
        local = me[1:].partition(":")[0]
        if room is None:
            return RoomInfo(room_id, me, (local,), sender, group=False)
        ours = room.users[me].display_name if me in room.users else ""
        names = tuple(dict.fromkeys(filter(None, (ours, local))))
        who = room.user_name(sender) or sender
        return RoomInfo(room_id, me, names, who, group=room.member_count > 2)

    async def _is_genuine(self, event: Any) -> bool:
        """True if the device that encrypted the event belongs to its sender."""
        if not getattr(event, "decrypted", False) or event.sender == self._client.user_id:
            return True
        if not self._known(event):
            self._client.olm.users_for_key_query.add(event.sender)
            expect(await self._client.keys_query(), nio.KeysQueryResponse)
        if self._known(event):
            return True
        log.warning("dropped a message: no device of its sender %s encrypted it", event.sender)
        return False

    def _known(self, event: Any) -> bool:
        devices = self._client.device_store[event.sender].values()
        return any(device.curve25519 == event.sender_key for device in devices)


def is_stale(source: dict[str, Any]) -> bool:
    said = source.get("origin_server_ts")
    return isinstance(said, int) and said / 1000 < time.time() - MAX_AGE


MAX_UNDECRYPTED = 200
UNDECRYPTED_TEXT = (
    "I could not decrypt that message: its key is missing. I requested the key and will answer when it "
    "arrives. If it does not, please send the message again."
)


class UndecryptedEvents:
    """Events that wait for their keys. `changed` is called when the list must be saved."""

    def __init__(
        self,
        client: MatrixClient,
        events: MatrixEvents,
        waiting: tuple[dict[str, Any], ...],
        *,
        sender: MessageSender,
        changed: Callable[[], None],
    ) -> None:
        self._client, self._events, self._sender, self._changed = client, events, sender, changed
        self._delivering: set[str] = set()
        """Events that were decrypted and are being delivered."""
        self._waiting = {str(each.get("event_id")): each for each in waiting if not is_stale(each)}

    @property
    def waiting(self) -> tuple[dict[str, Any], ...]:
        return tuple(self._waiting.values())

    async def keep(self, room_id: str, event: Any) -> None:
        """Add an event that we cannot decrypt."""
        found = parse_event(event.source)
        if found is None or found.sender == self._client.user_id or is_stale(event.source):
            return
        if self._client.olm is None or found.id in self._waiting:
            return
        incoming = self._events.make_empty("", room_id, found.sender, found.thread)
        if not await self._events.may_fetch(incoming):
            return
        first = all(each["room_id"] != room_id for each in self._waiting.values())
        self._waiting[found.id] = {**event.source, "room_id": room_id}
        if len(self._waiting) > MAX_UNDECRYPTED:
            del self._waiting[next(iter(self._waiting))]
        self._changed()
        try:
            if event.session_id not in self._client.outgoing_key_requests:
                await self._client.request_room_key(event)
        except FAILURES as failure:
            log.warning("requesting a key failed: %s", failure)
        if first:
            await self._notify(incoming, MessagePart(text=UNDECRYPTED_TEXT, id=f"unread:{found.id}", reply_to=found.id))

    async def _notify(self, incoming: IncomingMessage, part: MessagePart) -> None:
        try:
            await self._sender.send(incoming.address, part)
        except DeliveryError as error:
            log.warning("could not report an undecrypted message: %s", error)

    def decrypt_ready(self) -> list[tuple[str, Any]]:
        """Events that can be decrypted now, with their rooms; each is returned once."""
        found = []
        for id, source in self._waiting.items():
            event = nio.Event.parse_encrypted_event(source)
            if id in self._delivering or self._client.olm is None or not isinstance(event, nio.MegolmEvent):
                continue
            try:
                found.append((str(source["room_id"]), self._client.decrypt_event(event)))
            except nio.EncryptionError:
                continue
            self._delivering.add(id)
        return found

    def done(self, id: str) -> None:
        self._waiting.pop(id, None)
        self._delivering.discard(id)
        self._changed()
