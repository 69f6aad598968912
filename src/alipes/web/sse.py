"""Server-Sent Events: encodes frames and keeps the response open."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from alipes.kernel.errors import AlipesError
from alipes.web.endpoint import ErrorFormat, HttpProblem, problem_from_error, problem_response

SendFrames: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends frames to the client; waits while the client does not read."""
WriteEvents: TypeAlias = Callable[[SendFrames], Awaitable[None]]
"""Sends all events and returns. It is cancelled when the client disconnects."""
HEARTBEAT_S = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection open."""
HEADER_WAIT_S = 40.0
"""Seconds after which headers are sent although nothing happened yet; many proxies give up after 60."""
STALL_TIMEOUT_S = 60.0
"""Seconds after which a client that reads nothing counts as disconnected."""
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_COMMENT = b": still here\n\n"


def frame(data: bytes | str, *, event: str = "", id: str = "") -> bytes:
    """Encode one event. `event` and `id` must be single lines; `data` may have several."""
    content = data.encode() if isinstance(data, str) else data
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    if b"\n" not in content and b"\r" not in content:
        return b"%bdata: %b\n\n" % (head.encode(), content)
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return head.encode() + b"".join(b"data: %b\n" % line for line in lines) + b"\n"


def finished_stream(frames: bytes) -> Response:
    """A complete stream of past events."""
    return Response(frames, headers=_HEADERS, media_type=EventStream.media_type)


class ClientGone(Exception):
    """The client disconnected."""


async def wait_for_disconnect(receive: Receive) -> None:
    """Raise `ClientGone` when the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone


class EventStream(Response):
    """Stays open until all events are sent or the client disconnects; then `left` is called, if given.

    `write` runs in the task that serves the request, so it may close what was opened there. An exception
    from it ends the connection, so it has to report errors as events.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        write: WriteEvents,
        *,
        left: Callable[[], Awaitable[None]] | None = None,
        failures: ErrorFormat | None = None,
        beat: float = HEARTBEAT_S,
        stall: float = STALL_TIMEOUT_S,
    ) -> None:
        """`failures`: the headers wait for the first frame, so that an error raised before it is answered
        with its status, in this format; after `HEADER_WAIT_S` they are sent anyway."""
        self.status_code, self.background = 200, None
        self.init_headers(_HEADERS)
        self._write, self._left, self._heartbeat_s, self._stall_timeout_s = write, left, beat, stall
        self._failures, self._started = failures, False
        self._sent_at = 0.0
        """Time of the last send."""
        self._pending = 0
        """Sends that wait for the client to read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._failures is None:
            await self._start(send)
        self._sent_at, disconnected = time.monotonic(), False
        problem: Response | None = None
        try:
            async with asyncio.TaskGroup() as group:
                send_frames = partial(self._send_frames, send)
                watch = group.create_task(self._watch(receive, send_frames), name="listener")
                problem = await self._write_or_fail(send_frames)
                watch.cancel()
        except* ClientGone:
            disconnected = True
        if problem is not None:
            await problem(scope, receive, send)
        elif not disconnected:
            await self._start(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif self._left is not None:
            await self._left()

    async def _start(self, send: Send) -> None:
        """Send the headers, once."""
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    async def _send_frames(self, send: Send, frames: bytes) -> None:
        self._sent_at, self._pending = time.monotonic(), self._pending + 1
        await self._start(send)
        await send({"type": "http.response.body", "body": frames, "more_body": True})
        self._pending -= 1

    async def _write_or_fail(self, send_frames: SendFrames) -> Response | None:
        """Write all events; returns the answer to an error that came before the headers."""
        try:
            await self._write(send_frames)
        except (HttpProblem, AlipesError) as error:
            if self._started or self._failures is None:
                raise
            problem = error if isinstance(error, HttpProblem) else problem_from_error(error)
            return problem_response(problem, self._failures)
        return None

    async def _watch(self, receive: Receive, send_frames: SendFrames) -> None:
        """Raise `ClientGone` when the client disconnects; send a comment after a long silence."""
        while True:
            try:
                # Spread the heartbeats of clients that connected at the same time.
                async with asyncio.timeout(self._heartbeat_s * random.uniform(0.7, 1.0)):
                    await wait_for_disconnect(receive)
            except TimeoutError:
                silent = time.monotonic() - self._sent_at
                if self._pending:
                    if silent > self._stall_timeout_s:
                        raise ClientGone from None
                elif silent >= (self._heartbeat_s / 2 if self._started else HEADER_WAIT_S):
                    await send_frames(_COMMENT)
