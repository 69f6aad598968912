"""Tasks that a plugin's code begins are the plugin's, and end with it."""

import asyncio
import contextvars
import logging
import time

import pytest

from alipes.plugins.interruption.attribution import PLUGIN, cancel_tasks, on_behalf_of, run_as, tasks_of, track_tasks
from alipes.plugins.owner import PluginOwner
from alipes.runtime.watchdog import LoopActivity


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_task_begun_in_a_plugins_course_is_the_plugins_and_ends_with_it():
    owner = PluginOwner("p")
    async with track_tasks(owner):
        with on_behalf_of(owner):
            task = asyncio.create_task(forever(), name="hers")
        others = asyncio.create_task(forever())
        assert tasks_of(owner) == {task} and task.get_name() == "hers"
    assert task.cancelled() and tasks_of(owner) == frozenset()
    assert not others.done()
    others.cancel()


async def test_what_such_a_task_begins_is_the_plugins_too():
    owner, begun = PluginOwner("p"), []

    async def parent() -> None:
        await asyncio.sleep(0)
        begun.append(asyncio.create_task(forever()))

    async with track_tasks(owner):
        with on_behalf_of(owner):
            kept = asyncio.create_task(parent())
        while not begun:
            await asyncio.sleep(0)
        assert begun[0] in tasks_of(owner)
    assert begun[0].cancelled() and kept.done()


async def test_our_own_work_for_a_plugin_is_not_attributed_to_it():
    owner = PluginOwner("p")
    async with track_tasks(owner):
        with on_behalf_of(owner), on_behalf_of(None):
            task = asyncio.create_task(forever())
        assert tasks_of(owner) == frozenset()
    assert not task.done()
    task.cancel()


async def test_of_two_plugins_only_the_one_that_closes_loses_its_tasks():
    one, two = PluginOwner("one"), PluginOwner("two")
    async with track_tasks(one):
        async with track_tasks(two):
            with on_behalf_of(one):
                first = asyncio.create_task(forever())
            with on_behalf_of(two):
                second = asyncio.create_task(forever())
        assert second.cancelled() and not first.done()
    assert first.cancelled()


async def test_the_former_factory_is_put_back_with_the_last_plugin():
    loop, made = asyncio.get_running_loop(), []

    def factory(loop, coro, **more):
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **more)

    for former in (None, factory):
        loop.set_task_factory(former)
        async with track_tasks(PluginOwner("one")):
            ours = loop.get_task_factory()
            assert ours is not former
            async with track_tasks(PluginOwner("two")):
                assert loop.get_task_factory() is ours
                await asyncio.create_task(asyncio.sleep(0))
            assert loop.get_task_factory() is ours
        assert loop.get_task_factory() is former
    assert len(made) == 1
    loop.set_task_factory(None)


async def test_a_factory_that_somebody_put_on_top_of_ours_stays():
    loop, owner = asyncio.get_running_loop(), PluginOwner("p")
    async with track_tasks(owner):
        under = loop.get_task_factory()

        def theirs(loop, coro, **more):
            return under(loop, coro, **more)

        loop.set_task_factory(theirs)
    assert loop.get_task_factory() is theirs
    assert await asyncio.create_task(asyncio.sleep(0, "still works")) == "still works"
    loop.set_task_factory(None)


async def test_groups_timeouts_and_contexts_work_as_ever():
    owner, colour = PluginOwner("p"), contextvars.ContextVar("colour", default="none")

    async def tells() -> str:
        await asyncio.sleep(0)
        return colour.get()

    async def breaks() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(tells(), name="a name")
        assert task.result() == "none" and task.get_name() == "a name"
        context = contextvars.copy_context()
        context.run(colour.set, "red")
        assert await asyncio.create_task(tells(), context=context) == "red"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await forever()
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(breaks())
                cut = group.create_task(forever())
        assert cut.cancelled()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(forever(), 0.01)
        assert await asyncio.gather(tells(), tells()) == ["none", "none"]

    async with track_tasks(owner):
        with on_behalf_of(owner):
            task = asyncio.create_task(work())
        await task
        assert "work" in repr(task)


