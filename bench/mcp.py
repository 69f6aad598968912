"""MCP: what we add to a call of the SDK, connections in a row, and idle servers."""

import asyncio
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mcp import Client, StdioServerParameters
from tests.world.mcp_harness import FakeContext, events, is_alive, make_turn, open_host, open_servers, world_server

from alipes.features.mcp.client.connection import open_connection
from alipes.features.mcp.settings import McpServerConfig
from bench.measure import Row

CALLS = 300
CYCLES = int(os.environ.get("BENCH_MCP_CYCLES", "1000"))
ADDED_MS = 3.0
IDLE_SERVERS = 5


async def servers() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [await _calls(folder), await _cycles(folder / "cycles"), await _idle(folder / "idle")]


async def _calls(folder: Path) -> Row:
    """The same call by the SDK alone and as a tool of a turn, in turn."""
    config = world_server(folder / "server")
    plain = StdioServerParameters(command=config.command, args=[*config.args])
    async with Client(plain) as client, open_servers(folder, {"world": config}) as (made, _):
        act = FakeContext(folder)
        await made.prepare(make_turn(folder))
        tool = made.tools()["mcp__world__echo"]
        await tool.run({"text": "x"}, act)
        pairs = [
            (
                await _time(lambda: tool.run({"text": "x"}, act)),
                await _time(lambda: client.call_tool("echo", {"text": "x"})),
            )
            for _ in range(CALLS)
        ]
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    added = ours - bare
    what = "a call of an MCP tool, added to the SDK's own"
    return Row(what, f"{added:.2f} ms", f"{bare:.2f} ms", f"{ours / bare:.2f}", f"{ADDED_MS:.0f} ms", added <= ADDED_MS)


async def _time(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def _cycles(folder: Path) -> Row:
    config: McpServerConfig = world_server(folder)
    before = (0, 0)
    async with open_host(folder) as host:
        for number in range(CYCLES + 1):
            async with open_connection("world", config, host):
                pass
            before = before if number else _open_things()
        await asyncio.sleep(0.1)
        after = _open_things()
    alive = sum(map(is_alive, events(folder, "started")))
    left = max(0, after[0] - before[0]) + max(0, after[1] - before[1]) + alive
    what = f"{CYCLES} MCP connections: tasks, descriptors, processes left"
    return Row(what, f"{left} things", "0 things", "", "0 things", left == 0)


def _open_things() -> tuple[int, int]:
    gc.collect()
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))


async def _idle(folder: Path) -> Row:
    """Servers that were used once, in a later process."""
    configs = {f"s{number}": world_server(folder / str(number)) for number in range(IDLE_SERVERS)}
    async with open_servers(folder, configs) as (made, _):
        await made.prepare(make_turn(folder))
    started = sum(len(events(folder / str(number), "started")) for number in range(IDLE_SERVERS))
    async with open_servers(folder, configs) as (made, _):
        await made.prepare(make_turn(folder))
        assert len(made.tools()) > IDLE_SERVERS
        now = sum(len(events(folder / str(number), "started")) for number in range(IDLE_SERVERS)) - started
    what = f"processes of {IDLE_SERVERS} unused MCP servers"
    return Row(what, f"{now} things", "0 things", "", "0 things", now == 0)
