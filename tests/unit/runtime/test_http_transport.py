"""HTTP/1.1 straight to a server: which connection is used, what is read at once, and how it breaks."""

import asyncio
import gc

import httpx2
import pytest

from alipes.runtime import process_setup
from alipes.runtime.http import transport
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.messages import HttpRequest, Timeouts, absolute_url
from tests.world.tls import SeenConnection, chunked, client_context, open_loopback, reply

PLAIN_AND_TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


def saying(data: bytes, *, hang_up: bool = False):
    async def answer(seen: SeenConnection) -> None:
        seen.send(data)
        if hang_up:
            await seen.writer.drain()
            seen.writer.close()

    return answer


async def blocks(http, method="GET"):
    async with http.stream(method, "/") as response:
        return response, [block async for block in response.aiter_raw()]


@PLAIN_AND_TLS
async def test_what_came_together_is_read_together(tls):
    words = [b"data: %d\n\n" % number for number in range(500)]
    async with open_loopback(saying(chunked(*words)), tls=tls) as server:
        async with ClientScope(trust=client_context()) as scope:
            http = scope.http("model", base_url=server.url)
            response, read = await blocks(http)
            assert b"".join(read) == b"".join(words)
            assert len(read) < 20, "not one for every word"
            assert response.head.version == b"HTTP/1.1" and response.reason_phrase == "OK"
            await blocks(http)
            assert len(server.connections) == 1


async def test_a_connection_that_the_server_closed_is_not_used_again():
    async def answer(seen: SeenConnection) -> None:
        seen.send(reply(b"once"))
        await seen.writer.drain()
        if len(server.connections) == 1:
            seen.writer.close()

    async with open_loopback(answer) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        assert (await http.request("GET", "/")).content == b"once"
        (kept,) = http._direct._idle
        while kept.alive:
            await asyncio.sleep(0.001)
        assert (await http.request("GET", "/")).content == b"once"
        assert len(server.connections) == 2


@pytest.mark.parametrize(("seconds", "opened"), [(60.0, 4), (0.0, 2)], ids=["in doubt", "no more"])
async def test_a_server_that_hangs_up_on_one_that_waited_gets_new_ones_for_a_while(monkeypatch, seconds, opened):
    async def answer(seen: SeenConnection) -> None:
        if "/gone" in seen.requests[-1][0]:
            seen.writer.close()
        else:
            seen.send(reply(b"here"))

    monkeypatch.setattr(transport, "NO_REUSE_S", seconds)
    async with open_loopback(answer) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        for _ in range(2):
            await blocks(http)
        assert len(server.connections) == 1
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.request("GET", "/gone")
        for _ in range(3):
            await blocks(http)
        assert len(server.connections) == opened


async def test_a_server_that_wants_to_close_is_let_go():
    async with open_loopback(saying(reply(b"bye", more="connection: close\r\n"))) as server:
        async with ClientScope() as scope:
            http = scope.http("model", base_url=server.url)
            for _ in range(3):
                assert (await http.request("GET", "/")).content == b"bye"
            assert len(server.connections) == 3
            for seen in server.connections:
                await seen.closed.wait()


async def test_only_so_many_are_kept():
    async def patient(seen: SeenConnection) -> None:
        if len(server.connections) == transport.MAX_IDLE_CONNECTIONS + 6:
            everybody.set()
        await everybody.wait()
        seen.send(reply(b"ok"))

    everybody = asyncio.Event()
    async with open_loopback(patient) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        async with asyncio.TaskGroup() as group:
            for _ in range(transport.MAX_IDLE_CONNECTIONS + 6):
                group.create_task(http.request("GET", "/"))
        pool = http._direct
        assert len(pool._idle) == transport.MAX_IDLE_CONNECTIONS and not pool.busy


