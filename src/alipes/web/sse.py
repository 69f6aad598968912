"""Server-Sent Events: how a frame is written, and the response that stays open. What is told, others say."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Tell: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends frames to whoever listens; waits while they do not read."""
Speak: TypeAlias = Callable[[Tell], Awaitable[None]]
"""Tells everything there is to tell, and returns. It is cancelled when the listener has left."""
BEAT = 15.0
"""Seconds of silence after which a comment is sent: who stands between must not take the line for dead."""
STALL = 60.0
"""Seconds after which one who reads nothing has left."""
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_COMMENT = b": still here\n\n"


def frame(data: bytes | str, *, event: str = "", id: str = "") -> bytes:
    """One event. `event` and `id` are ours and of one line; `data` may have any number."""
    content = data.encode() if isinstance(data, str) else data
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    if b"\n" not in content and b"\r" not in content:
        return b"%bdata: %b\n\n" % (head.encode(), content)
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return head.encode() + b"".join(b"data: %b\n" % line for line in lines) + b"\n"


def all_at_once(frames: bytes) -> Response:
    """Events that happened already, and nothing after them."""
    return Response(frames, headers=_HEADERS, media_type=EventStream.media_type)


class _Left(Exception):
    """Nobody listens any more."""


class EventStream(Response):
    """Open until everything was told, or the listener leaves; then `left` is called, if given.

    `speak` runs in the task that serves the request: what was opened for it before may be closed by it.
    What it raises ends the connection, so it has to tell its own errors.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        speak: Speak,
        *,
        left: Callable[[], Awaitable[None]] | None = None,
        headers: Mapping[str, str] | None = None,
        beat: float = BEAT,
        stall: float = STALL,
    ) -> None:
        self.status_code, self.background = 200, None
        self.init_headers({**_HEADERS, **(headers or {})})
        self._speak, self._left, self._beat, self._stall = speak, left, beat, stall
        self._told = 0.0
        """When something was sent last."""
        self._pending = 0
        """Frames that wait for the listener to read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def tell(frames: bytes) -> None:
            self._told, self._pending = time.monotonic(), self._pending + 1
            await send({"type": "http.response.body", "body": frames, "more_body": True})
            self._pending -= 1

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._told, gone = time.monotonic(), False
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch(receive, tell), name="listener")
                await self._speak(tell)
                watch.cancel()
        except* _Left:
            gone = True
        if not gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif self._left is not None:
            await self._left()

    async def _watch(self, receive: Receive, tell: Tell) -> None:
        """Raises `_Left` when the listener has; says something when all was silent for long."""
        while True:
            try:
                # Not all at the same time, where many came together.
                async with asyncio.timeout(self._beat * random.uniform(0.7, 1.0)):
                    if (await receive())["type"] == "http.disconnect":
                        raise _Left
            except TimeoutError:
                silent = time.monotonic() - self._told
                if self._pending:
                    if silent > self._stall:
                        raise _Left from None
                elif silent >= self._beat / 2:
                    await tell(_COMMENT)
