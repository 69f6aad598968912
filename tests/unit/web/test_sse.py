"""Server-Sent Events over real sockets: frames, silence, and listeners that leave."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp

from alipes.kernel.errors import StoreError
from alipes.web.endpoint import HttpProblem
from alipes.web.server import bind_socket, open_server
from alipes.web.sse import EventStream, SendFrames, frame


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (frame(b"{}"), b"data: {}\n\n"),
        (frame("é", event="text_delta", id="3.1"), b"id: 3.1\nevent: text_delta\ndata: \xc3\xa9\n\n"),
        (frame("a\r\nb\rc\n"), b"data: a\ndata: b\ndata: c\ndata: \n\n"),
    ],
)
def test_a_frame_is_written_as_browsers_read_it(given: bytes, written: bytes):
    assert given == written


@asynccontextmanager
async def calling(app: ASGIApp) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A caller that has asked, at a real door."""
    with bind_socket("127.0.0.1", 0) as door:
        async with open_server(app, door):
            reader, writer = await asyncio.open_connection(*door.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                yield reader, writer
            finally:
                writer.close()


async def test_what_is_reported_is_sent_at_once_and_the_end_ends_the_response():
    go = asyncio.Event()

    async def speak(tell: SendFrames) -> None:
        await tell(frame("one"))
        await go.wait()
        await tell(frame("two"))

    async with calling(EventStream(speak)) as (reader, _writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200") and b"text/event-stream" in head and b"no-store" in head
        assert b"data: one\n\n" in await reader.readuntil(b"\n\n")
        go.set()
        assert (await reader.readuntil(b"\r\n0\r\n\r\n")).count(b"data: two\n\n") == 1


async def test_silence_is_broken_by_comments():
    async def speak(_tell: SendFrames) -> None:
        await asyncio.Event().wait()

    async with calling(EventStream(speak, beat=0.02)) as (reader, _writer):
        await reader.readuntil(b": still here\n\n")
        await reader.readuntil(b": still here\n\n")


async def test_a_listener_that_leaves_cancels_what_speaks_to_it():
    seen: list[str] = []
    left = asyncio.Event()

    async def speak(tell: SendFrames) -> None:
        try:
            await tell(frame("one"))
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def tell_that_left() -> None:
        seen.append("left")
        left.set()

    async with calling(EventStream(speak, left=tell_that_left)) as (reader, writer):
        await reader.readuntil(b"data: one\n\n")
        writer.close()
        await left.wait()
    assert seen == ["cancelled", "left"]


async def test_one_who_reads_nothing_for_long_has_left():
    left = asyncio.Event()

    async def speak(tell: SendFrames) -> None:
        while True:
            await tell(frame(b"x" * 100_000))

    async def tell_that_left() -> None:
        left.set()

    async with calling(EventStream(speak, left=tell_that_left, beat=0.02, stall=0.05)) as (_reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.transport.pause_reading()
        await left.wait()


async def test_what_was_opened_for_the_stream_is_closed_in_the_task_that_serves_it():
    tasks: list[object] = []

    async def app(scope: object, receive: object, send: object) -> None:
        tasks.append(asyncio.current_task())

        async def speak(tell: SendFrames) -> None:
            tasks.append(asyncio.current_task())

        await EventStream(speak)(scope, receive, send)  # type: ignore[arg-type]

    async with calling(app) as (reader, _writer):
        await reader.readuntil(b"\r\n0\r\n\r\n")
    assert tasks[0] is tasks[1]


@pytest.mark.parametrize(("error", "status"), [(HttpProblem(409, "not now"), b"409"), (StoreError("full"), b"503")])
async def test_an_error_before_the_first_event_has_its_status(error, status):
    async def speak(_tell: SendFrames) -> None:
        raise error

    async with calling(EventStream(speak, failures="problem")) as (reader, _writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status) and b"application/problem+json" in head


async def test_headers_wait_for_the_first_event_where_failures_are_answered():
    sent: list[str] = []

    async def speak(tell: SendFrames) -> None:
        assert not sent
        await tell(frame("one"))

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, object]) -> None:
        sent.append(str(message["type"]))

    await EventStream(speak, failures="problem")({"type": "http"}, receive, send)  # type: ignore[arg-type]
    assert sent == ["http.response.start", "http.response.body", "http.response.body"]
