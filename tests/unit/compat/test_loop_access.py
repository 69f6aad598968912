"""Threads may touch the loop as long as a Hermes plugin is open; its own thread notices nothing of it."""

import asyncio
import threading

import pytest

from alipes.compat.hermes.loop_access import allow_threads, disallow_threads


@pytest.fixture
def waits():
    return lambda work: ("waited", work)


async def test_a_future_resolved_in_a_thread_wakes_who_waits_for_it_at_once(waits):
    loop = asyncio.get_running_loop()
    allow_threads(loop, waits)
    future, released = loop.create_future(), threading.Event()

    def resolve():
        future.set_result("woken")
        return released.wait(5)

    working = loop.run_in_executor(None, resolve)
    assert await future == "woken" and not working.done()
    released.set()
    assert await working
    disallow_threads(loop, waits)


async def test_timers_callbacks_and_tasks_may_come_from_threads(waits):
    loop, heard = asyncio.get_running_loop(), []
    allow_threads(loop, waits)

    def touch():
        loop.call_soon(heard.append, "soon")
        loop.call_later(0.01, heard.append, "later")
        loop.call_later(60, heard.append, "never").cancel()
        return loop.run_until_complete("this"), loop.create_task(asyncio.sleep(0, "task"))

    waited, task = await asyncio.to_thread(touch)
    assert waited == ("waited", "this") and await task == "task"
    while len(heard) < 2:
        await asyncio.sleep(0.01)
    assert heard == ["soon", "later"]
    disallow_threads(loop, waits)


async def test_on_its_own_thread_the_loop_is_as_it_was_and_afterwards_everywhere(waits):
    loop = asyncio.get_running_loop()
    usual = loop.call_soon
    allow_threads(loop, waits)
    allow_threads(loop, print)  # a second house on the same loop
    disallow_threads(loop, waits)
    assert loop.call_soon != usual
    work = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already running"):
        loop.run_until_complete(work)
    await work
    heard = asyncio.Event()
    loop.call_later(0, heard.set)
    await heard.wait()
    disallow_threads(loop, print)
    assert loop.call_soon == usual and "call_at" not in vars(loop)
    with pytest.raises(RuntimeError, match="thread"):
        await asyncio.to_thread(loop.call_soon, heard.set)
