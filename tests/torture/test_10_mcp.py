"""Misbehaving MCP servers: only their tools fail, with a reason; nothing is left behind; the loop and the CPU stay free."""

import asyncio
import gc
import os
import random
import sys
import time
from pathlib import Path

import pytest

from alipes.features.mcp.client.connection import import_sdk, open_connection
from alipes.features.mcp.client.definitions import McpError
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.errors import ToolError
from tests.torture.test_children import find_running, unique_name
from tests.torture.trials import trials
from tests.world.environment import LIMIT_S
from tests.world.mcp_harness import FakeContext, events, is_alive, make_turn, open_host, open_servers, world_server
from tests.world.mcp_http import open_mcp_http
from tests.world.wait import until

pytestmark = pytest.mark.deadline(300)
CYCLES = trials(50, 1000)
STOPS = trials(50, 200)
IDLE_CPU_S = 0.5
"""CPU seconds that a second without work may cost; under load it costs more than on a quiet machine."""
HOST = """
import asyncio, sys
from pathlib import Path
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.http.clients import ClientScope
from tests.world.mcp_harness import open_host, open_servers, world_server

async def main():
    folder, name = Path(sys.argv[1]), sys.argv[2]
    async with open_orphan_guard(folder / "run") as guard, open_host(folder, guard=guard) as host:
        async with open_servers(folder, {"world": world_server(folder / "server")}, host=host) as (servers, _):
            server = servers.servers["world"]
            await server.use(lambda connection: connection.call_tool("children", {"name": name}))
            print("ready", flush=True)
            await asyncio.sleep(1000)

asyncio.run(main())
"""


def open_things() -> tuple[int, int]:
    """Tasks and descriptors of this process."""
    gc.collect()
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))


async def settled(expected: tuple[int, int]) -> None:
    """Wait until no more tasks and descriptors are open than expected."""
    await until(lambda: open_things() <= expected)


async def test_many_connections_leave_no_task_process_or_descriptor(tmp_path, figures, caplog):
    await import_sdk()
    async with open_host(tmp_path) as host:
        config, before = world_server(tmp_path / "server"), None
        for number in range(CYCLES):
            async with open_connection("world", config, host, workdir=str(tmp_path)) as connection:
                if not number % 10:
                    await connection.call_tool("echo", {"text": "x"})
            before = before or open_things()  # after the first one, which opens what is kept
        await settled(before)
    started = events(tmp_path / "server", "started")
    assert len(started) == CYCLES
    assert not any(map(is_alive, started))
    assert not [record for record in caplog.records if "cancel scope" in record.getMessage()]
    figures.tried(CYCLES)


async def test_many_http_connections_leave_no_task_or_descriptor(tmp_path, figures):
    await import_sdk()
    async with open_mcp_http() as server, open_host(tmp_path) as host:
        before = None
        for _ in range(CYCLES):
            async with open_connection("web", McpServerConfig(url=server.url), host) as connection:
                await connection.call_tool("echo", {})
            before = before or open_things()
        await settled(before)
        assert host.clients.open_clients() == ()
    assert server.methods.count("DELETE") == CYCLES
    figures.tried(CYCLES)


async def test_broken_servers_fail_alone_and_with_a_reason(tmp_path, figures):
    never_connect, usable = ("silent", "mute", "deaf"), ("flood", "children", "stubborn")
    servers = {mode: world_server(tmp_path / mode, mode, start_timeout=4.0) for mode in never_connect}
    slow_machine = {"start_timeout": LIMIT_S}  # these must have the time that a busy machine needs
    servers |= {mode: world_server(tmp_path / mode, mode, **slow_machine) for mode in (*usable, "exit", "garbage")}
    servers["good"] = world_server(tmp_path / "good", **slow_machine)
    act = FakeContext(tmp_path)
    async with open_servers(tmp_path, servers, wait=2 * LIMIT_S) as (made, shown):
        await made.prepare(act.turn)
        working = {name.split("__")[1] for name in made.tools() if name.startswith("mcp__")}
        assert working == {"good", *usable}
        for name in working:
            output = await made.tools()[f"mcp__{name}__echo"].run({"text": name}, act)
            assert output.text == name
        states = {status.name: status for status in made.statuses()}
        for mode in never_connect:
            assert "did not connect within 4 s" in states[mode].error
        assert "exited with code 4" in states["exit"].error
        assert "not MCP" in states["garbage"].error
        assert len(shown) == 5
        figures.worst("CPU of an idle second beside broken servers", await idle_cpu(), "s")
    await until(lambda: not any(is_alive(pid) for mode in servers for pid in events(tmp_path / mode, "started")))
    assert find_running("300.children") == []


async def idle_cpu() -> float:
    """CPU seconds of this process during a second without work."""
    await asyncio.sleep(0.2)
    began = time.process_time()
    await asyncio.sleep(1)
    used = time.process_time() - began
    assert used < IDLE_CPU_S
    return used


async def test_a_flood_of_standard_error_costs_neither_memory_nor_cpu_nor_the_loop(tmp_path, figures):
    act = FakeContext(tmp_path)
    async with open_servers(tmp_path, {"world": world_server(tmp_path / "server")}) as (made, _):
        await made.prepare(act.turn)
        tools = made.tools()
        await tools["mcp__world__flood"].run({}, act)
        await asyncio.sleep(2)
        figures.worst("CPU of a second during a flood", await idle_cpu(), "s")
        (pid,) = events(tmp_path / "server", "started")
        before = cpu_ticks(pid)
        await asyncio.sleep(1)
        assert cpu_ticks(pid) - before < 50
        assert (await tools["mcp__world__echo"].run({"text": "x"}, act)).text == "x"
        assert sum(path.stat().st_size for path in (tmp_path / "logs").iterdir()) < 2 << 20


