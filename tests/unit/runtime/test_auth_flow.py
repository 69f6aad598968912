"""Authentication flows of libraries, run with clients of ours."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.runtime.http.auth_flow import AuthFlowError, make_form, make_post, permit_host, run_auth_flow, send_request
from alipes.runtime.http.clients import ClientScope


@asynccontextmanager
async def open_server(*, endless: bool = False):
    """Answers with the path; with `endless`, the body of /main never ends. Yields its URL and the requests so far."""
    asked = []

    async def answer(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(path := head.split()[1])
        size = "Transfer-Encoding: chunked" if endless and path == "/main" else f"Content-Length: {len(path)}"
        writer.write(f"HTTP/1.1 200 OK\r\n{size}\r\nConnection: close\r\n\r\n".encode())
        if "Length" in size:
            writer.write(path.encode())
            writer.close()
        await writer.drain()
        await reader.read()  # until the client is gone
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


def no_check(_url):
    """Every address is fine."""


@pytest.mark.parametrize("endless", [False, True])
async def test_all_requests_are_sent_and_the_last_response_is_not_read(endless):
    async with open_server(endless=endless) as (url, asked), ClientScope() as clients:
        message, read = make_post(f"{url}/main", {}, {}), []

        async def flow():
            read.append((yield make_form(f"{url}/token", {"a": "b"})).text)
            yield message

        await run_auth_flow(flow(), clients.http("test"), message, check=no_check, timeout_s=10)
        assert asked == ["/token", "/main"] and read == ["/token"]


async def test_an_address_is_checked_before_it_is_used_and_the_flow_is_closed():
    async with open_server() as (url, asked), ClientScope() as clients:
        message, closed = make_post(f"{url}/main", {}, {}), []

        async def flow():
            try:
                yield message
            finally:
                closed.append(True)

        def refuse(_url):
            raise PermissionError

        with pytest.raises(PermissionError):
            await run_auth_flow(flow(), clients.http("test"), message, check=refuse, timeout_s=10)
        assert asked == [] and closed == [True]


async def test_a_server_that_cannot_be_reached_is_an_error_of_the_flow():
    async with ClientScope() as clients:
        http, message = clients.http("test"), make_post("http://127.0.0.1:1/", {}, {})

        async def flow():
            yield message

        with pytest.raises(AuthFlowError):
            await send_request(http, message, 10)
        with pytest.raises(AuthFlowError):
            await run_auth_flow(flow(), http, message, check=no_check, timeout_s=10)


def test_only_the_named_host_may_be_private():
    permits = permit_host("http://Nas.lan:8000/mcp")
    assert permits("nas.lan", 8000, "10.0.0.5") and permits("login.example", 443, "93.184.216.34")
    assert not permits("login.example", 443, "169.254.169.254") and not permits("other.lan", 80, "10.0.0.6")
    assert permit_host("http://[::1]:1/")("::1", 1, "::1")


def test_the_same_address_has_the_same_permission_so_that_its_client_is_used_again():
    assert permit_host("http://a/") is permit_host("http://a/")
