"""discord.py's client on our loop: it calls us for each event, and connects and closes in one of our tasks."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any, cast

import aiohttp
import discord
import yarl
from discord import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import Route
from discord.state import ConnectionState
from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.kernel.platform import OnStatus
from alipes.platforms.connection import describe_error
from alipes.platforms.discord.http import DiscordHttp
from alipes.platforms.discord.settings import DiscordConfig
from alipes.runtime.tasks import backoff


class Heartbeat:
    """Sends heartbeats until stopped. Replaces the library's `KeepAliveHandler` and has its interface."""

    def __init__(
        self, socket: "DiscordSocket", interval: float, tasks: asyncio.TaskGroup, alive: Callable[[], None]
    ) -> None:
        self._socket, self.interval, self._tasks, self._on_ack = socket, interval, tasks, alive
        self._stopped = asyncio.Event()
        self._sent = 0.0
        self._waiting = False
        self.latency = float("inf")
        self.unanswered = False
        """True if a heartbeat was not answered before the next one was due."""

    def start(self) -> None:
        self._tasks.create_task(self._run())

    def stop(self) -> None:
        self._stopped.set()

    def tick(self) -> None:
        pass

    def ack(self) -> None:
        self._waiting = False
        self.latency = time.perf_counter() - self._sent
        self._on_ack()

    def beat(self) -> dict[str, Any]:
        return self.get_payload()

    def get_payload(self) -> dict[str, Any]:
        self._sent, self._waiting = time.perf_counter(), True
        return {"op": self._socket.HEARTBEAT, "d": self._socket.sequence}

    async def _run(self) -> None:
        while not await self._stops_within(self.interval):
            if self._waiting:
                self.unanswered = True
                return
            try:
                async with asyncio.timeout(self.interval):
                    await self._socket.send_heartbeat(self.get_payload())
            except (OSError, RuntimeError, TimeoutError, aiohttp.ClientError, ConnectionClosed):
                return  # the reader of the socket notices it too and reconnects

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopped.wait()
        except TimeoutError:
            return False


class DiscordSocket(DiscordWebSocket):
    """Replaces the `KeepAliveHandler` that the library sets here at HELLO by a `Heartbeat`."""

    heartbeat: Heartbeat | None = None

    @property  # type: ignore[override]
    def _keep_alive(self) -> Heartbeat | None:
        return self.heartbeat

    @_keep_alive.setter
    def _keep_alive(self, given: Any) -> None:
        if self.heartbeat:
            self.heartbeat.stop()
        self.heartbeat = None
        if given is not None:
            client = cast("DiscordClient", self._connection._get_client())
            self.heartbeat = Heartbeat(self, given.interval, client.tasks, client.report_alive)
            self._max_heartbeat_timeout = given.interval + client.grace

    async def poll_event(self) -> None:
        await super().poll_event()
        if self.heartbeat and self.heartbeat.unanswered:
            # ends like a connection closed by the server: the session can be resumed
            await self.close()
            await super().poll_event()


log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 30.0
"""Seconds until the gateway must have said hello."""
FATAL = {
    4004: "Discord no longer accepts the bot's token",
    4013: "Discord does not know the requested intents",
    4014: "the bot may not read messages: turn on “Message Content Intent” on its page "
    "in Discord's developer portal (Bot, Privileged Gateway Intents)",
}
FAILURES = (OSError, TimeoutError, aiohttp.ClientError, discord.HTTPException, discord.RateLimited)
OnEvent = Callable[[str, tuple[Any, ...]], None]


class DiscordState(ConnectionState["DiscordClient"]):
    """The library's cache of guilds and channels."""

    # The library would collect guilds for a while in a task of its own; we take each as it comes.

    def _add_ready_state(self, guild: discord.Guild) -> bool:
        return False

    async def _delay_ready(self) -> None:
        self._ready_task = None


class ResumePoint(Struct, frozen=True):
    """Where a gateway session can be resumed."""

    session: str
    sequence: int | None
    gateway: yarl.URL


