"""Shared by the loopback messengers: waiting for changes, serving on one port, WebSockets that can freeze."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import WSMsgType, web


class Observable:
    """An object whose changes tests can wait for."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def until(self, fact: Callable[[], Any]) -> None:
        """Wait until the condition is true; checked after every change, and regularly."""
        while not fact():
            self._waiters.append(waiter := asyncio.get_running_loop().create_future())
            await asyncio.wait([waiter], timeout=0.02)

    def record(self, _kind: str, **_fields: object) -> None:
        """Wake the waiters: something changed."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


async def open_site(app: web.Application, port: int) -> tuple[web.AppRunner, int]:
    """Serve the app on `port` (0: any); cleaning up the runner closes every connection."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    return runner, runner.addresses[0][1]


class Connection:
    """One WebSocket. `deaf`: it neither reads nor writes but stays open, as after a lost route."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.socket, self.request = socket, request
        self.deaf = asyncio.Event()
        self._queue: asyncio.Queue[dict[str, Any] | int] = asyncio.Queue()

    def put(self, message: dict[str, Any]) -> None:
        self._queue.put_nowait(message)

    def close(self, code: int = 1000) -> None:
        self._queue.put_nowait(code)

    def abort(self) -> None:
        if self.request.transport:
            self.request.transport.abort()

    def deafen(self) -> None:
        self.deaf.set()
        self.put({})

    async def serve(self, hear: Callable[[Any], None]) -> None:
        """Send what is put and handle what arrives, until one side closes."""
        writing = asyncio.get_running_loop().create_task(self._write())
        try:
            await self._read(hear)
            if self.deaf.is_set():
                await asyncio.Event().wait()
        finally:
            writing.cancel()
            await asyncio.wait([writing])

    async def send(self, raw: bytes) -> None:
        await self.socket.send_str(raw.decode())

    async def _write(self) -> None:
        while not self.deaf.is_set():
            match await self._queue.get():
                case int(code):
                    await self.socket.close(code=code)
                    return
                case message if not self.deaf.is_set():
                    with contextlib.suppress(ConnectionError):
                        await self.send(msgspec.json.encode(message))

    async def _read(self, hear: Callable[[Any], None]) -> None:
        deaf = asyncio.get_running_loop().create_task(self.deaf.wait())
        try:
            while not self.deaf.is_set():
                reading = asyncio.get_running_loop().create_task(self.socket.receive())
                await asyncio.wait([reading, deaf], return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    await asyncio.wait([reading])
                    return
                message = reading.result()
                if message.type is not WSMsgType.TEXT:
                    return
                hear(msgspec.json.decode(message.data))
        finally:
            deaf.cancel()
            await asyncio.wait([deaf])
