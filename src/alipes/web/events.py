"""Endpoint for what changes in the home: ids only, for every conversation, process and surface."""

import asyncio
import os
import re
from collections import deque
from collections.abc import Iterable
from functools import partial

from msgspec import Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.kernel.turns import HomeChanged
from alipes.runtime.json_text import to_json_bytes
from alipes.web.endpoint import ApiCall, ApiEndpoint, Caller
from alipes.web.runs.events import LiveRuns
from alipes.web.runs.lookup import may_see
from alipes.web.sse import EventStream, SendFrames, frame

MAX_KEPT = 2000
"""Events that a client which reconnects can still get; after more it gets `reset`."""
PAUSE_S = 0.05
"""Seconds in which changes accumulate, so that a busy home does not wake every client for each row."""
_ID = re.compile(r"([0-9a-f]{8})\.([0-9]{1,15})")
_HEADERS = {"Last-Event-ID": "The id of the last event received; the stream continues after it, or says `reset`."}


class KeptEvent(Struct, frozen=True):
    number: int
    session: str
    """The conversation it is about; empty: the whole home."""
    frame: bytes


class HomeEvents:
    """The last changes of the home, encoded once for all clients. It watches from the first client on."""

    def __init__(self, app: App, runs: LiveRuns) -> None:
        """`runs` is the parent of the task that watches."""
        self._app, self._runs = app, runs
        self._epoch = os.urandom(4).hex()
        self._events: deque[KeptEvent] = deque(maxlen=MAX_KEPT)
        self._number = 0
        self._changed = asyncio.Event()
        self._watching: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Return once no change can be missed."""
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_future()
            await self._runs.spawn(self._watch(self._watching))
        await asyncio.shield(self._watching)

    async def _watch(self, watching: "asyncio.Future[None]") -> None:
        async with self._app.store.changes.watch() as changes:
            watching.set_result(None)
            missed = 0
            while batch := await changes.take_all():
                found = dict.fromkeys(each.event for each in batch if isinstance(each.event, HomeChanged))
                if changes.missed > missed:
                    missed = changes.missed
                    self._add("reset", {})
                self._add_all(found)
                await asyncio.sleep(PAUSE_S)

    def _add_all(self, changes: Iterable[HomeChanged]) -> None:
        for change in changes:
            given = {"id": change.id, "session": change.session, "status": change.status}
            session = change.session or (change.id if change.kind in ("session", "session_deleted") else "")
            self._add(change.kind, {name: value for name, value in given.items() if value}, session)

    def _add(self, kind: str, data: dict[str, str], session: str = "") -> None:
        self._number += 1
        encoded = frame(to_json_bytes(data), event=kind, id=f"{self._epoch}.{self._number}")
        self._events.append(KeptEvent(self._number, session, encoded))
        self._changed.set()
        self._changed = asyncio.Event()

    def resume(self, last_id: str) -> tuple[bytes, int]:
        """What to send first, and the number of the last event that the client has then."""
        found = _ID.fullmatch(last_id.strip())
        oldest = self._events[0].number if self._events else self._number + 1
        if found and found[1] == self._epoch and oldest - 1 <= int(found[2]) <= self._number:
            return b"", int(found[2])
        here = f"{self._epoch}.{self._number}"
        if last_id.strip():
            return frame(b"{}", event="reset", id=here), self._number
        return frame(b"{}", event="ready", id=here), self._number

    async def write(self, caller: Caller, last_id: str, send: SendFrames) -> None:
        """Send all changes that the caller may see, until it disconnects."""
        first, number = self.resume(last_id)
        if first:
            await send(first)
        filtered = None if caller.may("admin") or caller.sees_all else _VisibleSessions(self._app, caller)
        while True:
            changed, behind = self._changed, self._number - number
            if behind > len(self._events):
                first, number = self.resume("lost")
                await send(first)
                continue
            fresh = [self._events[-place] for place in range(behind, 0, -1)]
            number = self._number
            frames = [each.frame for each in fresh if filtered is None or await filtered.has(each.session)]
            if frames:
                await send(b"".join(frames))
            if number == self._number:
                await changed.wait()


class _VisibleSessions:
    """Which conversations a caller may see. Once known, it stays so: they do not change hands."""

    def __init__(self, app: App, caller: Caller) -> None:
        self._store, self._caller = app.store.api_runs, caller
        self._known: dict[str, bool] = {}

    async def has(self, session: str) -> bool:
        """False also for changes of the home, which only its owner may follow."""
        if not session:
            return False
        if session not in self._known:
            row = await self._store.session(session)
            if row is None:
                return False
            if len(self._known) > MAX_KEPT:
                self._known.clear()
            self._known[session] = may_see(self._caller, row.address)
        return self._known[session]


class EventEndpoints:
    def __init__(self, app: App, runs: LiveRuns) -> None:
        self._events = HomeEvents(app, runs)

    @ApiEndpoint("GET", "/v1/events", "read", headers=_HEADERS, streams=True)
    async def listen(self, call: ApiCall) -> Response:
        """Stream what changes: ids of conversations, runs, questions and so on, which the client then fetches."""
        await self._events.open()
        last_id = call.request.headers.get("last-event-id", "")
        return EventStream(partial(self._events.write, call.caller, last_id))