def cpu_ticks(pid: str) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def test_a_server_that_dies_again_and_again_is_started_ever_more_rarely(tmp_path):
    act = FakeContext(tmp_path)
    async with open_servers(tmp_path, {"world": world_server(tmp_path / "server")}) as (made, _):
        await made.prepare(act.turn)
        tools = made.tools()
        reasons = []
        for _ in range(8):
            with pytest.raises(ToolError) as failed:
                await tools["mcp__world__die"].run({}, act)
            reasons.append(str(failed.value))
        assert len(events(tmp_path / "server", "started")) <= 6
        assert any("It is tried again in" in reason for reason in reasons)
        assert all("world" in reason for reason in reasons)


async def test_an_http_server_that_breaks_in_every_way_fails_only_its_calls(tmp_path):
    async def cut(verb, headers, message):
        raise ConnectionResetError

    async def junk(verb, headers, message):
        return 200, {"content-type": "application/json"}, b"{not json"

    async def bad_gateway(verb, headers, message):
        return 502, {"content-type": "text/html"}, b"<html>" + b"x" * 100_000

    async def wrong_type(verb, headers, message):
        return 200, {"content-type": "text/html"}, b"hello"

    async with open_mcp_http() as server:
        servers = {"web": McpServerConfig(url=server.url), "good": world_server(tmp_path / "good")}
        act = FakeContext(tmp_path)
        async with open_servers(tmp_path, servers) as (made, _):
            await made.prepare(act.turn)
            tools = made.tools()
            for broken in (cut, junk, bad_gateway, wrong_type):
                server.override = broken
                with pytest.raises(ToolError):
                    await tools["mcp__web__echo"].run({}, act)
                server.override = None
                assert (await tools["mcp__good__echo"].run({"text": "x"}, act)).text == "x"
                made.servers["web"].instance().backoff.forget()
                assert "echo" in (await tools["mcp__web__echo"].run({}, act)).text
            await idle_cpu()


async def test_calls_stopped_at_random_moments_leave_nothing_and_others_are_answered(tmp_path, figures):
    rng, slowest = random.Random(10), 0.0
    async with open_servers(tmp_path, {"world": world_server(tmp_path / "server")}) as (made, _):
        act = FakeContext(tmp_path)
        await made.prepare(act.turn)
        tools = made.tools()
        before = open_things()
        for _ in range(STOPS):
            async with asyncio.TaskGroup() as group:
                slow = group.create_task(tools["mcp__world__wait"].run({"seconds": 600}, act))
                quick = group.create_task(tools["mcp__world__echo"].run({"text": "x"}, act))
                await asyncio.sleep(rng.uniform(0, 0.02))
                began = time.perf_counter()
                slow.cancel()
                await asyncio.wait({slow})
                slowest = max(slowest, time.perf_counter() - began)
                assert (await quick).text == "x"
        await settled(before)
        assert (await tools["mcp__world__echo"].run({"text": "last"}, act)).text == "last"
    figures.tried(STOPS)
    figures.worst("stop of an MCP call", slowest * 1000, "ms")


async def test_starts_stopped_at_random_moments_leave_no_process(tmp_path, figures):
    await import_sdk()
    rng = random.Random(11)
    async with open_host(tmp_path) as host:
        config = world_server(tmp_path / "server")

        async def connect():
            async with open_connection("world", config, host):
                await asyncio.sleep(0.01)

        for _ in range(STOPS):
            task = asyncio.create_task(connect())
            await asyncio.sleep(rng.uniform(0, 0.12))
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or task.exception() is None
    assert not any(map(is_alive, events(tmp_path / "server", "started")))
    figures.tried(STOPS)


async def test_no_process_of_a_server_outlives_a_killed_host(tmp_path, figures):
    name = unique_name(random.Random())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOST, str(tmp_path), name), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        await until(lambda: find_running(f"300.{name}"))
        (pid,) = events(tmp_path / "server", "started")
    finally:
        process.kill()
        await process.wait()
    began = time.monotonic()
    await until(lambda: not find_running(f"300.{name}") and not is_alive(pid))
    figures.worst("orphans of an MCP server after kill -9", time.monotonic() - began, "s")


async def test_a_message_flood_is_slowed_down_and_a_huge_message_ends_the_connection(tmp_path):
    script = tmp_path / "huge.py"
    script.write_text(
        "import sys\nsys.stdin.readline()\nwhile True:\n    sys.stdout.write('x' * 1_000_000)\n    sys.stdout.flush()\n"
    )
    config = McpServerConfig(command=sys.executable, args=("-S", "-I", str(script)), start_timeout=60)
    async with open_host(tmp_path) as host:
        with pytest.raises(McpError, match="a message of more than 32 MB"):
            async with open_connection("huge", config, host):
                raise AssertionError("connected")


async def test_idle_servers_have_no_process(tmp_path):
    servers = {f"s{number}": world_server(tmp_path / str(number)) for number in range(5)}
    async with open_servers(tmp_path, servers) as (made, _):
        await made.prepare(make_turn(tmp_path))
    count = sum(len(events(tmp_path / str(number), "started")) for number in range(5))
    async with open_servers(tmp_path, servers) as (made, _):
        await made.prepare(make_turn(tmp_path))
        assert len(made.tools()) > 5
        assert sum(len(events(tmp_path / str(number), "started")) for number in range(5)) == count
