"""Calls that wait for a client's answer. Each ends once, by whoever is first; what comes later is dropped."""

import asyncio
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from alipes.plugin import Act, Json, ToolError

from . import protocol as wire

About: TypeAlias = wire.Progress | wire.Result | wire.Broke
"""What a client says about a call."""
SHOWN = 32
"""Words of progress that may wait to be shown; those beyond are left out."""
REMEMBERED = 1000


class Peer(Protocol):
    """Whoever runs the tool."""

    def post(self, words: wire.Told) -> None: ...


class OpenCall:
    """One call on its way: to its client, and back to the tool that waits in the turn."""

    def __init__(self, tool: str, act: Act, peer: Peer, *, limit: float) -> None:
        self.id = secrets.token_hex(8)
        self.tool, self.peer, self.limit = tool, peer, limit
        self.session, self.act_id = act.session, act.call_id
        self.why: wire.Why | None = None
        """How it ended; None while it is open."""
        self._act = act
        self._letters: asyncio.Queue[About | ToolError] = asyncio.Queue()

    def question(self, args: Mapping[str, Json]) -> wire.Call:
        return wire.Call(self.id, self.tool, dict(args), self.limit, self.session)

    async def answer(self) -> object:
        """What the client gives. Its progress is shown from here: this is the turn's own task, which may
        be held up or cancelled, and the one that reads from the client may not."""
        while True:
            match await self._letters.get():
                case wire.Progress(text=text):
                    await self._act.progress(text)
                case wire.Result(output=output):
                    return output
                case wire.Broke(message=message):
                    raise ToolError(message or f"{self.tool} failed without a word")
                case ToolError() as error:
                    raise error

    def hear(self, words: About) -> None:
        """The client says something about it, and it is still open."""
        if not isinstance(words, wire.Progress):
            self.why = "answered"
        elif self._letters.qsize() >= SHOWN:
            return
        self._letters.put_nowait(words)

    def fail(self, why: str) -> None:
        """Its client is gone."""
        if self.why is None:
            self.why = "disconnected"
            self._letters.put_nowait(ToolError(why))

    def cancel(self, reason: str) -> None:
        """Tell the client that nobody waits any more; once, whoever comes first."""
        if self.why is None:
            self.why = "cancelled"
            self.peer.post(wire.Cancelled(self.id, reason))

    def expire(self) -> None:
        if self.why is None:
            self.why = "timeout"
            self.peer.post(wire.Timeout(self.id, self.limit))


class Calls:
    """All that are open, and how the last ones ended."""

    def __init__(self) -> None:
        self._open: dict[str, OpenCall] = {}
        self._over: dict[str, wire.Why] = {}

    @contextmanager
    def opened(self, call: OpenCall) -> Iterator[OpenCall]:
        """However we are left, the client knows it afterwards."""
        self._open[call.id] = call
        try:
            yield call
        finally:
            call.cancel("cancelled")  # says nothing if it ended, or if the stop was told already
            del self._open[call.id]
            self._over[call.id] = call.why or "unknown"
            while len(self._over) > REMEMBERED:
                del self._over[next(iter(self._over))]

    def of(self, peer: Peer) -> list[OpenCall]:
        return [call for call in self._open.values() if call.peer is peer]

    def hear(self, words: About, peer: Peer) -> None:
        """Give it to the call it is about; an answer to one that is over is dropped, and its client told."""
        call = self._open.get(words.call)
        if call is not None and call.peer is peer and call.why is None:
            call.hear(words)
        elif not isinstance(words, wire.Progress):  # progress may cross with the end, and means nothing then
            why = call.why if call is not None and call.peer is peer else self._over.get(words.call)
            peer.post(wire.Dropped(words.call, why or "unknown"))

    def stopped(self, session: str, acts: Collection[str], reason: str) -> None:
        """The turn was stopped in which these were called."""
        for call in self._open.values():
            if call.session == session and call.act_id in acts:
                call.cancel(reason)
