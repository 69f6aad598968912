"""Receives from a Matrix homeserver: handles events in order per room and reads gaps first.

The sync position is saved only after everything before it was delivered, so a kill loses nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.platform import OnStatus
from alipes.platforms.connection import ConnectionRetry, Job, Lanes
from alipes.platforms.matrix.client import FAILURES, MatrixClient, MatrixError, expect
from alipes.platforms.matrix.events import MatrixEvents, UndecryptedEvents
from alipes.platforms.matrix.login import CrossSigner, classify_failure
from alipes.platforms.matrix.payloads import translate_error
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

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