async def test_a_context_given_with_the_task_says_whose_it_is():
    owner = PluginOwner("p")
    async with track_tasks(owner):
        with on_behalf_of(owner):
            context = contextvars.copy_context()
            elsewhere = contextvars.Context()
            not_hers = asyncio.create_task(forever(), context=elsewhere)
        hers = asyncio.create_task(forever(), context=context)
        assert tasks_of(owner) == {hers}
    not_hers.cancel()


async def test_what_is_no_coroutine_is_refused_as_ever():
    owner = PluginOwner("p")
    async with track_tasks(owner):
        with on_behalf_of(owner), pytest.raises(TypeError, match="coroutine was expected"):
            asyncio.get_running_loop().create_task(3)


async def test_a_task_that_nobody_keeps_is_not_kept_by_us():
    owner = PluginOwner("p")
    async with track_tasks(owner):
        with on_behalf_of(owner):
            await asyncio.create_task(asyncio.sleep(0))
        await asyncio.sleep(0)
        assert len(owner.tasks) == 0


async def test_one_that_swallows_its_cancellation_is_named_and_given_up(caplog):
    owner, go = PluginOwner("mule"), asyncio.Event()

    async def stubborn() -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    with on_behalf_of(owner):
        async with track_tasks(owner):
            mule = asyncio.create_task(stubborn(), name="mule's work")
            meek = asyncio.create_task(forever())
            await asyncio.sleep(0)
            assert await cancel_tasks(owner, patience=0.02) == ("mule's work",)
            assert meek.cancelled() and not mule.done()
            assert "mule" in caplog.text and "mule's work" in caplog.text
            go.set()
            await mule


async def test_what_is_begun_while_ending_is_ended_too():
    owner, late = PluginOwner("p"), []

    async def farewell() -> None:
        try:
            await forever()
        finally:
            late.append(asyncio.create_task(forever()))

    async with track_tasks(owner):
        with on_behalf_of(owner):
            kept = asyncio.create_task(farewell())
        await asyncio.sleep(0)
    assert late[0].cancelled() and kept.done()


async def test_what_breaks_while_ending_is_reported_with_the_plugins_name(caplog):
    owner = PluginOwner("clumsy")

    async def breaks() -> None:
        try:
            await forever()
        finally:
            raise ZeroDivisionError

    async with track_tasks(owner):
        with on_behalf_of(owner):
            kept = asyncio.create_task(breaks())
        await asyncio.sleep(0)
    assert kept.done() and "clumsy" in caplog.text and "ZeroDivisionError" in caplog.text


async def test_who_ends_a_plugins_tasks_does_not_end_itself():
    owner = PluginOwner("p")
    async with track_tasks(owner):
        with on_behalf_of(owner):
            assert await asyncio.create_task(cancel_tasks(owner)) == ()


async def test_a_task_that_blocks_the_loop_is_named(caplog):
    owner = PluginOwner("sleepy")

    async def sleeps() -> None:
        await asyncio.sleep(0)
        time.sleep(0.3)

    caplog.set_level(logging.WARNING, "alipes.runtime.watchdog")
    async with track_tasks(owner):
        with on_behalf_of(owner):
            task = asyncio.create_task(sleeps())
        await task
    assert "plugin sleepy in task" in caplog.text and "sleeps" in caplog.text
    assert owner.strikes == 0


async def test_what_is_done_by_a_plugin_is_done_in_its_name_and_watched(caplog):
    owner, watch = PluginOwner("p"), LoopActivity(limit=0.01)

    async def work() -> PluginOwner | None:
        await asyncio.sleep(0)
        time.sleep(0.02)
        return PLUGIN.get()

    assert await run_as(owner, "tool x", work(), watch=watch) is owner
    assert PLUGIN.get() is None
    assert "plugin p in tool x blocked the event loop" in caplog.text
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)
    assert await run_as(owner, "tool y", future) == 3

    async def breaks() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_as(owner, "tool z", breaks())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run_as(owner, "tool f", forever())