class DiscordClient(discord.Client):
    """Calls `on_event` for every event at once and in order; the library starts no tasks for them."""

    def __init__(self, settings: DiscordConfig, on_event: OnEvent) -> None:
        intents = discord.Intents.none()
        intents.guilds = intents.guild_messages = intents.dm_messages = intents.message_content = True
        self._settings, self._on_event, self.grace = settings, on_event, settings.grace
        self.tasks: asyncio.TaskGroup
        self._on_status: OnStatus = lambda state, why: None
        self._connected = False
        self._failures = 0
        # the library would log that its voice dependencies are missing
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(
            intents=intents,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
        )

    def _get_state(self, **options: Any) -> DiscordState:
        self.http: DiscordHttp = DiscordHttp(self.loop, self._settings)
        return DiscordState(
            dispatch=self.dispatch, handlers=self._handlers, hooks=self._hooks, http=self.http, **options
        )

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        if event in ("connect", "resumed"):
            self._connected, self._failures = True, 0
            self.report_alive()
        self._on_event(event, args)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        pass  # one shard: `serve` makes the pause that the library makes here

    def report_alive(self) -> None:
        """A heartbeat was answered, or a session started."""
        if self._connected:
            self._on_status("ready", "")

    async def serve(self, token: str, on_status: OnStatus) -> None:
        """Log in and stay connected until cancelled. Raises ConfigError if the configuration is wrong."""
        gateway = await self.log_in(token, on_status)
        knot: ResumePoint | None = None
        while True:
            try:
                knot = await self._run_connection(gateway, knot)
            except ReconnectWebSocket as again:
                knot = (self._resume_point() or knot) if again.resume else None
                self._report_down("Discord gateway timed out or requested a reconnect")
                if not again.resume:
                    await asyncio.sleep(random.uniform(0.2, 1.0) * self._settings.calm)
            except discord.ConnectionClosed as closed:
                if closed.code in FATAL:
                    raise ConfigError(f"{FATAL[closed.code]} (Discord closed with {closed.code}).") from closed
                knot = None
                await self._pause(f"Discord closed the connection with {closed.code}")
            except FAILURES as failure:
                knot = self._resume_point() or knot
                await self._pause(f"the Discord gateway cannot be reached ({describe_error(failure)})")

    async def log_in(self, token: str, on_status: OnStatus) -> yarl.URL:
        """Log in, with retries, and return the gateway's address. Raises `ConfigError` if the token is wrong."""
        self._on_status = on_status
        while True:
            try:
                await self.login(token)
                answer = await self.http.request(Route("GET", "/gateway/bot"))
            except discord.LoginFailure as unknown:
                raise ConfigError("Discord does not know the bot's token: check it, or create a new one.") from unknown
            except FAILURES as failure:
                await self._pause(f"Discord cannot be reached ({describe_error(failure)})")
            else:
                return yarl.URL(answer["url"])

    async def _run_connection(self, gateway: yarl.URL, knot: ResumePoint | None) -> ResumePoint | None:
        """Run one connection. It ends with an error that says how to continue."""
        self.ws = None  # type: ignore[assignment]  # the last one's knot is in our hands
        where: dict[str, Any] = {"gateway": gateway}
        if knot:
            where = {
                "gateway": knot.gateway, "session": knot.session, "sequence": knot.sequence, "resume": True,
            }  # fmt: skip
        async with asyncio.timeout(CONNECT_TIMEOUT):
            self.ws = await DiscordSocket.from_client(self, **where)
        while True:
            await self.ws.poll_event()

    def _resume_point(self) -> ResumePoint | None:
        ws = self.ws
        if ws is None or not ws.session_id:
            return None
        return ResumePoint(ws.session_id, ws.sequence, ws.gateway)

    def _report_down(self, why: str) -> None:
        self._connected = False
        if isinstance(self.ws, DiscordSocket) and self.ws.heartbeat:
            self.ws.heartbeat.stop()
        log.warning("%s", why)
        self._on_status("broken", why)

    async def _pause(self, why: str) -> None:
        self._report_down(why)
        self._failures += 1
        await asyncio.sleep(backoff(self._failures))

    async def shut_down(self) -> None:
        """Close everything. A cancellation meanwhile takes effect afterwards."""
        self._connected = False
        if isinstance(self.ws, DiscordSocket) and self.ws.heartbeat:
            self.ws.heartbeat.stop()
        await self.http.close()
