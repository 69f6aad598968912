"""A connection to Discord's gateway: discord.py's, with a heart that beats on our loop, not in a thread."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

import aiohttp
from discord import ConnectionClosed
from discord.gateway import DiscordWebSocket

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