async def test_what_came_before_it_broke_is_given_first():
    broken = chunked(b"one", b"two", ending=False) + b"zz\r\n"
    async with open_loopback(saying(broken)) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        read = []
        with pytest.raises(httpx2.RemoteProtocolError):
            async with http.stream("GET", "/") as response:
                async for block in response.aiter_raw():
                    read.append(block)
        assert b"".join(read) == b"onetwo"
        assert not http._direct.busy


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", chunked(b"one", ending=False), b"HTTP/1.1 200 OK\r\n" + b"x" * 200_000],
    ids=["nothing", "half a head", "no HTTP", "half a body", "a head without end"],
)
async def test_an_answer_that_is_none_is_the_servers_fault(said):
    async with open_loopback(saying(said, hang_up=True)) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.request("GET", "/")
        assert not http._direct.busy


async def test_answers_without_a_body_and_words_before_the_answer_are_understood():
    async def answer(seen: SeenConnection) -> None:
        early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
        seen.send(early + b"HTTP/1.1 204 No Content\r\n\r\n")

    async with open_loopback(answer) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        for method in ("GET", "POST"):
            response, read = await blocks(http, method)
            assert response.status_code == 204 and read == []
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    ("said", "hang_up", "ours"),
    [
        (reply(b"ok") + b"HTTP/1.1 200 OK\r\n\r\n", False, ""),
        (reply(b"ok").replace(b"HTTP/1.1", b"HTTP/1.0"), False, ""),
        (b"HTTP/1.1 200 OK\r\n\r\nok", True, ""),
        (reply(b"ok"), False, "close"),
    ],
    ids=["more than asked", "HTTP/1.0", "no length", "we said so"],
)
async def test_a_connection_of_which_nobody_knows_what_comes_next_is_not_used_again(said, hang_up, ours):
    async with open_loopback(saying(said, hang_up=hang_up)) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        for _ in range(2):
            answer = await http.request("GET", "/", headers={"connection": ours} if ours else None)
            assert answer.content == b"ok"
        assert len(server.connections) == 2 and not http._direct.busy


async def test_head_is_answered_without_a_body():
    async with open_loopback(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")) as server:
        async with ClientScope() as scope:
            answer = await scope.http("model", base_url=server.url).request("HEAD", "/")
            assert answer.content == b"" and answer.headers["content-length"] == "9"


async def test_a_body_without_a_length_is_sent_as_it_is_made():
    async def made():
        yield b"one"
        yield b"two"

    async def answer(seen: SeenConnection) -> None:
        heard.append(await seen.reader.readuntil(b"\r\n0\r\n\r\n"))
        seen.send(reply(b"ok"))

    heard: list[bytes] = []
    async with open_loopback(answer) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        for _ in range(2):
            headers = [(b"host", b"x"), (b"transfer-encoding", b"chunked")]
            request = HttpRequest("POST", absolute_url(server.url, "/"), headers, made(), Timeouts(None, None, None))
            assert await (await http._direct.send(request)).aread() == b"ok"
        assert heard == [b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"] * 2 and len(server.connections) == 1


async def test_what_cannot_be_asked_is_our_fault_and_costs_one_connection():
    async with open_loopback() as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)
        with pytest.raises(httpx2.LocalProtocolError):
            await http.request("GET", "/", headers={"authorization": "Bearer key\nx: y"})
        assert server.requests == [] and not http._direct.busy


@pytest.mark.parametrize("said", [b"", chunked(b"one", ending=False)], ids=["asking", "reading"])
async def test_a_reader_gets_an_error_when_the_pool_is_closed(said):
    async with open_loopback(saying(said)) as server, ClientScope() as scope:
        http = scope.http("model", base_url=server.url)

        async def read() -> None:
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.request("GET", "/")

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            while not server.requests:
                await asyncio.sleep(0.001)
            await http._direct.aclose()


async def test_another_scheme_is_refused():
    async with ClientScope() as scope:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await scope.http("model").request("GET", "ftp://127.0.0.1/")


def test_what_was_there_at_the_start_is_not_looked_through_again():
    before = gc.get_threshold()
    try:
        process_setup.tune_garbage_collector()
        assert gc.get_freeze_count() > 0 and gc.get_threshold() == process_setup.GC_THRESHOLDS
    finally:
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as it was before
        gc.set_threshold(*before)
