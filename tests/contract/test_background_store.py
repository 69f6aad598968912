"""Contract of every store of background processes."""

from contextlib import AsyncExitStack


async def test_a_process_is_lost_when_the_process_that_started_it_is_gone(opened):
    async with AsyncExitStack() as doomed, opened() as store:
        dying = await doomed.enter_async_context(opened())
        await dying.background_processes.add("s1", "p1", "make serve")
        await dying.background_processes.add("s1", "p2", "tail -f log")
        await dying.background_processes.add("s2", "p3", "sleep 1")
        await dying.background_processes.remove("p2")
        await store.background_processes.add("s1", "p1", "ours")
        assert await store.background_processes.list_lost("s1") == ()
        await doomed.aclose()
        (lost,) = await store.background_processes.list_lost("s1")
        assert (lost.holder, lost.name, lost.command) == (dying.host, "p1", "make serve")


async def test_a_forgotten_process_is_not_listed_again(opened):
    async with opened() as dying:
        await dying.background_processes.add("s1", "p1", "make")
    async with opened() as store:
        await store.background_processes.forget(*await store.background_processes.list_lost("s1"))
        assert await store.background_processes.list_lost("s1") == ()
