"""Open calls to clients. Each ends exactly once; later answers are dropped."""

import asyncio
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from alipes.plugin import Json, ToolContext, ToolError

from . import protocol as wire

CallUpdate: TypeAlias = wire.Progress | wire.Result | wire.Failure
"""A client's message about a call."""
MAX_PROGRESS = 32
"""Progress messages that may wait to be shown; more are dropped."""
REMEMBERED = 1000


class Peer(Protocol):
    """The client that runs the tool."""

    def post(self, message: wire.ServerMessage) -> None: ...


class OpenCall:
    """One call: sent to its client, awaited by the tool in the turn."""

    def __init__(self, tool: str, act: ToolContext, peer: Peer, *, limit: float) -> None:
        self.id = secrets.token_hex(8)
        self.tool, self.peer, self.limit = tool, peer, limit
        self.session, self.act_id = act.session, act.call_id
        self.why: wire.Why | None = None
        """How it ended; None while it is open."""
        self._act = act
        self._updates: asyncio.Queue[CallUpdate | ToolError] = asyncio.Queue()

    def to_wire(self, args: Mapping[str, Json]) -> wire.Call:
        return wire.Call(self.id, self.tool, dict(args), self.limit, self.session)

    async def answer(self) -> object:
        """The client's result. Progress is shown from here: this is the turn's own task, which may be
        delayed or cancelled; the task that reads from the client may not."""
        while True:
            match await self._updates.get():
                case wire.Progress(text=text):
                    await self._act.progress(text)
                case wire.Result(output=output):
                    return output
                case wire.Failure(message=message):
                    raise ToolError(message or f"{self.tool} failed without a message")
                case ToolError() as error:
                    raise error

    def receive(self, message: CallUpdate) -> None:
        """Pass on a client's message about this open call."""
        if not isinstance(message, wire.Progress):
            self.why = "answered"
        elif self._updates.qsize() >= MAX_PROGRESS:
            return
        self._updates.put_nowait(message)

    def fail(self, why: str) -> None:
        """Its client disconnected."""
        if self.why is None:
            self.why = "disconnected"
            self._updates.put_nowait(ToolError(why))

    def cancel(self, reason: str) -> None:
        """Inform the client, once, that nobody is waiting."""
        if self.why is None:
            self.why = "cancelled"
            self.peer.post(wire.Cancelled(self.id, reason))

    def expire(self) -> None:
        if self.why is None:
            self.why = "timeout"
            self.peer.post(wire.Timeout(self.id, self.limit))


class Calls:
    """All open calls, and how the latest ones ended."""

    def __init__(self) -> None:
        self._open: dict[str, OpenCall] = {}
        self._ended: dict[str, wire.Why] = {}

    @contextmanager
    def open(self, call: OpenCall) -> Iterator[OpenCall]:
        """Cancels the call at the client if it is left without an answer."""
        self._open[call.id] = call
        try:
            yield call
        finally:
            call.cancel("cancelled")  # does nothing if it ended or was already cancelled
            del self._open[call.id]
            self._ended[call.id] = call.why or "unknown"
            while len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def of(self, peer: Peer) -> list[OpenCall]:
        return [call for call in self._open.values() if call.peer is peer]

    def receive(self, message: CallUpdate, peer: Peer) -> None:
        """Pass it to its call; an answer to an ended call is dropped, and the client is informed."""
        call = self._open.get(message.call)
        if call is not None and call.peer is peer and call.why is None:
            call.receive(message)
        elif not isinstance(message, wire.Progress):  # late progress is harmless
            why = call.why if call is not None and call.peer is peer else self._ended.get(message.call)
            peer.post(wire.Dropped(message.call, why or "unknown"))

    def cancel_all(self, session: str, acts: Collection[str], reason: str) -> None:
        """Cancel the calls of a stopped turn."""
        for call in self._open.values():
            if call.session == session and call.act_id in acts:
                call.cancel(reason)
