"""Socket Mode of our Slack: lines, envelopes, and what is brought again when nobody acknowledged it."""

import asyncio
import contextlib
import time
from typing import Any

import msgspec
from aiohttp import WSMsgType, web
from msgspec import Struct, field

from tests.world.slack_world import APP


class Envelope(Struct):
    """Something a line is told; `acked`: when that was acknowledged, zero: never."""

    id: str
    kind: str
    payload: dict[str, Any]
    key: str = ""
    sent: list[float] = field(default_factory=list)
    tried: int = 0
    acked: float = 0.0
    answer: dict[str, Any] | None = None


class Line:
    """A websocket, from Slack's side."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.socket, self.request = socket, request
        self.deaf = asyncio.Event()
        self.leaving = False
        self._queue: asyncio.Queue[dict[str, Any] | int] = asyncio.Queue()

    def put(self, message: dict[str, Any]) -> None:
        self._queue.put_nowait(message)

    def close(self) -> None:
        self._queue.put_nowait(1000)

    def abort(self) -> None:
        if self.request.transport:
            self.request.transport.abort()

    async def write(self) -> None:
        while not self.deaf.is_set():
            match await self._queue.get():
                case int(code):
                    await self.socket.close(code=code)
                    return
                case message if not self.deaf.is_set():
                    with contextlib.suppress(ConnectionError):
                        await self.socket.send_str(msgspec.json.encode(message).decode())


class Switchboard:
    """Every line and envelope. What tests do to it takes effect at once."""

    def __init__(self) -> None:
        self.patience = 3.0
        """Seconds in which an envelope must be acknowledged."""
        self.retries = (0.05, 60.0, 300.0)
        """Seconds after which an event is brought again, each time it was not."""
        self.refuses = False
        """New lines are answered 503."""
        self.silent = False
        """New lines hear no hello."""
        self.enabled = True
        """Socket Mode is switched on."""
        self.lines: list[Line] = []
        self.envelopes: list[Envelope] = []
        self.log: list[str] = []
        """`connect`, `refused`, `close`."""
        self.told: Any = lambda *_, **__: None
        self._tickets: set[str] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._count = 0

    def note(self, what: str) -> None:
        self.log.append(what)
        self.told("socket", what=what)

    def count(self, what: str) -> int:
        return self.log.count(what)

    def ticket(self) -> str:
        self._count += 1
        self._tickets.add(f"ticket-{self._count}")
        return f"ticket-{self._count}"

    # What tests do.

    def send(self, kind: str, payload: dict[str, Any], key: str = "") -> Envelope:
        self._count += 1
        envelope = Envelope(f"envelope-{self._count}", kind, payload, key)
        self.envelopes.append(envelope)
        self._bring(envelope)
        return envelope

    def again(self, envelope: Envelope) -> None:
        """It is brought once more, though it was acknowledged."""
        envelope.acked = 0.0
        self._bring(envelope)

    def of(self, key: str) -> list[Envelope]:
        return [each for each in self.envelopes if each.key == key]

    def drop(self) -> None:
        """Every line is gone without a word."""
        for line in tuple(self.lines):
            self.lines.remove(line)
            line.abort()

    def refresh(self, reason: str = "refresh_requested", *, closes: float = 0.3) -> None:
        """Lines are told to go, and closed a little later."""
        for line in self.lines:
            line.leaving = True
            line.put({"type": "disconnect", "reason": reason, "debug_info": {"host": "house"}})
            self._later(closes, line.close)

    def deafen(self) -> None:
        """Present lines stay open and are never served again: no FIN, no answer to pings, no events."""
        for line in self.lines:
            line.deaf.set()
            line.put({})
        self.lines.clear()

    # What the wire does.

    def _bring(self, envelope: Envelope) -> None:
        if envelope.acked:
            return
        lines = [line for line in self.lines if not line.leaving]
        told: dict[str, Any] = {
            "envelope_id": envelope.id, "type": envelope.kind, "payload": envelope.payload,
            "accepts_response_payload": envelope.kind != "events_api",
        }  # fmt: skip
        if envelope.kind == "events_api":
            reason = "timeout" if envelope.tried else ""
            told |= {"retry_attempt": envelope.tried, "retry_reason": reason}
        if lines:
            envelope.sent.append(time.time())
            lines[envelope.tried % len(lines)].put(told)
        tried, envelope.tried = envelope.tried, envelope.tried + 1
        if envelope.kind == "events_api" and tried < len(self.retries):
            wait = self.retries[tried] + (self.patience if lines else 0.0)
            self._later(wait, self._bring, envelope)

    def _later(self, seconds: float, *what: Any) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, *what))

    def end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self.drop()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.refuses or request.query.get("ticket") not in self._tickets:
            self.note("refused")
            return web.Response(status=503 if self.refuses else 401)
        self._tickets.discard(request.query["ticket"])
        socket = web.WebSocketResponse(timeout=1.0, autoping=True)
        await socket.prepare(request)
        line = Line(socket, request)
        self.note("connect")
        if not self.silent:
            about = {"host": "house", "approximate_connection_time": 18_060}
            info = {"app_id": APP}
            line.put(
                {"type": "hello", "num_connections": 1, "debug_info": about, "connection_info": info}
                if self.enabled
                else {"type": "disconnect", "reason": "link_disabled"}
            )
            self.lines.append(line)
        writing = asyncio.get_running_loop().create_task(line.write())
        try:
            await self._read(line)
            if line.deaf.is_set():
                await asyncio.Event().wait()
        finally:
            writing.cancel()
            await asyncio.wait([writing])
            if line in self.lines:
                self.lines.remove(line)
            self.note("close")
        return socket

    async def _read(self, line: Line) -> None:
        deaf = asyncio.get_running_loop().create_task(line.deaf.wait())
        try:
            while not line.deaf.is_set():
                reading = asyncio.get_running_loop().create_task(line.socket.receive())
                await asyncio.wait([reading, deaf], return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    await asyncio.wait([reading])
                    return
                message = reading.result()
                if message.type is not WSMsgType.TEXT:
                    return
                self._hear(msgspec.json.decode(message.data))
        finally:
            deaf.cancel()
            await asyncio.wait([deaf])

    def _hear(self, answer: dict[str, Any]) -> None:
        envelope = next(each for each in self.envelopes if each.id == answer["envelope_id"])
        envelope.acked, envelope.answer = time.time(), answer.get("payload")
        self.told("acked", id=envelope.id)
