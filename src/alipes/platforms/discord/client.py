"""discord.py's client on our loop: events go where we say, and it connects and closes in one task of ours."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

import aiohttp
import discord
import yarl
from discord import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import Route
from discord.state import ConnectionState
from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.kernel.platform import Tell
from alipes.platforms.connection import brief
from alipes.platforms.discord.http import Http
from alipes.runtime.tasks import backoff

GRACE = 10.0
"""Seconds beyond the interval of heartbeats after which silence means that nobody is there."""


class Body(Protocol):
    """Whoever the heart beats for."""

    tasks: asyncio.TaskGroup
    grace: float

    def alive(self) -> None: ...


class Heart:
    """Sends heartbeats until stopped. In place of the library's `KeepAliveHandler`, with its words."""

    def __init__(
        self, socket: "Socket", interval: float, tasks: asyncio.TaskGroup, alive: Callable[[], None]
    ) -> None:
        self._socket, self.interval, self._tasks, self._alive = socket, interval, tasks, alive
        self._stopped = asyncio.Event()
        self._sent = 0.0
        self._waiting = False
        self.latency = float("inf")
        self.deaf = False
        """A heartbeat was not answered by the time of the next one: what we send does not arrive."""

    def start(self) -> None:
        self._tasks.create_task(self._run())

    def stop(self) -> None:
        self._stopped.set()

    def tick(self) -> None:
        pass

    def ack(self) -> None:
        self._waiting = False
        self.latency = time.perf_counter() - self._sent
        self._alive()

    def beat(self) -> dict[str, Any]:
        return self.get_payload()

    def get_payload(self) -> dict[str, Any]:
        self._sent, self._waiting = time.perf_counter(), True
        return {"op": self._socket.HEARTBEAT, "d": self._socket.sequence}

    async def _run(self) -> None:
        while not await self._stops_within(self.interval):
            if self._waiting:
                self.deaf = True
                return
            try:
                async with asyncio.timeout(self.interval):
                    await self._socket.send_heartbeat(self.get_payload())
            except (OSError, RuntimeError, TimeoutError, aiohttp.ClientError, ConnectionClosed):
                return  # whoever reads from the socket notices too, and knows what to do

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopped.wait()
        except TimeoutError:
            return False


class Socket(DiscordWebSocket):
    """The library makes a `KeepAliveHandler` when HELLO comes and puts it here; a `Heart` takes its place."""

    heart: Heart | None = None

    @property  # type: ignore[override]
    def _keep_alive(self) -> Heart | None:
        return self.heart

    @_keep_alive.setter
    def _keep_alive(self, given: Any) -> None:
        if self.heart:
            self.heart.stop()
        self.heart = None
        if given is not None:
            body = cast(Body, self._connection._get_client())
            self.heart = Heart(self, given.interval, body.tasks, body.alive)
            self._max_heartbeat_timeout = given.interval + body.grace

    async def poll_event(self) -> None:
        await super().poll_event()
        if self.heart and self.heart.deaf:
            # Ends like a connection that someone else closed: the session can be resumed.
            await self.close()
            await super().poll_event()


log = logging.getLogger(__name__)

CONNECT = 30.0
"""Seconds in which the gateway must have greeted us."""
FATAL = {
    4004: "Discord does not accept the bot's token any more",
    4013: "Discord does not know the intents we ask for",
    4014: "the bot may not read messages: switch on “Message Content Intent” on its page "
    "in Discord's developer portal (Bot, Privileged Gateway Intents)",
}
TROUBLE = (OSError, TimeoutError, aiohttp.ClientError, discord.HTTPException, discord.RateLimited)
Hear = Callable[[str, tuple[Any, ...]], None]


class State(ConnectionState["Client"]):
    """The library's memory of guilds and channels."""

    # The library would collect guilds for a while, in a task of its own; we take each when it comes.

    def _add_ready_state(self, guild: discord.Guild) -> bool:
        return False

    async def _delay_ready(self) -> None:
        self._ready_task = None


class Knot(Struct, frozen=True):
    """Where a session with the gateway can be taken up again."""

    session: str
    sequence: int | None
    gateway: yarl.URL


