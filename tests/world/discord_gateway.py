"""The gateway of our Discord: sessions that outlive their connection, and connections that misbehave when told."""

import time
import zlib
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from tests.world import loopback
from tests.world.discord_world import DM, SEES_CONTENT, World

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11


class Session(Struct, eq=False):
    """What one IDENTIFY began. Events are kept, to be told again after a RESUME."""

    id: str
    intents: int
    events: list[dict[str, Any]] = field(default_factory=list)
    line: "Line | None" = None

    def note(self, name: str, data: dict[str, Any]) -> None:
        self.events.append({"op": DISPATCH, "t": name, "s": len(self.events) + 1, "d": data})
        if self.line:
            self.line.put(self.events[-1])


class Line(loopback.Line):
    """May be packed; belongs to a session once one was named."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        super().__init__(socket, request)
        self.session: Session | None = None
        self.beats = 0
        self._zlib = zlib.compressobj() if request.query.get("compress") == "zlib-stream" else None

    async def send(self, raw: bytes) -> None:
        if self._zlib:
            await self.socket.send_bytes(self._zlib.compress(raw) + self._zlib.flush(zlib.Z_SYNC_FLUSH))
        else:
            await super().send(raw)


class Switchboard:
    """Every session and connection. What tests do to it takes effect at once."""

    def __init__(self, world: World, token: str) -> None:
        self.world, self.token = world, token
        self.interval = 41.25
        """Seconds between heartbeats, as HELLO tells."""
        self.acks = True
        self.refuses = False
        """New connections are answered 503."""
        self.disallowed = 0
        """Intents that the bot's owner did not switch on: IDENTIFY with one is closed with 4014."""
        self.sessions: dict[str, Session] = {}
        self.lines: set[Line] = set()
        self.log: list[tuple[float, str]] = []
        """`connect`, `identify`, `resume`, `refused resume`, `beat`, `close CODE`, with their times."""
        self.told: Any = lambda *_: None

    def note(self, what: str) -> None:
        self.log.append((time.time(), what))
        self.told("gateway", what=what)

    def count(self, what: str) -> int:
        return sum(noted == what for _, noted in self.log)

    @property
    def ready(self) -> bool:
        """Someone is connected, identified, and not cut off."""
        return any(line.session and not line.deaf.is_set() for line in self.lines)

    # What tests do.

    def dispatch(self, name: str, data: dict[str, Any], *, mentions_bot: bool = True, needs: int = 0) -> None:
        """Tell every session that asked for this kind (`needs`: its intent)."""
        for session in self.sessions.values():
            if session.intents & needs != needs:
                continue
            hidden = name.startswith("MESSAGE_") and not session.intents & SEES_CONTENT and not mentions_bot
            session.note(name, {**data, "content": "", "attachments": []} if hidden else data)

    def drop(self) -> None:
        """Every connection is gone without a word."""
        for line in tuple(self.lines):
            self._part(line)
            line.abort()

    def ask_to_reconnect(self) -> None:
        for line in self.lines:
            line.put({"op": RECONNECT, "d": None, "s": None, "t": None})

    def invalidate(self, *, resumable: bool = False) -> None:
        for line in self.lines:
            if not resumable and line.session:
                self.sessions.pop(line.session.id, None)
            line.put({"op": INVALID, "d": resumable, "s": None, "t": None})

    def deafen(self) -> None:
        """Present connections stay open and are never served again: no FIN, no answer, no events."""
        for line in self.lines:
            line.deafen()
            if line.session:
                line.session.line = None

    def close(self, code: int) -> None:
        for line in self.lines:
            line.close(code)

    def forget(self) -> None:
        """As after a long outage: no session can be resumed."""
        self.sessions.clear()

    # What the wire does.

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.refuses:
            self.note("refused")
            return web.Response(status=503)
        socket = web.WebSocketResponse(timeout=1.0, autoping=True)
        await socket.prepare(request)
        line = Line(socket, request)
        self.lines.add(line)
        self.note("connect")
        line.put({"op": HELLO, "d": {"heartbeat_interval": int(self.interval * 1000)}, "s": None, "t": None})
        try:
            await line.serve(partial(self._hear, line))
        finally:
            if line.session and socket.close_code in (1000, 1001):
                self.sessions.pop(line.session.id, None)  # who says goodbye does not come back to it
            self._part(line)
            self.note(f"close {socket.close_code}")
        return socket

    def _hear(self, line: Line, message: dict[str, Any]) -> None:
        match message:
            case {"op": 1}:
                line.beats += 1
                self.note("beat")
                if self.acks:
                    line.put({"op": ACK, "d": None, "s": None, "t": None})
            case {"op": 2, "d": {"token": token, "intents": intents}}:
                self._identify(line, token, intents)
            case {"op": 6, "d": {"token": self.token, "session_id": name, "seq": seen}}:
                self._resume(line, name, seen)
            case {"op": 3 | 4 | 8}:
                pass
            case _:
                line.close(4002)

    def _identify(self, line: Line, token: str, intents: int) -> None:
        self.note("identify")
        if token != self.token:
            return line.close(4004)
        if intents & self.disallowed:
            return line.close(4014)
        session = Session(self.world.snowflake(), intents, line=line)
        self.sessions[session.id] = line.session = session
        session = line.session
        session.note("READY", {
            "v": 10, "user": self.world.user(self.world.me.id), "session_id": session.id, "shard": [0, 1],
            "guilds": [{"id": self.world.guild, "unavailable": True}], "private_channels": [],
            "resume_gateway_url": self.world.root.replace("http", "ws", 1) + "/gateway/",
            "application": {"id": self.world.application, "flags": 0}, "session_type": "normal",
        })  # fmt: skip
        session.note("GUILD_CREATE", self.world.whole_guild())
        self.told("ready")
        return None

    def _resume(self, line: Line, name: str, seen: int) -> None:
        session = self.sessions.get(name)
        if session is None or not isinstance(seen, int):
            self.note("refused resume")
            return line.put({"op": INVALID, "d": False, "s": None, "t": None})
        self.note("resume")
        if session.line:
            session.line.session = None
        session.line, line.session = line, session
        for event in session.events[seen:]:
            line.put(event)
        session.note("RESUMED", {})
        self.told("ready")
        return None

    def _part(self, line: Line) -> None:
        self.lines.discard(line)
        if line.session and line.session.line is line:
            line.session.line = None
        line.session = None


def notices_bot(world: World, data: dict[str, Any]) -> bool:
    """Discord shows a bot without the message content intent only what is meant for it."""
    here = world.places[data["channel_id"]].kind == DM
    return here or any(user["id"] == world.me.id for user in data["mentions"])
