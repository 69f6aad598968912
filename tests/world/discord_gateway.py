"""The gateway of the loopback Discord: sessions that outlive connections, and faulty connections on demand."""

import time
import zlib
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from tests.world import loopback
from tests.world.discord_state import DM, SEES_CONTENT, DiscordState

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11


class Session(Struct, eq=False):
    """A session, started by IDENTIFY. Events are kept and sent again after a RESUME."""

    id: str
    intents: int
    events: list[dict[str, Any]] = field(default_factory=list)
    line: "GatewayConnection | None" = None

    def note(self, name: str, data: dict[str, Any]) -> None:
        self.events.append({"op": DISPATCH, "t": name, "s": len(self.events) + 1, "d": data})
        if self.line:
            self.line.put(self.events[-1])


class GatewayConnection(loopback.Connection):
    """A connection, possibly compressed; has a session once it identified itself."""

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


class Gateway:
    """All sessions and connections. Changes by tests take effect at once."""

    def __init__(self, world: DiscordState, token: str) -> None:
        self.world, self.token = world, token
        self.interval = 41.25
        """Seconds between heartbeats, sent in HELLO."""
        self.acks = True
        self.refuses = False
        """New connections are answered 503."""
        self.disallowed = 0
        """Intents that are not enabled for the bot: IDENTIFY with one is closed with 4014."""
        self.sessions: dict[str, Session] = {}
        self.lines: set[GatewayConnection] = set()
        self.log: list[tuple[float, str]] = []
        """`connect`, `identify`, `resume`, `refused resume`, `beat`, `close CODE`, with their times."""
        self.record: Any = lambda *_: None

    def note(self, what: str) -> None:
        self.log.append((time.time(), what))
        self.record("gateway", what=what)

    def count(self, what: str) -> int:
        return sum(noted == what for _, noted in self.log)

    @property
    def ready(self) -> bool:
        """True if a client is connected and identified."""
        return any(line.session and not line.deaf.is_set() for line in self.lines)

    # Actions of tests.

    def dispatch(self, name: str, data: dict[str, Any], *, mentions_bot: bool = True, needs: int = 0) -> None:
        """Send to every session that subscribed to this kind (`needs`: its intent)."""
        for session in self.sessions.values():
            if session.intents & needs != needs:
                continue
            hidden = name.startswith("MESSAGE_") and not session.intents & SEES_CONTENT and not mentions_bot
            session.note(name, {**data, "content": "", "attachments": []} if hidden else data)

    def drop(self) -> None:
        """Drop every connection without a close frame."""
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
        """Freeze present connections: they stay open, without answers or events."""
        for line in self.lines:
            line.deafen()
            if line.session:
                line.session.line = None

    def close(self, code: int) -> None:
        for line in self.lines:
            line.close(code)

    def forget(self) -> None:
        """Forget all sessions, as after a long outage: none can be resumed."""
        self.sessions.clear()

    # Protocol.

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.refuses:
            self.note("refused")
            return web.Response(status=503)
        socket = web.WebSocketResponse(timeout=1.0, autoping=True)
        await socket.prepare(request)
        line = GatewayConnection(socket, request)
        self.lines.add(line)
        self.note("connect")
        line.put({"op": HELLO, "d": {"heartbeat_interval": int(self.interval * 1000)}, "s": None, "t": None})
        try:
            await line.serve(partial(self._hear, line))
        finally:
            if line.session and socket.close_code in (1000, 1001):
                self.sessions.pop(line.session.id, None)  # a session that was closed normally cannot be resumed
            self._part(line)
            self.note(f"close {socket.close_code}")
        return socket

    def _hear(self, line: GatewayConnection, message: dict[str, Any]) -> None:
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

    def _identify(self, line: GatewayConnection, token: str, intents: int) -> None:
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
        self.record("ready")
        return None

    def _resume(self, line: GatewayConnection, name: str, seen: int) -> None:
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
        self.record("ready")
        return None

    def _part(self, line: GatewayConnection) -> None:
        self.lines.discard(line)
        if line.session and line.session.line is line:
            line.session.line = None
        line.session = None


def notices_bot(world: DiscordState, data: dict[str, Any]) -> bool:
    """True if a bot without the message content intent may see the content."""
    here = world.places[data["channel_id"]].kind == DM
    return here or any(user["id"] == world.me.id for user in data["mentions"])
