"""Servers over HTTP: errors with a reason, sessions that end, redirects, addresses."""

import asyncio

import pytest

from alipes.features.mcp.client.connection import open_connection
from alipes.features.mcp.client.definitions import McpError
from alipes.features.mcp.settings import McpServerConfig
from tests.world.mcp_harness import open_host, open_server
from tests.world.mcp_http import open_mcp_http

pytestmark = pytest.mark.deadline(60)
KEY_REFUSED = r"^web: it refuses the Authorization header of its settings \(HTTP 401\)$"


def call(text: str = "x"):
    return lambda connection: connection.call_tool("echo", {"text": text})


async def test_a_server_is_reached_with_its_headers_and_its_session_is_ended(tmp_path):
    async with open_mcp_http() as server, open_host(tmp_path) as host:
        config = McpServerConfig(url=server.url, headers={"X-Team": "blue"})
        async with open_connection("web", config, host) as connection:
            assert connection.info.transport == "http"
            assert [tool.name for tool in connection.tools] == ["echo"]
            result = await connection.call_tool("echo", {"a": 1})
            assert result.content[0].text == "echo {'a': 1}"
        assert host.clients.open_clients() == ()
    assert all(headers["x-team"] == "blue" for _, headers, _ in server.requests)
    assert server.methods[-1] == "DELETE"


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (502, "it answered HTTP 502"),
        (500, "it answered HTTP 500"),
        (401, r"needs a login \(HTTP 401\): run `alipes mcp login web`"),
        (404, "it answered HTTP 404"),
    ],
)
async def test_a_server_that_refuses_the_connection_has_a_reason(tmp_path, status, why):
    async def refuse(verb, headers, message):
        return status, {}, b"<html>error</html>"

    async with open_mcp_http() as server, open_host(tmp_path) as host:
        server.override = refuse
        with pytest.raises(McpError, match=why):
            async with open_connection("web", McpServerConfig(url=server.url), host):
                raise AssertionError("connected")


async def test_a_key_that_is_refused_is_named_and_no_login_is_proposed(tmp_path):
    async def refuse(verb, headers, message):
        return (401, {}, b"") if message.get("method") in ("initialize", "tools/call") else None

    async with open_mcp_http() as server, open_host(tmp_path) as host:
        config = McpServerConfig(url=server.url, headers={"Authorization": "Bearer old"})
        async with open_connection("web", config, host) as connection:
            server.override = refuse
            with pytest.raises(McpError, match=KEY_REFUSED):
                await connection.call_tool("echo", {})
        with pytest.raises(McpError, match=KEY_REFUSED):
            async with open_connection("web", config, host):
                raise AssertionError("connected")


async def test_a_refused_request_of_the_older_transport_has_a_reason_and_the_next_call_connects_again(tmp_path):
    async def refuse(verb, headers, message):
        return (401, {}, b"") if message.get("method") == "tools/call" else None

    async with open_mcp_http() as fake:
        fake.is_sse = True
        async with open_server(tmp_path, McpServerConfig(url=fake.url, timeout=4)) as server:
            await server.use(call())
            assert server.instance().connection.info.transport == "sse"
            fake.override = refuse
            with pytest.raises(McpError, match=r"world: it needs a login \(HTTP 401\): run `alipes mcp login world`"):
                await server.use(call())
            fake.override, fake.stream = None, None
            assert (await server.use(call())).content


async def test_a_server_that_is_not_there_has_a_reason(tmp_path):
    async with open_mcp_http() as server:
        url = server.url
    async with open_host(tmp_path) as host:
        with pytest.raises(McpError, match="web: it cannot be reached"):
            async with open_connection("web", McpServerConfig(url=url), host):
                raise AssertionError("connected")


async def test_a_502_during_a_call_fails_that_call_and_the_next_one_works(tmp_path):
    async with open_mcp_http() as server:
        async with open_server(tmp_path, McpServerConfig(url=server.url)) as client:
            await client.use(call())

            async def break_calls(verb, headers, message):
                return (502, {}, b"") if message.get("method") == "tools/call" else None

            server.override = break_calls
            with pytest.raises(McpError, match="error response"):
                await client.use(call())
            server.override = None
            assert (await client.use(call())).content[0].text == "echo {'text': 'x'}"


async def test_a_server_that_forgot_the_session_is_connected_again_and_the_call_is_repeated(tmp_path):
    async with open_mcp_http() as server:
        async with open_server(tmp_path, McpServerConfig(url=server.url)) as client:
            await client.use(call("one"))
            server.session = "two"
            assert (await client.use(call("two"))).content[0].text == "echo {'text': 'two'}"
    assert server.methods.count("initialize") == 2


async def test_a_redirect_to_another_host_is_not_followed(tmp_path):
    async with open_mcp_http() as server, open_mcp_http() as other, open_host(tmp_path) as host:

        async def redirect(verb, headers, message):
            return 307, {"location": other.url}, b""

        server.override = redirect
        with pytest.raises(McpError, match="not followed"):
            async with open_connection("web", McpServerConfig(url=server.url), host):
                raise AssertionError("connected")
        assert other.requests == []


async def test_a_call_that_is_stopped_is_cancelled_at_the_server(tmp_path):
    called, released = asyncio.Event(), asyncio.Event()

    async def wait(verb, headers, message):
        if message.get("method") == "tools/call":
            called.set()
            await released.wait()
        return

    async with open_mcp_http() as server:
        server.override = wait
        async with open_server(tmp_path, McpServerConfig(url=server.url)) as client, asyncio.TaskGroup() as group:
            task = group.create_task(client.use(call()))
            await called.wait()
            began = asyncio.get_running_loop().time()
            task.cancel()
            await asyncio.wait({task})
            assert asyncio.get_running_loop().time() - began < 5
            while "notifications/cancelled" not in server.methods:
                await asyncio.sleep(0.01)
            released.set()


async def test_the_login_of_a_server_is_used(tmp_path):
    asked = []

    def auth_for(name, config):
        asked.append(name)
        return ("user", "word")

    async with open_mcp_http() as server, open_host(tmp_path, auth_for=auth_for) as host:
        async with open_connection("web", McpServerConfig(url=server.url), host):
            pass
    assert asked == ["web"]
    assert {headers["authorization"].partition(" ")[0] for _, headers, _ in server.requests} == {"Basic"}
