"""The loop under the simulation: time that jumps, order that holds, chances that repeat, death."""

import asyncio
import random

import pytest

from tests.simulation.loop import Crashed, SeededLoop, Stuck, Thread


def a_loop(seed=1):
    return SeededLoop([0.0], random.Random(seed))


def finish(loop, work):
    task = loop.create_task(work)
    task.add_done_callback(lambda _task: loop.stop())
    loop.run_forever()
    loop.drop()
    return task


def test_hours_pass_in_no_time():
    loop = a_loop()
    finish(loop, asyncio.sleep(7200.0))
    assert loop.time() == 7200.0


def test_what_is_called_soon_keeps_its_order():
    loop, order = a_loop(), []

    async def work():
        for number in range(20):
            loop.call_soon(order.append, number)
        await asyncio.sleep(1)

    finish(loop, work())
    assert order == list(range(20))


def the_order_of_ten(seed):
    loop, order = a_loop(seed), []

    async def work():
        for number in range(10):
            loop.call_later(1.0, order.append, number)
        await asyncio.sleep(2)

    finish(loop, work())
    return order


def test_what_is_due_at_one_moment_comes_in_any_order_and_by_one_seed_in_the_same():
    assert the_order_of_ten(1) == the_order_of_ten(1) != the_order_of_ten(2)
    assert sorted(the_order_of_ten(2)) == list(range(10))


def test_a_thread_does_one_thing_after_the_other_and_tells_in_that_order():
    loop, seen = a_loop(), []

    async def work():
        thread = Thread(loop)
        for number in range(10):
            thread.submit(int, number).add_done_callback(
                lambda done: loop.call_soon_threadsafe(seen.append, done.result())
            )
        await asyncio.sleep(5)

    finish(loop, work())
    assert seen == list(range(10))


def test_what_a_thread_raises_is_raised_to_who_asked():
    async def work():
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    assert finish(a_loop(), work()).exception() is None


def test_a_deadlock_is_reported():
    loop = a_loop()
    loop.create_task(asyncio.Event().wait())
    with pytest.raises(Stuck):
        loop.run_forever()
    loop.drop()


def test_after_a_crash_nothing_of_the_process_happens():
    loop, done = a_loop(), []

    async def work():
        await asyncio.sleep(1)
        try:
            await asyncio.sleep(1)
        finally:
            done.append(loop.dead)

    loop.create_task(work())
    loop.crash_at = 4
    with pytest.raises(Crashed):
        loop.run_forever()
    loop.drop()
    assert done == []
