"""One server: started with its first use, shared, restarted with backoff, stopped without traces."""

import asyncio
import os
import signal

import pytest

from alipes.features.mcp.client.definitions import McpError
from alipes.features.mcp.client.server import MAX_INSTANCES, Backoff
from tests.world.mcp_harness import events, is_alive, open_server, world_server
from tests.world.wait import until

pytestmark = pytest.mark.deadline(60)


def call(tool: str, **args):
    return lambda connection: connection.call_tool(tool, args)


async def test_nothing_is_started_before_the_first_use(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path)) as server:
        assert server.state == "idle"
        await asyncio.sleep(0)
    assert events(tmp_path, "started") == []


async def test_concurrent_first_calls_share_one_process(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path)) as server:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(server.use(call("echo", text=str(number))))
        assert server.state == "connected"
    (pid,) = events(tmp_path, "started")
    assert not is_alive(pid)


async def test_a_server_that_died_is_started_again_by_the_next_call(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path)) as server:
        with pytest.raises(McpError):
            await server.use(call("die"))
        await until(lambda: server.state == "failed")
        assert "exited with code 3" in server.last_error
        result = await server.use(call("echo", text="again"))
        assert result.content[0].text == "again"
    assert len(events(tmp_path, "started")) == 2


async def test_calls_fail_at_once_with_the_reason_while_a_broken_server_rests(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path, "exit")) as server:
        for _ in range(3):
            with pytest.raises(McpError, match="exited with code 4"):
                await server.use(call("echo"))
        server.instance().backoff.note_end(0)
        with pytest.raises(McpError, match=r"cannot open the database. It is tried again in \d+ s"):
            await server.use(call("echo"))
        started = len(events(tmp_path, "started"))
        with pytest.raises(McpError):
            await server.use(call("echo"))
        assert len(events(tmp_path, "started")) == started


def test_the_backoff_doubles_to_a_limit_and_is_forgotten_after_a_good_connection():
    now = [0.0]
    backoff, delays = Backoff(lambda: now[0]), []
    for _ in range(10):
        backoff.note_end(1.0)
        delays.append(backoff.seconds_left)
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    backoff.note_end(100.0)
    assert backoff.seconds_left == 0
    backoff.note_end(1.0)
    assert backoff.seconds_left == 1
    backoff.forget()
    assert backoff.seconds_left == 0


async def test_a_stopped_call_returns_although_the_server_reads_nothing(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path)) as server:
        await server.use(call("echo", text="x"))
        (pid,) = events(tmp_path, "started")
        os.kill(int(pid), signal.SIGSTOP)
        async with asyncio.TaskGroup() as group:
            big = "x" * 200_000  # more than the pipe holds
            tasks = [group.create_task(server.use(call("echo", text=big))) for _ in range(3)]
            instance = server.instance()
            await until(lambda: instance.running == 3)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)  # the server is still suspended
        assert all(task.cancelled() for task in tasks)
        os.kill(int(pid), signal.SIGCONT)


async def test_a_stopped_call_does_not_disturb_others_and_reaches_the_server(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path)) as server, asyncio.TaskGroup() as group:
        slow = group.create_task(server.use(call("wait", seconds=600)))
        other = group.create_task(server.use(call("wait", seconds=0.3)))
        await until(lambda: len(events(tmp_path, "calls")) == 2)
        slow.cancel()
        assert (await other).content[0].text == "waited"
        await until(lambda: events(tmp_path, "cancelled"))


async def test_a_stop_while_the_server_starts_leaves_it_to_others(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path)) as server:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(server.use(call("echo", text="1")))
            second = group.create_task(server.use(call("echo", text="2")))
            await asyncio.sleep(0)
            first.cancel()
        assert second.result().content[0].text == "2"
    assert len(events(tmp_path, "started")) == 1


async def test_stopping_a_server_that_is_starting_ends_its_process(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path, "deaf")) as server:
        server.instance().start()
        await until(lambda: events(tmp_path, "started"))
        await server.stop()
        assert not is_alive(events(tmp_path, "started")[0])
        assert server.state == "idle"


async def test_each_working_directory_has_a_process_of_its_own(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path)) as server:
        for number in range(MAX_INSTANCES + 2):
            (folder := tmp_path / f"project{number}").mkdir()
            await server.use(call("echo", text="x"), str(folder))
        pids = events(tmp_path, "started")
        assert len(pids) == MAX_INSTANCES + 2
        assert sum(map(is_alive, pids)) == MAX_INSTANCES
        assert is_alive(pids[-1])


async def test_a_server_with_a_directory_of_its_own_has_one_process(tmp_path):
    async with open_server(tmp_path, world_server(tmp_path, cwd=str(tmp_path))) as server:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            await server.use(call("echo", text="x"), str(tmp_path / name))
    assert len(events(tmp_path, "started")) == 1


async def test_closing_the_app_ends_servers_and_running_calls(tmp_path):
    async with asyncio.TaskGroup() as group:
        async with open_server(tmp_path, world_server(tmp_path)) as server:
            task = group.create_task(_ignore(server.use(call("wait", seconds=600))))
            await until(lambda: events(tmp_path, "calls"))
        await task
    assert not is_alive(events(tmp_path, "started")[0])


async def _ignore(work) -> None:
    with pytest.raises(McpError, match="the server was stopped"):
        await work
