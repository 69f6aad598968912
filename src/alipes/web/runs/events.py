"""Live runs and their event logs. Each run is followed from its start, so that late clients miss nothing."""

import asyncio
import os
import random
import re
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import Struct, field

from alipes.core.app import App
from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Message
from alipes.kernel.turns import (
    ApprovalAnswered,
    ApprovalAsked,
    BusyMode,
    Event,
    Inbound,
    QuestionAnswered,
    QuestionAsked,
    Retracted,
    Said,
    Stop,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from alipes.runtime.json_text import to_json_bytes
from alipes.sessions.event_stream import TurnFollower
from alipes.web.endpoint import PLATFORM
from alipes.web.sse import SendFrames, frame

END_ID = "end"
"""Id of the last event."""
SKIP_DELTAS = -1
"""Offset of a client that continues with the next whole message, without its deltas."""
FEW_LISTENERS, PAUSE_PER_LISTENER_S, MAX_PAUSE_S = 8, 0.002, 0.25
"""Of a run with more listeners, each pauses after it was sent something, so that text accumulates: on average half as
long as this, and not all at the same moment."""
MAX_JOINED = 16
RESTARTED = "the process that ran the turn was restarted"
_POSITION = re.compile(r"(?P<said>[0-9]{1,9})(?:\.(?P<place>[0-9]{1,9})\.(?P<teller>[0-9a-f]{1,16}))?")


class EventPosition(Struct, frozen=True):
    """How far a client has read the events of a run."""

    said: int = 0
    """Number of messages received."""
    offset: int = 0
    """Number of events received after the last message."""
    log_id: str = ""
    """The event log that numbered them."""


def parse_position(number: str) -> EventPosition:
    """Parse a `Last-Event-ID`; anything unknown means the start."""
    found = _POSITION.fullmatch(number.strip())
    if found is None:
        return EventPosition()
    return EventPosition(int(found["said"]), int(found["place"] or 0), found["teller"] or "")


def encode_event(event: Event, number: str) -> bytes:
    return frame(to_json_bytes(event), event=str(event.__struct_config__.tag), id=number)


def replay_events(said: Iterable[Message], ended: TurnEnded, since: EventPosition) -> bytes:
    """The remaining events of a run that has ended."""
    numbered = list(enumerate(said, 1))
    received = since.said if since.said <= len(numbered) else 0
    return b"".join(encode_event(Said(each), str(n)) for n, each in numbered[received:]) + encode_event(ended, END_ID)


class RunEventLog:
    """Event log of one live run. Each client reads on from its own position."""

    def __init__(self) -> None:
        self._id = os.urandom(4).hex()
        self._said: list[bytes] = []
        self._deltas: list[bytes] = []
        """Events since the last message; the next message contains them whole."""
        self._previous_deltas: list[bytes] = []
        """The same for the previous message, for clients that have not read it yet."""
        self._ended = b""
        self._joined: dict[tuple[EventPosition, int, int, bool], tuple[bytes, EventPosition, bool]] = {}
        """What clients read last, by their position and the length of the log."""
        self._changed = asyncio.Event()
        self.mid_message = False
        """True while the deltas of a message that started before we joined are skipped."""
        self.closed = False
        """True if no more events will come, whether the run has ended or not."""
        self.listeners = 0
        self.latest: Event | None = None
        """The newest event that is not a part of a text."""
        self.waits_for: dict[str, ApprovalAsked | QuestionAsked] = {}
        """The open questions, also if another process runs the turn."""

    @contextmanager
    def listen(self) -> Iterator[None]:
        """A client reads on while entered."""
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1

    def add(self, event: Event, *, old: bool = False) -> None:
        """`old`: read from the journal, not happening now."""
        self._track(event)
        if isinstance(event, TextDelta | ThinkingDelta):
            if self.mid_message:
                return
        elif not old and isinstance(event, Said | TurnStarted | Retracted | ToolStarted | ToolFinished):
            self.mid_message = False
        if isinstance(event, Said):
            self._previous_deltas, self._deltas = self._deltas, []
            self._said.append(encode_event(event, str(len(self._said) + 1)))
        elif isinstance(event, TurnEnded):
            self._ended = encode_event(event, END_ID)
            self.closed = True
        else:
            number = f"{len(self._said)}.{len(self._deltas) + 1}.{self._id}"
            self._deltas.append(encode_event(event, number))
        self._wake()

    def _track(self, event: Event) -> None:
        match event:
            case TextDelta() | ThinkingDelta():
                return
            case ApprovalAsked() | QuestionAsked():
                self.waits_for[event.ask] = event
            case ApprovalAnswered(ask) | QuestionAnswered(ask):
                self.waits_for.pop(ask, None)
            case TurnEnded():
                self.waits_for.clear()
        self.latest = event

    def close(self) -> None:
        """Disconnect all clients; they may reconnect."""
        self.closed = True
        self._wake()

    def resume(self, since: EventPosition) -> tuple[bytes, EventPosition]:
        """The position to continue from and the frames to send first: deltas of another log are retracted."""
        if since.said > len(self._said):  # not an id of this log
            since = EventPosition()
        if since.said < len(self._said):
            return b"", EventPosition(since.said, SKIP_DELTAS)
        if since.offset and since.log_id != self._id:
            return encode_event(Retracted(RESTARTED), str(since.said)), EventPosition(since.said)
        return b"", since

    def read_after(self, since: EventPosition) -> tuple[bytes, EventPosition, bool]:
        """All frames after `since`, the new position, and whether that was all. Clients at the same position share
        the bytes."""
        key = (since, len(self._said), len(self._deltas), self.closed)
        if key not in self._joined:
            if len(self._joined) >= MAX_JOINED:
                self._joined.clear()
            self._joined[key] = self._join_after(since)
        return self._joined[key]

    def _join_after(self, since: EventPosition) -> tuple[bytes, EventPosition, bool]:
        late_deltas, place = [], max(since.offset, 0)
        if since.said == len(self._said) - 1 and since.offset != SKIP_DELTAS:
            late_deltas = self._previous_deltas[place:]
        pieces = self._deltas[place:] if since.said == len(self._said) else self._deltas
        frames = (*late_deltas, *self._said[since.said :], *pieces, self._ended)
        return b"".join(frames), EventPosition(len(self._said), len(self._deltas), self._id), self.closed

    async def wait_for_events(self) -> None:
        """Wait for more events or for the end of the log."""
        if not self.closed:
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


T = TypeVar("T")


class LiveRun(Struct, frozen=True):
    turn: str
    inbound: Inbound
    log: RunEventLog = field(default_factory=RunEventLog)


class LiveRuns:
    """The runs being followed. `run` must be running."""

    def __init__(self, app: App, *, workdir: str = "") -> None:
        """`workdir`: working directory of their tools."""
        self._app, self.workdir = app, workdir
        self._live: dict[str, LiveRun] = {}
        self._joining: dict[str, asyncio.Future[LiveRun]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._open = asyncio.Event()
        self._leaving = False
        self.stopping = False
        """A run was stopped for a caller that left."""

    async def run(self, *, resumed: bool = True) -> None:
        """Serve until cancelled. `resumed`: runs that were resumed at startup are followed from here on."""
        async with asyncio.TaskGroup() as self._group:
            self._open.set()
            found = await self._app.store.api_runs.unfinished(PLATFORM) if resumed else ()
            for turn, inbound in found:
                await self.follow(turn, inbound)
            await asyncio.Event().wait()

    def disconnect_all(self) -> None:
        """Disconnect all clients at shutdown; they may reconnect to the next process."""
        self._leaving = True
        for live in self._live.values():
            live.log.close()

    def find(self, turn: str) -> LiveRun | None:
        return self._live.get(turn)

    async def begin(self, inbound: Inbound, busy: BusyMode | None = None) -> str | None:
        """Submit a message and follow its run. Returns its id; None for a duplicate. Raises like `submit`."""
        await self._open.wait()
        started: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._spawn(self._run_new(inbound, busy, started))
        return await started

    async def follow(self, turn: str, inbound: Inbound) -> LiveRun:
        """Follow a run that was started elsewhere or before a restart."""
        await self._open.wait()
        if (live := self._live.get(turn)) is not None:
            return live
        if (joining := self._joining.get(turn)) is None:
            joining = self._joining[turn] = asyncio.get_running_loop().create_future()
            self._spawn(self._run_joined(turn, inbound, joining))
        return await asyncio.shield(joining)

    async def stream_events(self, live: LiveRun, since: EventPosition, send: SendFrames) -> None:
        """Send all events after `since` until the run ends or clients are disconnected."""
        log = live.log
        first, since = log.resume(since)
        with log.listen():
            if first:
                await send(first)
            finished = False
            while not finished:
                frames, since, finished = log.read_after(since)
                if frames:
                    await send(frames)
                    if not finished and log.listeners > FEW_LISTENERS:
                        await asyncio.sleep(min(log.listeners * PAUSE_PER_LISTENER_S, MAX_PAUSE_S) * random.random())
                elif not finished:
                    await log.wait_for_events()

    async def handle_disconnect(self, live: LiveRun) -> None:
        """A client disconnected. If it was the last one, a run with `on_disconnect: stop` is stopped."""
        if live.inbound.attended and not live.log.listeners and not live.log.closed:
            await self._app.sessions.post(live.inbound.address.key, Stop("disconnected", "disconnected", live.turn))

    def stop_soon(self, key: str, stop: Stop) -> None:
        """Stop a run for a caller that is being cancelled and cannot wait; not at shutdown, which suspends it."""
        if not self._leaving:
            self.stopping = True
            self._spawn(self._app.sessions.post(key, stop))

    async def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside the runs, until the server ends."""
        await self._open.wait()
        self._spawn(work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        self._group.create_task(work)

    async def _run_new(self, inbound: Inbound, busy: BusyMode | None, started: "asyncio.Future[str | None]") -> None:
        try:
            async with self._app.sessions.ask(inbound, busy, usual="steer") as stream:
                turn = stream.turn
                if turn:
                    self._live[turn] = LiveRun(turn, inbound)
                if turn and inbound.attended and started.cancelled():  # the caller left meanwhile
                    self.stop_soon(inbound.address.key, Stop("disconnected", "disconnected", turn))
                _settle(started, turn)
                if turn:
                    await self._follow(stream, self._live[turn])
        except AlipesError as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _run_joined(self, turn: str, inbound: Inbound, joining: "asyncio.Future[LiveRun]") -> None:
        async with self._app.sessions.follow(inbound.address.key, turn) as stream:
            live = self._live[turn] = LiveRun(turn, inbound)
            live.log.mid_message = True  # perhaps
            for _ in range(stream.behind):
                live.log.add(await anext(stream), old=True)
            for question in self.questions(inbound.address.key, turn):
                live.log.add(question)
            del self._joining[turn]
            _settle(joining, live)
            await self._follow(stream, live)

    async def _follow(self, stream: TurnFollower, live: LiveRun) -> None:
        try:
            async for event in stream:
                live.log.add(event)
        finally:
            del self._live[live.turn]
            live.log.close()

    def questions(self, key: str, turn: str) -> tuple[ApprovalAsked | QuestionAsked, ...]:
        """The open questions of a run; empty if another process runs it."""
        return tuple(asked for waiting, asked in self._app.sessions.questions.open(key) if waiting == turn)


def _settle(future: "asyncio.Future[T]", outcome: T) -> None:
    if not future.done():  # the caller may be gone
        future.set_result(outcome)
