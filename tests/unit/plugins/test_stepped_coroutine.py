"""A plugin's coroutine continues in the task that began it as if it were awaited, only that it always ends."""

import asyncio
import gc
import math

import pytest

from alipes.plugins.interruption import stepped_coroutine
from alipes.plugins.interruption.stepped_coroutine import SteppedCoroutine, WatchedCoroutine, start_task
from alipes.runtime.watchdog import LoopActivity
from tests.world.environment import LIMIT_S


class Deed:
    patience = math.inf

    def blocked(self, seconds: float) -> None: ...

    def interrupted(self, seconds: float) -> None: ...


async def forever() -> None:
    await asyncio.Event().wait()


def rest_of(work, deadline: float | None = None, *, patience: float = 5.0) -> SteppedCoroutine:
    rest = SteppedCoroutine(work, work.send(None), Deed(), LoopActivity())
    rest.patience = patience
    return rest.with_deadline(deadline)


async def test_it_gives_and_raises_what_the_coroutine_does():
    async def gives(value):
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return value

    async def breaks():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    assert await rest_of(gives(3)) == 3
    with pytest.raises(ZeroDivisionError):
        await rest_of(breaks())


async def test_what_it_awaits_is_awaited_as_ever():
    async def works():
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        future = loop.create_future()
        loop.call_soon(future.set_result, 1)
        got = [await future]
        loop.call_soon((broken := loop.create_future()).set_exception, KeyError("x"))
        with pytest.raises(KeyError):
            await broken
        got += await asyncio.gather(asyncio.sleep(0, 2), asyncio.sleep(0, 3))
        got.append(await asyncio.to_thread(lambda: 4))
        got.append(await asyncio.wait_for(asyncio.sleep(0, 5), 1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await forever()
        async with asyncio.TaskGroup() as group:
            child = group.create_task(asyncio.sleep(0, 6))
        assert asyncio.current_task() is me and me.cancelling() == 0
        return [*got, child.result()]

    async def begins():
        return await rest_of(waits_first())

    async def waits_first():
        await asyncio.sleep(0)
        return await works()

    assert await begins() == [1, 2, 3, 4, 5, 6]


async def test_what_no_task_may_await_is_refused_as_ever():
    class Odd:
        def __await__(self):
            yield 5

    async def odd():
        await asyncio.sleep(0)
        await Odd()

    with pytest.raises(RuntimeError, match="bad yield"):
        await asyncio.create_task(_awaits(rest_of, odd()))

    other = asyncio.new_event_loop()
    foreign = other.create_future()

    async def strays():
        await asyncio.sleep(0)
        await foreign

    with pytest.raises(RuntimeError, match="different loop"):
        await asyncio.create_task(_awaits(rest_of, strays()))
    other.close()


async def _awaits(make, *args):
    return await make(*args)


async def test_at_its_deadline_it_is_cancelled_and_may_clean_up():
    cleaned = []

    async def works(wait):
        try:
            await wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(wait)

    async def spins():
        while True:
            await asyncio.sleep(0)

    async def child():
        await asyncio.create_task(forever())

    for wait in (forever, spins, child):
        rest = rest_of(works(wait), 0.01)
        with pytest.raises(asyncio.CancelledError):
            await rest
        assert rest.timed_out
    assert cleaned == [forever, spins, child]
    assert asyncio.current_task().cancelling() == 0


async def test_one_that_will_not_end_is_closed():
    closed = []

    async def swallows():
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                continue
            finally:
                closed.append("swallows")

    async def spins():
        while True:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    stubborn = asyncio.create_task(swallows())

    async def waits_for_a_stubborn_child():
        try:
            await stubborn
        finally:
            closed.append("waits")

    for work in (swallows(), spins(), waits_for_a_stubborn_child()):
        rest = rest_of(work, 0.01)
        with pytest.raises(asyncio.CancelledError):
            await rest
        assert rest.timed_out and work.cr_frame is None, "closed"
    assert closed[-1] == "waits" and not stubborn.done()
    stubborn.get_coro().close()
    stubborn.cancel()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        await stubborn


async def test_even_one_that_ignores_that_holds_nobody():
    patient = [True]

    async def ignores():
        while patient:
            try:
                await forever()
            except BaseException:
                continue

    rest = rest_of(ignores(), 0.01)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        await rest
    assert rest.timed_out
    patient.clear()
    del rest
    gc.collect()


async def test_what_is_ours_own_is_never_closed():
    done = []

    async def finishes():
        try:
            await forever()
        except asyncio.CancelledError:
            await asyncio.sleep(stepped_coroutine.GRACE * 2)
            done.append(1)

    rest = rest_of(finishes(), 0.01)
    rest.permanent = True
    await rest
    assert rest.timed_out and done == [1]


async def test_the_cancellation_of_its_task_reaches_it_and_what_it_waits_for():
    cancelled = []

    async def child():
        try:
            await forever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cancelled.append("child")
            raise

    async def works(*, by_task):
        try:
            await (asyncio.create_task(child()) if by_task else forever())
        except asyncio.CancelledError:
            cancelled.append("parent")
            raise

    for by_task in (False, True):
        task = asyncio.create_task(_awaits(rest_of, works(by_task=by_task)))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert cancelled == ["parent", "child", "parent"]


async def test_without_a_deadline_it_has_a_while_after_its_task_was_cancelled():
    rests = []

    async def stubborn():
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                continue

    async def awaits():
        rests.append(rest_of(stubborn(), patience=0.02))
        await rests[0]

    task = asyncio.create_task(awaits())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled() and rests[0].timed_out


async def test_timeouts_of_its_own_are_no_cancellation_of_its_task():

    async def works():
        for _ in range(3):
            try:
                async with asyncio.timeout(0.005):
                    await forever()
            except TimeoutError:
                await asyncio.sleep(0.03)
        return "done"

    rest = rest_of(works(), patience=0.01)
    assert await rest == "done"
    assert not rest.timed_out and not rest.task_was_cancelled()


async def test_a_group_whose_child_broke_is_no_cancellation_of_its_task():

    async def breaks():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def works():
        for wait in (0, 1):
            with pytest.raises(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(breaks())
                    group.create_task(forever())
                    await asyncio.sleep(wait)
            await asyncio.sleep(0.03)
        return "done"

    rest = rest_of(works(), patience=0.01)
    assert await rest == "done"
    assert not rest.timed_out and not rest.task_was_cancelled()


async def test_a_cancellation_beside_the_one_of_its_group_counts():
    async def breaks():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def works():
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(breaks())
        except ExceptionGroup:
            pass
        try:
            await forever()
        except asyncio.CancelledError:
            return "kept to itself"

    async def awaits():
        rest = rest_of(works())
        return await rest, rest.task_was_cancelled()

    task = asyncio.create_task(awaits())
    await asyncio.sleep(0.01)
    task.cancel()
    assert await task == ("kept to itself", True)


async def test_its_timer_ends_with_it():
    async def works():
        await asyncio.sleep(0)

    rest = rest_of(works(), 30)
    await rest
    assert rest._timer.cancelled()
    rest = rest_of(forever(), 30)
    rest.close()
    assert rest._timer.cancelled()


async def test_started_work_begins_before_the_call_returns_and_has_its_own_task():
    seen = []

    async def works(name):
        mine = asyncio.current_task()
        seen.append((name, mine))
        async with asyncio.timeout(LIMIT_S):
            await asyncio.sleep(0)
        assert asyncio.current_task() is mine
        seen.append((name, mine))

    async def at_once(name):
        seen.append((name, asyncio.current_task()))

    me = asyncio.current_task()
    async with asyncio.TaskGroup() as group:
        start_task(group, works("a"), "task a")
        start_task(group, at_once("b"), "task b")
        assert [name for name, _ in seen] == ["a", "b"]
        assert asyncio.current_task() is me
    tasks = [task for _, task in seen]
    assert me not in tasks and tasks[0] is tasks[2] and tasks[0] is not tasks[1]
    assert tasks[0].get_name() == "task a"


async def test_started_work_can_be_cancelled_before_its_second_step():
    ended = []

    async def works():
        try:
            await forever()
        finally:
            ended.append(1)

    async with asyncio.TaskGroup() as group:
        start_task(group, works(), "x")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name() == "x":
                task.cancel()
    assert ended == [1]


async def test_a_watched_coroutine_is_one_for_everybody_who_asks():
    async def works():
        await asyncio.sleep(0)
        return 3

    work = works()
    watched = WatchedCoroutine(work, Deed())
    assert asyncio.iscoroutine(watched) and watched.cr_code is work.cr_code
    assert await asyncio.create_task(watched) == 3
    unused = WatchedCoroutine(forever(), Deed())
    unused.close()
    with pytest.raises(ValueError, match="thrown"):
        WatchedCoroutine(forever(), Deed()).throw(ValueError, ValueError("thrown"), None)
    with pytest.raises(ValueError):
        WatchedCoroutine(forever(), Deed()).throw(ValueError)
