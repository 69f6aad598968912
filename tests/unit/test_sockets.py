"""The sockets under the pools: which address is taken, what leaves together, and who reads how often."""

import asyncio
import socket

import httpcore2
import pytest

from alipes.runtime import sockets
from alipes.runtime.sockets import Sockets


class Echo(asyncio.Protocol):
    """Keeps what came in each piece."""

    def __init__(self, came: list[bytes]) -> None:
        self._came = came

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self._came.append(data)
        self.transport.write(data)


async def open_echo(came):
    server = await asyncio.get_running_loop().create_server(lambda: Echo(came), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def a_black_hole(port: int) -> list[socket.socket]:
    """127.0.0.3 with a queue that is full, so that who connects is not even refused."""
    hole = socket.socket()
    hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    hole.bind(("127.0.0.3", port))
    hole.listen(0)
    filling = [hole]
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.3", port))
        filling.append(one)
    return filling


async def test_the_next_address_is_tried_when_one_refuses_and_beside_one_that_is_silent():
    server, port = await open_echo([])
    backend = Sockets()
    line = await backend._first(["127.0.0.2", "127.0.0.1"], port, None)
    assert line.get_extra_info("server_addr") == ("127.0.0.1", port)
    await line.aclose()
    hole = a_black_hole(port)
    try:
        began = asyncio.get_running_loop().time()
        line = await backend._first(["127.0.0.3", "127.0.0.1", "127.0.0.2"], port, None)
        assert asyncio.get_running_loop().time() - began >= sockets.STAGGER * 0.9
        assert line.get_extra_info("server_addr") == ("127.0.0.1", port)
        await line.aclose()
    finally:
        for one in hole:
            one.close()
        server.close()


async def test_nobody_there_is_told_and_a_wait_that_is_too_long_as_well():
    server, port = await open_echo([])
    server.close()
    with pytest.raises(httpcore2.ConnectError):
        await Sockets().connect_tcp("127.0.0.1", port, timeout=5)
    with pytest.raises(httpcore2.ConnectError):
        await Sockets().connect_tcp("no.such.name.invalid", 80, timeout=5)
    hole = a_black_hole(port)
    try:
        with pytest.raises(httpcore2.ConnectTimeout):
            await Sockets().connect_tcp("127.0.0.3", port, timeout=0.1)
    finally:
        for one in hole:
            one.close()


async def test_who_is_cancelled_while_connecting_leaves_no_socket():
    server, port = await open_echo([])
    for turns in range(12):
        task = asyncio.create_task(Sockets()._first(["127.0.0.2", "127.0.0.1"], port, None))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            await ended.aclose()
    server.close()  # warnings are errors: an unclosed socket would be one


async def test_the_parts_of_a_request_leave_together():
    came = []
    server, port = await open_echo(came)
    line = await Sockets().connect_tcp("localhost", port, timeout=5)
    await line.write(b"head ")
    await line.write(b"body")
    assert await line.read(100, timeout=5) == b"head body"
    assert came == [b"head body"]
    await line.write(b"x" * (sockets.FULL + 7))
    left = sockets.FULL + 7
    while left:
        data = await line.read(65536, timeout=5)
        assert len(data) <= 65536
        left -= len(data)
    with pytest.raises(httpcore2.ReadTimeout):
        await line.read(100, timeout=0.01)
    await line.aclose()
    server.close()


async def test_an_end_is_seen_without_reading_and_a_reset_is_an_error():
    writers = []

    async def met(reader, writer):
        writers.append(writer)

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line = await Sockets().connect_tcp("127.0.0.1", port, timeout=5)
    while not writers:
        await asyncio.sleep(0.001)
    assert not line.get_extra_info("is_readable")
    writers[0].close()
    while not line.get_extra_info("is_readable"):
        await asyncio.sleep(0.001)
    assert await line.read(10, timeout=5) == b""
    await line.aclose()
    other = await Sockets().connect_tcp("127.0.0.1", port, timeout=5)
    while len(writers) < 2:
        await asyncio.sleep(0.001)
    reset = socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
    writers[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, *reset)
    writers[1].transport.abort()
    with pytest.raises(httpcore2.ReadError):
        await other.read(10, timeout=5)
    await other.aclose()
    server.close()


async def test_where_many_stream_each_is_read_seldom_and_nothing_of_it_is_lost():
    async def drip(reader, writer):
        for number in range(60):
            writer.write(b"%d " % number)
            await asyncio.sleep(0.005)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    backend = Sockets(each=0.02)

    async def listen() -> tuple[int, bytes]:
        line = await backend.connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1], timeout=5)
        got, reads = b"", 0
        while data := await line.read(65536, timeout=5):
            got, reads = got + data, reads + 1
        await line.aclose()
        return reads, got

    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(listen()) for _ in range(10)]
    for task in listening:
        reads, got = task.result()
        assert got.split() == [b"%d" % number for number in range(60)]
        assert reads <= sockets.FREE + 12, "a read for every pause, not for every word"
    assert backend.reading == 0
    server.close()
