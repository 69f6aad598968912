"""Receives from a Matrix homeserver: handles events in order per room, reads gaps first, and waits for missing keys.

The sync position is saved only after everything before it was delivered, so a kill loses nothing.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import IncomingMessage, MessagePart, OnMessage, OnStatus
from alipes.platforms.connection import ConnectionRetry, Job, Lanes
from alipes.platforms.matrix import parse
from alipes.platforms.matrix.client import FAILURES, MatrixClient, MatrixError, expect
from alipes.platforms.matrix.files import MatrixFiles
from alipes.platforms.matrix.login import CrossSigner, classify_failure
from alipes.platforms.matrix.parse import EventCache, ParseOptions, RelatedEvents, RoomEvent, RoomInfo, parse_event
from alipes.platforms.matrix.payloads import REACTION, translate_error
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.platforms.messenger import MessageSender, Messenger
from alipes.platforms.state_files import MAX_AGE
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)


class MatrixEvents:
    """Handles one event at a time. Raises what `on_message` raises, and `FAILURES`: then it is handled again."""

    def __init__(
        self,
        messenger: Messenger[MatrixConfig],
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


MAX_BACKFILL = 500
"""Events of a gap that are read at most."""
TIMELINE_LIMIT = 50
MAX_ATTEMPTS = 6
_STATE = ["m.room.member", "m.room.encryption"]
_WORDS = ["m.room.message", "m.room.encrypted", "m.reaction", "m.sticker", *_STATE]
_NAMES = {"lazy_load_members": True, "include_redundant_members": True}
"""Large rooms report only members who write, but each time: rooms are only kept in memory."""
FILTER = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {
        "timeline": {"types": _WORDS, "limit": TIMELINE_LIMIT, **_NAMES},
        "state": {"types": _STATE, **_NAMES},
        "ephemeral": {"types": []},
        "account_data": {"types": []},
    },
}


class SyncBatch:
    """The events of one sync response; done when each part of it is."""

    def __init__(self, since: str, settled: Callable[[], None]) -> None:
        self.since, self._settled = since, settled
        self.left = 1
        """Unfinished parts; one counts for the code that still adds parts."""

    def add(self) -> None:
        self.left += 1

    def done(self) -> None:
        self.left -= 1
        if not self.left:
            self._settled()


class SyncPosition:
    """Position up to which everything was delivered. Batches start in order and finish in any order."""

    def __init__(self, since: str, moved: Callable[[str], None]) -> None:
        self.since, self._moved = since, moved
        self._open: deque[SyncBatch] = deque()

    def begin(self, since: str) -> SyncBatch:
        batch = SyncBatch(since, self._settle)
        self._open.append(batch)
        return batch

    def _settle(self) -> None:
        before = self.since
        while self._open and not self._open[0].left:
            self.since = self._open.popleft().since
        if self.since != before:
            self._moved(self.since)


class MatrixReceiver:
    """`run` polls for events; they are handled in lanes, one per room."""

    def __init__(
        self,
        client: MatrixClient,
        handler: MatrixEvents,
        undecrypted: UndecryptedEvents,
        progress: SyncPosition,
        signer: CrossSigner,
    ) -> None:
        self._client, self._events, self._undecrypted, self._progress = client, handler, undecrypted, progress
        self._signer, self._signed_device = signer, client.olm is None
        self.lanes: Lanes
        self._reading: dict[str, str] = {}
        """By room, the message up to which it is being marked as read."""
        self._since = progress.since
        self._first, self._well = True, False
        """The first poll, and polls after a failure, do not wait, so that success is reported soon."""

    async def run(self, on_status: OnStatus, poll: float) -> None:
        """Serve until cancelled. Raises `LoggedOut`."""
        retry = ConnectionRetry("Matrix", on_status, classify_failure)
        while True:
            try:
                await self._sync_once(poll)
                await self._client.maintain_keys()
                if not self._signed_device:
                    await self._signer.ensure_signed()
                    self._signed_device = True
            except FAILURES as failure:
                self._well = False
                await retry.wait(failure)
            else:
                self._well = True
                retry.succeeded()

    async def _sync_once(self, poll: float) -> None:
        since, first = self._since, self._first
        try:
            # rooms are only kept in memory, so the first poll asks for their full state
            response = await self._client.poll_sync(since, FILTER, poll if self._well else 0, whole=first)
        except MatrixError as refused:
            if since and refused.status == 400 and refused.wait is None:
                log.warning("the homeserver does not know our sync position; starting over: %s", refused)
                self._since = ""
            raise
        self._since, self._first = response.next_batch, False
        batch = self._progress.begin(response.next_batch)
        for room_id, room in response.rooms.invite.items():
            self._put(room_id, batch, partial(self._handle_invite, room_id, room.invite_state))
        for room_id, room in (
            response.rooms.join.items() if since else ()
        ):  # messages from before our first start are not for us
            if room.timeline.events:
                self._put(room_id, batch, partial(self._handle_timeline, room_id, room.timeline, since))
        for room_id in response.rooms.leave:
            self._client.rooms.pop(room_id, None)
        if response.to_device_events or first:
            for room_id, event in self._undecrypted.decrypt_ready():
                self._put(room_id, batch, partial(self._handle_decrypted, room_id, event))
        batch.done()

    def _put(self, lane: str, batch: SyncBatch, job: Job) -> None:
        batch.add()

        async def work() -> None:
            await job()
            batch.done()  # not if it failed or was cancelled: then it comes again

        self.lanes.put(lane, work)

    async def _handle_timeline(self, room_id: str, timeline: Any, since: str) -> None:
        events = list(timeline.events)
        if timeline.limited and timeline.prev_batch:
            events = [*await self._read_gap(room_id, timeline.prev_batch, since), *events]
        for event in _meant(events, str(self._client.user_id)):
            if isinstance(event, nio.MegolmEvent):
                await self._undecrypted.keep(room_id, event)
            else:
                await self._with_retries(partial(self._events.handle, room_id, event))
        if last := getattr(events[-1], "event_id", ""):
            self._mark_read(room_id, last)

    async def _handle_decrypted(self, room_id: str, event: Any) -> None:
        await self._with_retries(partial(self._events.handle, room_id, event))
        self._undecrypted.done(event.event_id)

    async def _with_retries(self, job: Job) -> None:
        """Retry a job that calls the homeserver; meanwhile the room's later events wait."""
        attempt = 0
        while True:
            try:
                await job()
            except FAILURES as failure:
                attempt += 1
                if attempt == MAX_ATTEMPTS:
                    raise translate_error(failure, "handling a message") from failure
                log.warning("handling a message failed and is retried: %s", failure)
                wait = failure.wait if isinstance(failure, MatrixError) else None
                await asyncio.sleep(backoff(attempt) if wait is None else wait)
            else:
                return

    async def _read_gap(self, room_id: str, behind: str, since: str) -> list[Any]:
        """Events between `since` and the earliest one that we received, oldest first."""
        found: list[Any] = []

        async def page() -> None:
            nonlocal behind
            asked = await self._client.room_messages(
                room_id, behind, since, limit=100, message_filter={"types": _WORDS}
            )
            response: Any = expect(asked, nio.RoomMessagesResponse)
            found.extend(response.chunk)
            behind = response.end if response.chunk and response.end != behind else ""

        while behind and len(found) < MAX_BACKFILL:
            await self._with_retries(page)
        return list(reversed(found))

    async def _handle_invite(self, room_id: str, state: Iterable[Any]) -> None:
        """Join rooms of people with access. The gateway answers strangers."""
        me = self._client.user_id
        calls = [event for event in state if getattr(event, "state_key", "") == me]
        if not calls:
            return
        call = calls[-1]
        incoming = self._events.make_empty(f"invitation:{room_id}", room_id, call.sender)
        if await self._events.may_fetch(incoming):
            await self._with_retries(partial(self._join, room_id))
        elif (getattr(call, "content", None) or {}).get("is_direct"):
            await self._events.deliver(incoming)

    async def _join(self, room_id: str) -> None:
        try:
            expect(await self._client.join(room_id), nio.JoinResponse)
        except MatrixError as refused:
            if refused.wait is not None or refused.status >= 500:
                raise
            log.warning("joining a room failed: %s", refused)  # the invitation was withdrawn

    def _mark_read(self, room_id: str, event: str) -> None:
        """Show how far we have read; nothing waits for that."""
        busy = room_id in self._reading
        self._reading[room_id] = event
        if not busy:
            self.lanes.tasks.create_task(self._send_read_markers(room_id))

    async def _send_read_markers(self, room_id: str) -> None:
        marked = ""
        while (event := self._reading[room_id]) != marked:
            try:
                expect(await self._client.room_read_markers(room_id, event, event), nio.RoomReadMarkersResponse)
            except FAILURES as failure:
                log.debug("marking a room as read failed: %s", failure)
            marked = event
        del self._reading[room_id]


def _meant(events: list[Any], me: str) -> list[Any]:
    """Drop events from before we were invited."""
    ours = [
        (number, event.source)
        for number, event in enumerate(events)
        if isinstance(event, nio.RoomMemberEvent) and event.state_key == me
    ]
    incoming = [
        (number, source)
        for number, source in ours
        if source["content"].get("membership") == "join" and _before(source) != "join"
    ]
    if not incoming:
        return events
    number, source = incoming[-1]
    calls = [at for at, its in ours if at < number and its["content"].get("membership") == "invite"]
    if calls:
        return events[calls[-1] :]
    return events if _before(source) == "invite" else events[number:]


def _before(source: Any) -> str:
    unsigned = source.get("unsigned") or {}
    return str((unsigned.get("prev_content") or {}).get("membership", ""))
