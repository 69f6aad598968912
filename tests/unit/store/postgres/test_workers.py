import asyncio
import signal

import pytest

from alipes.kernel.errors import LeaseLost
from alipes.kernel.turns import Address, Envelope, Inbound, Stop, TextDelta, Wake
from alipes.store.postgres.leaders import Leaders
from alipes.store.postgres.workers import open_workers
from tests.unit.store.postgres.cluster import ROLES, add_sessions, fetch, open_member, run_child
from tests.world.tcp_proxy import open_proxy
from tests.world.wait import until


async def test_a_killed_worker_is_declared_dead_and_its_sessions_are_free(url):
    async with open_workers(url, ROLES) as workers, run_child(url) as (process, name):
        await add_sessions(url, 3, name)
        await until(lambda: workers.find_peer(name))
        process.kill()
        assert await workers.wait_until_gone(name, timeout_s=10)
        assert workers.takeovers == {"death": 3, "lease": 0}
        assert await fetch(url, "SELECT count(*) FROM leases WHERE holder IS NULL") == [(3,)]


async def test_a_paused_worker_loses_its_lease_and_ends_when_it_resumes(url):
    async with open_workers(url, ROLES) as workers, run_child(url) as (process, name):
        await until(lambda: workers.find_peer(name))
        process.send_signal(signal.SIGSTOP)
        assert await workers.wait_until_gone(name, timeout_s=10)
        process.send_signal(signal.SIGCONT)
        assert await process.wait() == 1
        assert await fetch(url, "SELECT cause FROM takeovers") == [("lease",)]


async def test_a_worker_that_is_cut_off_raises_before_it_is_declared_dead(server, url):
    async with open_workers(url, ROLES) as other, open_proxy(("127.0.0.1", server.port)) as proxy:
        through = url.replace(f":{server.port}/", f":{proxy.port}/")
        with pytest.raises(LeaseLost):
            async with open_workers(through, ROLES) as cut_off:
                await until(lambda: other.find_peer(cut_off.own_name))
                proxy.silence()
                await asyncio.Event().wait()
        with pytest.raises(LeaseLost):
            cut_off.check_lease()
        assert other.is_alive(cut_off.own_name)
        assert await other.wait_until_gone(cut_off.own_name, timeout_s=10)


async def test_a_worker_that_leaves_is_no_take_over(url):
    async with open_workers(url, ROLES) as workers:
        async with open_workers(url, ROLES) as leaving:
            await until(lambda: workers.find_peer(leaving.own_name))
        assert await workers.wait_until_gone(leaving.own_name, timeout_s=10)
        assert await fetch(url, "SELECT state FROM workers WHERE id = %s", leaving.own_name) == [("left",)]
        assert await fetch(url, "SELECT count(*) FROM takeovers") == [(0,)]


async def test_workers_survive_a_short_restart_of_the_server(own_server):
    url = own_server.url
    async with open_workers(url, ROLES) as one, open_workers(url, ROLES) as two:
        await until(lambda: one.find_peer(two.own_name))
        before = two.renewed_at
        own_server.stop()
        own_server.start()
        await until(lambda: two.renewed_at > before + 1 and one.renewed_at > before + 1)
        assert await fetch(url, "SELECT count(*) FROM workers WHERE state = 'alive'") == [(2,)]
    own_server.stop()


async def test_events_reach_only_workers_that_subscribe(url):
    async with open_member(url) as one, open_member(url) as two, open_member(url) as three:
        async with two.bus.subscribe("k") as events:
            assert one.bus.has_subscribers("k") and three.bus.has_subscribers("k")
            for text in ("a", "é\n\0" * 5000, "b"):
                one.bus.publish(Envelope("k", "t", TextDelta(text)))
            found = [(await anext(events)).event.text for _ in range(3)]
            assert found == ["a", "é\n\0" * 5000, "b"] and events.missed == 0
        await until(lambda: not one.bus.has_subscribers("k") and not three.bus.has_subscribers("k"))


async def test_a_stop_reaches_the_holder(url):
    async with open_member(url) as one, open_member(url) as two:
        await add_sessions(url, 1, two.workers.own_name)
        await one.dispatcher.signal("k1", Stop())
        await until(lambda: ("k1", Stop()) in two.ops)
        assert one.ops == []


async def test_the_sessions_of_a_killed_worker_are_taken_once(url):
    async with open_member(url) as one, open_member(url) as two, run_child(url) as (process, name):
        await add_sessions(url, 100, name)
        await until(lambda: one.workers.find_peer(name) and two.workers.find_peer(name))
        process.kill()
        await until(lambda: len(one.ops) + len(two.ops) >= 100)
        assert sorted([*one.ops, *two.ops]) == sorted((f"k{n}", Wake()) for n in range(1, 101))


async def test_a_session_that_was_taken_and_never_woken_is_served(url):
    async with open_member(url) as member:
        place = Address("cli", "here")
        await asyncio.sleep(0)  # the dispatcher runs now
        admitted = await member.turns.admit(Inbound("1", place, "me", "hello"))  # and its caller is cancelled
        assert admitted.holder == member.workers.own_name
        await until(lambda: member.ops)
        assert member.ops == [(place.key, Wake())]


async def test_a_full_worker_takes_no_more_sessions_until_one_ends(url):
    async with open_member(url, capacity=3) as one:
        await add_sessions(url, 5)
        one.dispatcher.look()
        await until(lambda: len(one.ops) == 3)
        one.busy.discard(one.ops[0][0])
        one.dispatcher.on_idle()
        await until(lambda: len(one.ops) == 4)
        assert len({key for key, _ in one.ops}) == 4


async def test_a_person_runs_at_most_the_allowed_number_of_sessions(url):
    async with open_member(url, per_person=2) as one, open_member(url, per_person=2) as two:
        await add_sessions(url, 5, person="ann")
        await one.dispatcher.wake("k1")
        await until(lambda: len(one.ops) + len(two.ops) == 2)
        assert await fetch(url, "SELECT count(*) FROM leases WHERE holder IS NOT NULL") == [(2,)]


async def test_the_next_leader_follows_when_the_first_resigns(url):
    async with open_workers(url, ROLES) as one, open_workers(url, ROLES) as two, asyncio.TaskGroup() as group:
        first, second = Leaders(one), Leaders(two)
        running = [group.create_task(each.run()) for each in (first, second)]
        leading = group.create_task(first.lead("account", asyncio.Event().wait))
        await until(lambda: first.leads("account"))
        following = group.create_task(second.lead("account", asyncio.Event().wait))
        other = group.create_task(second.lead("another", asyncio.Event().wait))
        await until(lambda: second.leads("another"))
        assert not second.leads("account")
        leading.cancel()
        await until(lambda: second.leads("account"))
        for task in (*running, following, other):
            task.cancel()
