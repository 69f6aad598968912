"""The leak check finds what it says it finds, tells it so that a person can act, and nothing else."""

import asyncio
import inspect
import os
import re
import socket
import sys
import threading

import httpx2
import pytest

from alipes.runtime.http.clients import ClientScope
from alipes.testing import LeakCheck, LeakError, no_leaks, take_snapshot

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")


async def seen(leak, *allowed):
    """What the check says of something that `leak` leaves open; `leak` gives what closes it."""
    close = None
    try:
        async with no_leaks(*allowed, within=0.02):
            close = await leak()
    except LeakError as leaked:
        return str(leaked)
    finally:
        if close is not None and inspect.isawaitable(closing := close()):
            await closing
    return ""


async def test_what_is_closed_in_time_is_no_leak():
    async with no_leaks():
        task = asyncio.create_task(asyncio.sleep(60))
        child = await asyncio.create_subprocess_exec("sleep", "60")
        async with httpx2.AsyncClient(), ClientScope() as scope:
            scope.http("x", base_url="http://127.0.0.1:9")
        left, right = socket.socketpair()
        left.close()
        right.close()
        task.cancel()
        child.kill()
        await child.wait()


async def test_what_is_just_closing_is_given_time():
    async with no_leaks(within=5):
        asyncio.get_running_loop().call_later(0.05, asyncio.create_task(asyncio.sleep(60)).cancel)


async def test_a_leaked_task_is_found_with_the_line_it_waits_at():
    async def poll():
        await asyncio.sleep(60)

    async def leak():
        task = asyncio.create_task(poll(), name="the poller")
        await asyncio.sleep(0)
        return task.cancel

    said = await seen(leak)
    assert re.search(r"tasks +the poller \(.*poll\) at .*\.py:\d+", said), said


async def test_a_leaked_client_is_found_also_one_of_a_scope_that_was_never_left():
    async def leak():
        client = httpx2.AsyncClient(base_url="http://127.0.0.1:9/v1")
        return client.aclose

    assert "clients   httpx2.AsyncClient http://127.0.0.1:9/v1" in await seen(leak)

    async def leak_scope():
        scope = await ClientScope().__aenter__()
        scope.http("x")
        return lambda: scope.__aexit__(None, None, None)

    assert "clients   alipes.HttpClient" in await seen(leak_scope)


async def test_a_leaked_process_is_found_with_its_command():
    async def leak():
        child = await asyncio.create_subprocess_exec("sleep", "61")

        async def end():
            child.kill()
            await child.wait()

        return end

    said = await seen(leak, "fds", "threads")
    assert re.search(r"processes \d+: sleep 61", said), said


async def test_an_ended_process_that_nobody_waited_for_is_found_too():
    async def leak():
        pid = os.posix_spawn("/bin/true", ["true"], {})
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            await asyncio.sleep(0.001)
        return lambda: os.waitpid(pid, 0)

    assert "but not waited for" in await seen(leak)


async def test_a_leaked_descriptor_is_found_with_what_it_is(tmp_path):
    async def leak():
        number = os.open(tmp_path / "notes", os.O_CREAT | os.O_WRONLY)
        return lambda: os.close(number)

    assert f"-> {tmp_path}/notes" in await seen(leak)

    async def leak_socket():
        listening = socket.create_server(("127.0.0.1", 0))
        return listening.close

    assert "socket:" in (said := await seen(leak_socket)) and "127.0.0.1" in said


async def test_a_leaked_thread_is_found_and_the_loops_own_pool_is_none():
    gate = threading.Event()

    async def leak():
        thread = threading.Thread(target=gate.wait, name="the worker", daemon=True)
        thread.start()

        def end():
            gate.set()
            thread.join()

        return end

    assert "threads   the worker (daemon)" in await seen(leak)

    async def pool():
        await asyncio.to_thread(sys.getrefcount, None)

    assert await seen(pool) == ""


async def test_a_kind_can_be_allowed_and_the_others_still_count():
    async def leak():
        task, number = asyncio.create_task(asyncio.sleep(60)), os.dup(0)
        await asyncio.sleep(0)
        return lambda: (task.cancel(), os.close(number))

    assert "tasks" not in (said := await seen(leak, "tasks")) and "fds" in said
    assert await seen(leak, "tasks", "fds") == ""


async def test_a_descriptor_that_was_closed_and_opened_again_as_another_is_a_leak(tmp_path):
    first = os.open(tmp_path / "a", os.O_CREAT)
    check = LeakCheck().begin()
    os.close(first)
    again = os.open(tmp_path / "b", os.O_CREAT)
    assert again == first
    assert f"{again} -> {tmp_path}/b" in check.find_leaks()["fds"]
    os.close(again)
    assert check.find_leaks() == {}


async def test_an_error_in_the_body_is_reported_rather_than_its_leaks():
    task = None
    with pytest.raises(ZeroDivisionError):
        async with no_leaks():
            task = asyncio.create_task(asyncio.sleep(60))
            raise ZeroDivisionError
    task.cancel()


def test_without_a_loop_there_are_no_tasks_and_the_rest_is_counted():
    check = LeakCheck().begin()
    assert take_snapshot().resources["tasks"] == {}
    number = os.dup(0)
    with pytest.raises(LeakError, match="fds"):
        check.verify()
    os.close(number)
    check.verify()
