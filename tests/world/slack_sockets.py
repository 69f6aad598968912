"""Socket Mode of the loopback Slack: connections, envelopes, and redelivery without an acknowledgement."""

import asyncio
import time
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from tests.world import loopback
from tests.world.slack_state import APP


class Envelope(Struct):
    """An envelope sent on a connection; `acked`: when it was acknowledged, zero: never."""

    id: str
    kind: str
    payload: dict[str, Any]
    key: str = ""
    sent: list[float] = field(default_factory=list)
    tried: int = 0
    acked: float = 0.0
    answer: dict[str, Any] | None = None


class SocketConnection(loopback.Connection):
    leaving = False
    """It was asked to disconnect."""


class SocketMode:
    """All connections and envelopes. Changes by tests take effect at once."""

    def __init__(self) -> None:
        self.patience = 3.0
        """Seconds within which an envelope must be acknowledged."""
        self.retries = (0.05, 60.0, 300.0)
        """Seconds before each redelivery of an unacknowledged event."""
        self.refuses = False
        """New connections are answered 503."""
        self.silent = False
        """New connections get no hello."""
        self.enabled = True
        """Socket Mode is switched on."""
        self.lines: list[SocketConnection] = []
        self.envelopes: list[Envelope] = []
        self.log: list[str] = []
        """`connect`, `refused`, `close`."""
        self.record: Any = lambda *_, **__: None
        self._tickets: set[str] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._count = 0

    def note(self, what: str) -> None:
        self.log.append(what)
        self.record("socket", what=what)

    def count(self, what: str) -> int:
        return self.log.count(what)

    def ticket(self) -> str:
        self._count += 1
        self._tickets.add(f"ticket-{self._count}")
        return f"ticket-{self._count}"

    # Actions of tests.

    def send(self, kind: str, payload: dict[str, Any], key: str = "") -> Envelope:
        self._count += 1
        envelope = Envelope(f"envelope-{self._count}", kind, payload, key)
        self.envelopes.append(envelope)
        self._bring(envelope)
        return envelope

    def again(self, envelope: Envelope) -> None:
        """Send it again although it was acknowledged."""
        envelope.acked = 0.0
        self._bring(envelope)

    def of(self, key: str) -> list[Envelope]:
        return [each for each in self.envelopes if each.key == key]

    def drop(self) -> None:
        """Drop every connection without a close frame."""
        for line in tuple(self.lines):
            self.lines.remove(line)
            line.abort()

    def refresh(self, reason: str = "refresh_requested", *, closes: float | None = 0.3) -> None:
        """Ask connections to disconnect, and close them after `closes` seconds; None: at `close_leaving`."""
        for line in self.lines:
            line.leaving = True
            line.put({"type": "disconnect", "reason": reason, "debug_info": {"host": "house"}})
            if closes is not None:
                self._later(closes, line.close)

    def close_leaving(self) -> None:
        """Close the connections that were asked to disconnect."""
        for line in self.lines:
            if line.leaving:
                line.close()

    def deafen(self) -> None:
        """Freeze present connections: they stay open, without pongs or events."""
        for line in self.lines:
            line.deafen()
        self.lines.clear()

    # Protocol.

    def _bring(self, envelope: Envelope) -> None:
        if envelope.acked:
            return
        lines = [line for line in self.lines if not line.leaving]
        message: dict[str, Any] = {
            "envelope_id": envelope.id, "type": envelope.kind, "payload": envelope.payload,
            "accepts_response_payload": envelope.kind != "events_api",
        }  # fmt: skip
        if envelope.kind == "events_api":
            reason = "timeout" if envelope.tried else ""
            message |= {"retry_attempt": envelope.tried, "retry_reason": reason}
        if lines:
            envelope.sent.append(time.time())
            lines[envelope.tried % len(lines)].put(message)
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
        line = SocketConnection(socket, request)
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
        try:
            await line.serve(self._hear)
        finally:
            if line in self.lines:
                self.lines.remove(line)
            self.note("close")
        return socket

    def _hear(self, answer: dict[str, Any]) -> None:
        envelope = next(each for each in self.envelopes if each.id == answer["envelope_id"])
        envelope.acked, envelope.answer = time.time(), answer.get("payload")
        self.record("acked", id=envelope.id)
