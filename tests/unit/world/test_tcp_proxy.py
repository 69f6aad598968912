"""The TCP proxy of the fault tests."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from tests.world.tcp_proxy import open_proxy
from tests.world.wait import until


@asynccontextmanager
async def echo_server():
    """Answers what it is sent; counts its connections."""
    seen: list[asyncio.StreamWriter] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader, writer):
        seen.append(writer)
        tasks.add(asyncio.current_task())
        try:
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        seen.remove(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield ("127.0.0.1", server.sockets[0].getsockname()[1]), seen
    finally:
        server.close()
        for writer in seen:
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks)


@asynccontextmanager
async def setup():
    """A proxy before an echo server, the server's open connections, and one connection through the proxy."""
    async with echo_server() as (upstream, seen), open_proxy(upstream) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            assert await ask(reader, writer, b"hello") == b"hello"
            yield proxy, seen, reader, writer
        finally:
            writer.transport.abort()


async def ask(reader, writer, data):
    writer.write(data)
    return await reader.readexactly(len(data))


async def test_what_is_sent_during_silence_arrives_after_it():
    async with setup() as (proxy, _, reader, writer):
        proxy.silence()
        writer.write(b"late")
        await writer.drain()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(10), 0.1)
        proxy.restore()
        assert await reader.readexactly(4) == b"late"


async def test_the_server_does_not_notice_that_a_silent_client_has_closed():
    async with setup() as (proxy, seen, _, writer):
        proxy.silence()
        writer.close()
        await asyncio.sleep(0.1)
        assert len(seen) == 1
        proxy.restore()
        await until(lambda: not seen)


async def test_a_new_connection_during_silence_reaches_nobody_until_it_is_over():
    async with setup() as (proxy, seen, *_):
        proxy.silence()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"new")
        await asyncio.sleep(0.1)
        assert len(seen) == 1
        proxy.restore()
        assert await reader.readexactly(3) == b"new"
        writer.close()


async def test_cut_breaks_open_connections_and_accepts_new_ones():
    async with setup() as (proxy, _, reader, _):
        proxy.cut()
        with pytest.raises(ConnectionError):
            if not await reader.read(1):
                raise ConnectionResetError
        other = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(*other, b"again") == b"again"
        other[1].close()


async def test_data_held_in_silence_is_lost_when_the_connection_is_cut():
    async with setup() as (proxy, seen, _, writer):
        proxy.silence()
        writer.write(b"lost")
        await writer.drain()
        proxy.cut()
        proxy.restore()
        await until(lambda: not seen and not proxy.open_connections)


async def test_refused_connections_end_at_once():
    async with setup() as (proxy, *_):
        proxy.refuse()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises(ConnectionError):
            if not await reader.read(1):
                raise ConnectionResetError
        writer.close()
        proxy.restore()
        other = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(*other, b"again") == b"again"
        other[1].close()


async def test_delay_holds_each_piece_and_keeps_the_order():
    async with setup() as (proxy, _, reader, writer):
        proxy.delay_s = 0.05
        began = time.monotonic()
        for number in range(10):
            writer.write(b"%d" % number)
            await writer.drain()
        assert await reader.readexactly(10) == b"0123456789"
        assert time.monotonic() - began >= 0.1


async def test_an_absent_server_closes_the_connection():
    async with echo_server() as (upstream, _):
        pass
    async with open_proxy(upstream) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises(ConnectionError):
            if not await reader.read(1):
                raise ConnectionResetError
        writer.close()


async def test_unix_sockets_on_both_sides(tmp_path):
    async with echo_server() as (upstream, _):
        async with open_proxy(upstream, listen=tmp_path / "front"), open_proxy(tmp_path / "front") as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            assert await ask(reader, writer, b"unix") == b"unix"
            writer.close()
