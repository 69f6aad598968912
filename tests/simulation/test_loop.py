"""The simulated event loop: virtual time, order, repeatable randomness, crashes."""

import asyncio
import random

import pytest

from tests.simulation.loop import Crashed, Deadlock, SeededLoop, Thread


def make_loop(seed=1):
    return SeededLoop([0.0], random.Random(seed))


def finish(loop, work):
    task = loop.create_task(work)
    task.add_done_callback(lambda _task: loop.stop())
    loop.run_forever()
    loop.drop()
    return task


def test_hours_pass_in_no_time():
    loop = make_loop()
    finish(loop, asyncio.sleep(7200.0))
    assert loop.time() == 7200.0


def test_call_soon_keeps_the_order():
    loop, order = make_loop(), []

    async def work():
        for number in range(20):
            loop.call_soon(order.append, number)
        await asyncio.sleep(1)

    finish(loop, work())
    assert order == list(range(20))


def order_of_ten(seed):
    loop, order = make_loop(seed), []

    async def work():
        for number in range(10):
            loop.call_later(1.0, order.append, number)
        await asyncio.sleep(2)

    finish(loop, work())
    return order


def test_timers_due_together_run_in_an_order_that_depends_on_the_seed():
    assert order_of_ten(1) == order_of_ten(1) != order_of_ten(2)
    assert sorted(order_of_ten(2)) == list(range(10))


def test_a_thread_runs_jobs_and_reports_results_in_order():
    loop, seen = make_loop(), []

    async def work():
        thread = Thread(loop)
        for number in range(10):
            thread.submit(int, number).add_done_callback(
                lambda done: loop.call_soon_threadsafe(seen.append, done.result())
            )
        await asyncio.sleep(5)

    finish(loop, work())
    assert seen == list(range(10))


def test_an_exception_in_a_thread_reaches_the_caller():
    async def work():
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    assert finish(make_loop(), work()).exception() is None


def test_a_deadlock_is_reported():
    loop = make_loop()
    loop.create_task(asyncio.Event().wait())
    with pytest.raises(Deadlock):
        loop.run_forever()
    loop.drop()


def test_after_a_crash_nothing_of_the_process_happens():
    loop, done = make_loop(), []

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
