"""One time of listening to a homeserver: its news go to rooms, in order in each; gaps are read before.

Where we listen on from is kept only when everything before it was handed over: a kill loses nothing.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.platform import Tell
from alipes.platforms.connection import Job, Lanes, Trouble
from alipes.platforms.matrix.client import TROUBLE, Client, Refusal, given
from alipes.platforms.matrix.cursor import Batch, Progress
from alipes.platforms.matrix.events import Hearing, Unread
from alipes.platforms.matrix.login import Signer, judged
from alipes.platforms.matrix.payloads import ours
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

FAR_BACK = 500
"""Events, at most, that are read of a gap."""
AT_ONCE = 50
TRIES = 6
_STATE = ["m.room.member", "m.room.encryption"]
_WORDS = ["m.room.message", "m.room.encrypted", "m.reaction", "m.sticker", *_STATE]
_NAMES = {"lazy_load_members": True, "include_redundant_members": True}
"""Of large rooms only those members are told who speak; but those each time: rooms are only in memory."""
FILTER = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {
        "timeline": {"types": _WORDS, "limit": AT_ONCE, **_NAMES},
        "state": {"types": _STATE, **_NAMES},
        "ephemeral": {"types": []},
        "account_data": {"types": []},
    },
}


class Listening:
    """`run` asks for news; what they bring happens in lanes, one per room."""

    def __init__(
        self, client: Client, hearing: Hearing, unread: Unread, progress: Progress, signer: Signer
    ) -> None:
        self._client, self._hearing, self._unread, self._progress = client, hearing, unread, progress
        self._signer, self._vouched = signer, client.olm is None
        self.lanes: Lanes
        self._reading: dict[str, str] = {}
        """By room, the message up to which it is about to be marked as read."""
        self._since = progress.since
        self._first, self._well = True, False
        """Who begins, or had trouble, does not wait for news: it is to be known soon that all is well."""

    async def run(self, tell: Tell, poll: float) -> None:
        """Serve until cancelled. Raises `LoggedOut`."""
        trouble = Trouble("Matrix", tell, judged)
        while True:
            try:
                await self._round(poll)
                await self._client.tend()
                if not self._vouched:
                    await self._signer.vouch()
                    self._vouched = True
            except TROUBLE as theirs:
                self._well = False
                await trouble.wait(theirs)
            else:
                self._well = True
                trouble.over()

    async def _round(self, poll: float) -> None:
        since, first = self._since, self._first
        try:
            # Rooms are only in memory, so who begins asks for all that there is to know of them.
            told = await self._client.news(since, FILTER, poll if self._well else 0, whole=first)
        except Refusal as refused:
            if since and refused.status == 400 and refused.wait is None:
                log.warning(
                    "the homeserver does not know how far we have listened; we begin anew: %s", refused
                )
                self._since = ""
            raise
        self._since, self._first = told.next_batch, False
        batch = self._progress.begin(told.next_batch)
        for room_id, room in told.rooms.invite.items():
            self._put(room_id, batch, partial(self._invited, room_id, room.invite_state))
        for room_id, room in told.rooms.join.items() if since else ():  # before we came, nobody meant us
            if room.timeline.events:
                self._put(room_id, batch, partial(self._room, room_id, room.timeline, since))
        for room_id in told.rooms.leave:
            self._client.rooms.pop(room_id, None)
        if told.to_device_events or first:
            for room_id, event in self._unread.readable():
                self._put(room_id, batch, partial(self._late, room_id, event))
        batch.done()

    def _put(self, lane: str, batch: Batch, job: Job) -> None:
        batch.add()

        async def work() -> None:
            await job()
            batch.done()  # not if it failed or was cut off: then it comes again

        self.lanes.put(lane, work)

    async def _room(self, room_id: str, timeline: Any, since: str) -> None:
        events = list(timeline.events)
        if timeline.limited and timeline.prev_batch:
            events = [*await self._gap(room_id, timeline.prev_batch, since), *events]
        for event in _meant(events, str(self._client.user_id)):
            if isinstance(event, nio.MegolmEvent):
                await self._unread.keep(room_id, event)
            else:
                await self._patiently(partial(self._hearing.hear, room_id, event))
        if last := getattr(events[-1], "event_id", ""):
            self._mark(room_id, last)

    async def _late(self, room_id: str, event: Any) -> None:
        await self._patiently(partial(self._hearing.hear, room_id, event))
        self._unread.done(event.event_id)

    async def _patiently(self, job: Job) -> None:
        """Some need to ask the homeserver; while it does not answer, nothing of the room passes them."""
        attempt = 0
        while True:
            try:
                await job()
            except TROUBLE as theirs:
                attempt += 1
                if attempt == TRIES:
                    raise ours(theirs, "taking in a message") from theirs
                log.warning("a message could not be taken in, and is tried again: %s", theirs)
                wait = theirs.wait if isinstance(theirs, Refusal) else None
                await asyncio.sleep(backoff(attempt) if wait is None else wait)
            else:
                return

    async def _gap(self, room_id: str, behind: str, since: str) -> list[Any]:
        """What was said between `since` and the earliest that we were told, the oldest first."""
        found: list[Any] = []

        async def page() -> None:
            nonlocal behind
            asked = await self._client.room_messages(
                room_id, behind, since, limit=100, message_filter={"types": _WORDS}
            )
            told: Any = given(asked, nio.RoomMessagesResponse)
            found.extend(told.chunk)
            behind = told.end if told.chunk and told.end != behind else ""

        while behind and len(found) < FAR_BACK:
            await self._patiently(page)
        return list(reversed(found))

    async def _invited(self, room_id: str, state: Iterable[Any]) -> None:
        """We go where people call us who may speak. What a stranger is told, the gateway says."""
        me = self._client.user_id
        calls = [event for event in state if getattr(event, "state_key", "") == me]
        if not calls:
            return
        call = calls[-1]
        made = self._hearing.invited(room_id, call.sender)
        if await self._hearing.welcomes(made):
            await self._patiently(partial(self._join, room_id))
        elif (getattr(call, "content", None) or {}).get("is_direct"):
            await self._hearing.hand_over(made)

    async def _join(self, room_id: str) -> None:
        try:
            given(await self._client.join(room_id), nio.JoinResponse)
        except Refusal as refused:
            if refused.wait is not None or refused.status >= 500:
                raise
            log.warning("an invitation could not be followed: %s", refused)  # it was taken back

    def _mark(self, room_id: str, event: str) -> None:
        """People see how far we have read; nobody waits for that."""
        busy = room_id in self._reading
        self._reading[room_id] = event
        if not busy:
            self.lanes.tasks.create_task(self._marking(room_id))

    async def _marking(self, room_id: str) -> None:
        marked = ""
        while (event := self._reading[room_id]) != marked:
            try:
                given(
                    await self._client.room_read_markers(room_id, event, event), nio.RoomReadMarkersResponse
                )
            except TROUBLE as theirs:
                log.debug("a room was not marked as read: %s", theirs)
            marked = event
        del self._reading[room_id]


def _meant(events: list[Any], me: str) -> list[Any]:
    """Without what was said before we were called there."""
    ours = [
        (number, event.source)
        for number, event in enumerate(events)
        if isinstance(event, nio.RoomMemberEvent) and event.state_key == me
    ]
    came = [(number, source) for number, source in ours if _joins(source)]
    if not came:
        return events
    number, source = came[-1]
    calls = [at for at, its in ours if at < number and its["content"].get("membership") == "invite"]
    if calls:
        return events[calls[-1] :]
    return events if _before(source) == "invite" else events[number:]


def _joins(source: Any) -> bool:
    return source["content"].get("membership") == "join" and _before(source) != "join"


def _before(source: Any) -> str:
    unsigned = source.get("unsigned") or {}
    return str((unsigned.get("prev_content") or {}).get("membership", ""))
