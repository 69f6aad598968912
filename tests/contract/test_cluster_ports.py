"""Contract of what the processes of a store share: leader election, state of messengers, the lease."""

import asyncio


async def test_the_work_of_a_leader_runs_to_its_end(opened):
    ran = []

    async def work():
        ran.append("once")

    async with opened() as store:
        await store.leaders.lead("schedules", work)
    assert ran == ["once"]


async def test_of_two_processes_of_a_cluster_one_leads_and_then_the_other(opened):
    async with opened() as store:
        if not store.clustered:
            return  # a lock file refuses a second process that serves
    async with opened() as first, opened() as second:
        leads, resign, order = asyncio.Event(), asyncio.Event(), []

        async def work_first():
            order.append("first")
            leads.set()
            await resign.wait()
            order.append("first resigns")

        async def work_second():
            order.append("second")

        async with asyncio.TaskGroup() as group:
            group.create_task(first.leaders.lead("platform telegram", work_first))
            await leads.wait()
            other = group.create_task(second.leaders.lead("platform telegram", work_second))
            await second.leaders.lead("another name", work_second)
            assert not other.done()
            resign.set()
    assert order == ["first", "second", "first resigns", "second"]


async def test_state_of_a_messenger_is_loaded_by_the_process_that_receives_next(opened):
    async with opened() as store:
        if store.platform_states is None:
            assert not store.clustered
            return
        await store.platform_states.save("discord", "seen.json", b"\x00old")
        await store.platform_states.save("discord", "seen.json", b"\x00new")
        await store.platform_states.save("slack", "seen.json", b"other")
    async with opened() as store:
        assert await store.platform_states.load("discord") == {"seen.json": b"\x00new"}
        assert await store.platform_states.load("irc") == {}


async def test_a_process_with_an_open_store_has_its_lease(opened):
    async with opened() as store:
        store.check_lease()
        await asyncio.sleep(0)
        store.check_lease()
