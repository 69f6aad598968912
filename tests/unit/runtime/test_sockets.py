"""The sockets under the pools: which address is taken, what leaves together, and who reads how often."""

import asyncio
import socket

import httpx2
import pytest

from alipes.runtime.http import sockets
from alipes.runtime.http.sockets import Sockets


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
    line = await backend._first(["127.0.0.2", "127.0.0.1"], port)
    assert line._transport.get_extra_info("peername") == ("127.0.0.1", port)
    line.abort()
    hole = a_black_hole(port)
    try:
        began = asyncio.get_running_loop().time()
        line = await backend._first(["127.0.0.3", "127.0.0.1", "127.0.0.2"], port)
        assert asyncio.get_running_loop().time() - began >= sockets.CONNECT_STAGGER_S * 0.9
        assert line._transport.get_extra_info("peername") == ("127.0.0.1", port)
        line.abort()
    finally:
        for one in hole:
            one.close()
        server.close()


async def test_a_refused_connection_and_a_timeout_are_reported():
    server, port = await open_echo([])
    server.close()
    with pytest.raises(httpx2.ConnectError):
        await Sockets().connect("127.0.0.1", port, 5)
    with pytest.raises(httpx2.ConnectError):
        await Sockets().connect("no.such.name.invalid", 80, 5)
    hole = a_black_hole(port)
    try:
        with pytest.raises(httpx2.ConnectTimeout):
            await Sockets().connect("127.0.0.3", port, 0.1)
    finally:
        for one in hole:
            one.close()


async def test_who_is_cancelled_while_connecting_leaves_no_socket():
    server, port = await open_echo([])
    for turns in range(12):
        task = asyncio.create_task(Sockets()._first(["127.0.0.2", "127.0.0.1"], port))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            ended.abort()
    server.close()  # warnings are errors: an unclosed socket would be one


async def test_the_parts_of_a_request_leave_together():
    came = []
    server, port = await open_echo(came)
    line = await Sockets().connect("localhost", port, 5)
    await line.write(b"head ", 5)
    await line.write(b"body", 5)
    assert await line.read(5) == b"head body"
    assert came == [b"head body"]
    await line.write(b"x" * (sockets.MAX_BUFFERED_BYTES + 7), 5)
    left = sockets.MAX_BUFFERED_BYTES + 7
    while left:
        data = await line.read(5)
        assert len(data) <= sockets.BLOCK_BYTES
        left -= len(data)
    with pytest.raises(httpx2.ReadTimeout):
        await line.read(0.01)
    line.abort()
    server.close()


async def test_an_end_is_seen_without_reading_and_a_reset_is_an_error():
    writers = []

    async def met(reader, writer):
        writers.append(writer)

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line = await Sockets().connect("127.0.0.1", port, 5)
    while not writers:
        await asyncio.sleep(0.001)
    assert not line.readable
    writers[0].close()
    while not line.readable:
        await asyncio.sleep(0.001)
    assert await line.read(5) == b""
    line.abort()
    other = await Sockets().connect("127.0.0.1", port, 5)
    while len(writers) < 2:
        await asyncio.sleep(0.001)
    reset = socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
    writers[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, *reset)
    writers[1].transport.abort()
    with pytest.raises(httpx2.ReadError):
        await other.read(5)
    other.abort()
    server.close()


async def test_where_many_stream_each_is_read_seldom_and_nothing_of_it_is_lost():
    async def drip(reader, writer):
        for number in range(60):
            writer.write(b"%d " % number)
            await asyncio.sleep(0.005)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0, backlog=200)
    backend = Sockets(each=0.002)

    async def listen() -> tuple[int, bytes]:
        line = await backend.connect("127.0.0.1", server.sockets[0].getsockname()[1], 5)
        got, reads = b"", 0
        while data := await line.read(5):
            got, reads = got + data, reads + 1
        line.abort()
        return reads, got

    async with asyncio.TaskGroup() as group:
        listening = [group.create_task(listen()) for _ in range(sockets.MAX_UNTHROTTLED_STREAMS * 2)]
    everybodys = 0
    for task in listening:
        reads, got = task.result()
        assert got.split() == [b"%d" % number for number in range(60)]
        everybodys += reads
    assert everybodys / len(listening) < 30, "a read for every turn, not for every word"
    assert not backend.crowded
    server.close()


async def test_who_is_cancelled_while_resting_takes_nobodys_turn():
    backend = Sockets(each=0.02)
    passed = []

    async def rest(number: int) -> None:
        await backend.rest()
        passed.append(number)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(rest(number)) for number in range(6)]
        await asyncio.sleep(0)
        for task in tasks[1:4]:
            task.cancel()
    assert passed == [0, 4, 5]
