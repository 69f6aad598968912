"""Reference MCP servers of others: what they offer can be listed, called, stopped and closed."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from alipes.features.mcp.client.connection import open_connection
from alipes.features.mcp.client.host import ElicitationAnswer, SamplingReply
from alipes.features.mcp.settings import McpServerConfig
from alipes.runtime.processes.child import open_child
from tests.world.mcp_harness import FakeContext, make_turn, node_server, open_host, open_servers, time_server
from tests.world.wait import until

pytestmark = [pytest.mark.deadline(90), pytest.mark.service("mcp")]


class Requests:
    async def sample(self, server, turn, request):
        return SamplingReply("the model says hello", "m")

    async def elicit(self, server, turn, question):
        return ElicitationAnswer("accept", {"name": "Ada"})


def text_of(result) -> str:
    return "".join(getattr(part, "text", "") for part in result.content)


async def test_the_time_server_of_pypi(tmp_path):
    async with open_host(tmp_path) as host, open_connection("time", time_server(), host) as connection:
        assert {tool.name for tool in connection.tools} == {"get_current_time", "convert_time"}
        assert "Europe/Vienna" in text_of(await connection.call_tool("get_current_time", {"timezone": "Europe/Vienna"}))
        assert (await connection.call_tool("get_current_time", {"timezone": "No/Where"})).is_error


async def test_the_filesystem_server_of_npm(tmp_path):
    (tmp_path / "a.txt").write_text("content of a")
    config = node_server("server-filesystem", str(tmp_path))
    async with open_servers(tmp_path, {"fs": config}) as (servers, _):
        await servers.prepare(make_turn(tmp_path))
        tools, act = servers.tools(), FakeContext(tmp_path)
        assert tools["mcp__fs__read_text_file"].spec.effect == "read"
        assert tools["mcp__fs__write_file"].spec.effect == "write"
        assert "content of a" in (await tools["mcp__fs__read_text_file"].run({"path": "a.txt"}, act)).text


async def test_everything_of_the_reference_server_of_npm(tmp_path):
    async with open_host(tmp_path, requests=Requests()) as host:
        async with open_connection(
            "every", node_server("server-everything", "stdio"), host, workdir=str(tmp_path)
        ) as connection:
            act = FakeContext(tmp_path)
            assert "Echo: hi" in text_of(await connection.call_tool("echo", {"message": "hi"}, act))
            picture = await connection.call_tool("get-tiny-image", {}, act)
            assert "image" in [part.type for part in picture.content]
            await until(lambda: connection.tools_changed)  # it adds tools that depend on the client
            await connection.refresh()
            assert "trigger-sampling-request" in {tool.name for tool in connection.tools}
            sampled = await connection.call_tool("trigger-sampling-request", {"prompt": "hi", "maxTokens": 10}, act)
            assert "the model says hello" in text_of(sampled)
            asked = await connection.call_tool("trigger-elicitation-request", {}, act)
            assert "Ada" in text_of(asked)
            assert str(tmp_path) in text_of(await connection.call_tool("get-roots-list", {}, act))
            steps = {"duration": 0.4, "steps": 4}
            await connection.call_tool("trigger-long-running-operation", steps, act)
            assert any("4 of 4" in line for line in act.shown)
            assert "simple-prompt" in {prompt.name for prompt in connection.prompts}
            resource = await connection.read_resource(connection.resources[0].uri)
            assert resource.contents


@asynccontextmanager
async def open_everything(kind: str) -> AsyncIterator[int]:
    """The reference server over HTTP: its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = node_server("server-everything", kind)
    env = {"PATH": os.environ["PATH"], "PORT": str(port)}
    async with open_child((config.command, *config.args), cwd="/", env=env):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            break
        yield port


@pytest.mark.parametrize(("kind", "path", "transport"), [("streamableHttp", "/mcp", "http"), ("sse", "/sse", "sse")])
async def test_the_reference_server_over_http(tmp_path, kind, path, transport):
    async with open_everything(kind) as port, open_host(tmp_path) as host:
        config = McpServerConfig(url=f"http://127.0.0.1:{port}{path}")
        async with open_connection("every", config, host) as connection:
            assert connection.info.transport == transport
            assert "Echo: hi" in text_of(await connection.call_tool("echo", {"message": "hi"}))


async def test_a_stopped_call_of_the_reference_server_leaves_the_others_alone(tmp_path):
    config = structs.replace(node_server("server-everything", "stdio"), timeout=60)
    async with open_host(tmp_path) as host, open_connection("every", config, host) as connection:
        async with asyncio.TaskGroup() as group:
            act = FakeContext(tmp_path)
            steps = {"duration": 600, "steps": 6000}
            slow = group.create_task(connection.call_tool("trigger-long-running-operation", steps, act))
            await until(lambda: act.shown)
            slow.cancel()
        assert "Echo: still" in text_of(await connection.call_tool("echo", {"message": "still"}))