class Client(discord.Client):
    """`hear` is told every event at once, in the gateway's order; the library starts no tasks for them."""

    def __init__(
        self, http: Callable[[Any], Http], hear: Hear, *, grace: float = GRACE, calm: float = 5.0
    ) -> None:
        """`calm`: at most so long is waited before a session is begun in place of one that was refused."""
        intents = discord.Intents.none()
        intents.guilds = intents.guild_messages = intents.dm_messages = intents.message_content = True
        self._make_http, self._hear = http, hear
        self.grace, self._calm = grace, calm
        self.tasks: asyncio.TaskGroup
        self._tell: Tell = lambda state, why: None
        self._up = False
        self._failures = 0
        # Else the log is told that the parts for voice calls are missing, which nobody asked for.
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(
            intents=intents,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
        )

    def _get_state(self, **options: Any) -> State:
        self.http: Http = self._make_http(self.loop)
        return State(
            dispatch=self.dispatch, handlers=self._handlers, hooks=self._hooks, http=self.http, **options
        )

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        if event in ("connect", "resumed"):
            self._up, self._failures = True, 0
            self.alive()
        self._hear(event, args)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        pass  # one shard: the library's five seconds of manners are ours to keep, see `serve`

    def alive(self) -> None:
        """A heartbeat was answered, or a session begun."""
        if self._up:
            self._tell("ready", "")

    async def serve(self, token: str, tell: Tell) -> None:
        """Log in and stay connected until cancelled. Raises ConfigError where only the operator can help."""
        self._tell = tell
        gateway = await self._reach(token)
        knot: Knot | None = None
        while True:
            try:
                knot = await self._converse(gateway, knot)
            except ReconnectWebSocket as again:
                knot = (self._knot() or knot) if again.resume else None
                self._down("Discord's gateway went silent or asked us to connect anew")
                if not again.resume:
                    await asyncio.sleep(random.uniform(0.2, 1.0) * self._calm)
            except discord.ConnectionClosed as closed:
                if closed.code in FATAL:
                    raise ConfigError(
                        f"{FATAL[closed.code]} (Discord closed with {closed.code})."
                    ) from closed
                knot = None
                await self._rest(f"Discord closed the connection with {closed.code}")
            except TROUBLE as trouble:
                knot = self._knot() or knot
                await self._rest(f"Discord's gateway cannot be reached ({brief(trouble)})")

    async def _reach(self, token: str) -> yarl.URL:
        """Log in, however long that takes, and ask for the gateway."""
        while True:
            try:
                await self.login(token)
                told = await self.http.request(Route("GET", "/gateway/bot"))
            except discord.LoginFailure as unknown:
                raise ConfigError(
                    "Discord does not know the bot's token: check it, or make a new one."
                ) from unknown
            except TROUBLE as trouble:
                await self._rest(f"Discord cannot be reached ({brief(trouble)})")
            else:
                return yarl.URL(told["url"])

    async def _converse(self, gateway: yarl.URL, knot: Knot | None) -> Knot | None:
        """Live one connection. It ends by an error that says how to go on."""
        self.ws = None  # type: ignore[assignment]  # the last one's knot is in our hands
        where: dict[str, Any] = {"gateway": gateway}
        if knot:
            where = {
                "gateway": knot.gateway, "session": knot.session, "sequence": knot.sequence, "resume": True,
            }  # fmt: skip
        async with asyncio.timeout(CONNECT):
            self.ws = await Socket.from_client(self, **where)
        while True:
            await self.ws.poll_event()

    def _knot(self) -> Knot | None:
        ws = self.ws
        if ws is None or not ws.session_id:
            return None
        return Knot(ws.session_id, ws.sequence, ws.gateway)

    def _down(self, why: str) -> None:
        self._up = False
        if isinstance(self.ws, Socket) and self.ws.heart:
            self.ws.heart.stop()
        log.warning("%s", why)
        self._tell("broken", why)

    async def _rest(self, why: str) -> None:
        self._down(why)
        self._failures += 1
        await asyncio.sleep(backoff(self._failures))

    async def end(self) -> None:
        """Close what is open. Whoever is cancelled meanwhile is cancelled afterwards."""
        self._up = False
        if isinstance(self.ws, Socket) and self.ws.heart:
            self.ws.heart.stop()
        await self.http.close()
