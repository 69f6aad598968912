"""Each part that keeps a cluster correct is removed on purpose, and the fault tools notice.

Locks of SQL functions are shown by a transaction that holds the lease row: a verb that takes no lock does not wait.
"""

import asyncio
import random

import pytest

from tests.torture.cluster_checker import HISTORY_SQL, check_history, count_by_rule
from tests.torture.cluster_history import load_history
from tests.torture.fault_injector import remove_locks, waits
from tests.world.cluster import MessageLoad, open_light_cluster
from tests.world.postgres_pair import open_node
from tests.world.wait import until

DEADLINE = 240
TAKEOVER_S, NOTICE_S = 1.5, 0.3
"""A death is noticed, and work is begun, in less than this; by lease and by poll they take longer."""


async def late_calls(folder, mutation=""):
    """Violations after a worker was paused beyond its lease, with tool calls that it had not begun."""
    async with (
        open_node(track_commit_timestamp="on") as node,
        open_light_cluster(folder, 2, (node,), mutation=mutation, think_s=1.0) as cluster,
    ):
        await node.query(HISTORY_SQL)
        load = MessageLoad(cluster.workers[:1], 40, random.Random(1))
        victim, other = cluster.workers
        await asyncio.gather(*(load.write(f"c{number}") for number in range(40)))
        await until(lambda: len(victim.reported("claimed")) + len(other.reported("claimed")) >= 40)
        before = len(other.reported("claimed"))
        victim.pause()
        await until(lambda: len(other.reported("claimed")) > before)
        victim.resume()
        await cluster.wait_until_done()
        return count_by_rule(check_history(await asyncio.to_thread(load_history, cluster, load)))


@pytest.mark.deadline(DEADLINE)
async def test_a_paused_worker_begins_no_call_after_its_lease(tmp_path):
    assert await late_calls(tmp_path) == {}


@pytest.mark.deadline(DEADLINE)
async def test_a_worker_without_deadline_is_noticed(tmp_path):
    assert "late call" in await late_calls(tmp_path, "no deadline")


async def takeover_time(folder, mutation=""):
    """Seconds from the kill of a worker to the first claim of its turns by another."""
    async with open_node() as node, open_light_cluster(folder, 2, (node,), mutation=mutation, tool_s=600.0) as cluster:
        victim, other = cluster.workers
        load = MessageLoad([victim], 1, random.Random(1))
        await asyncio.gather(*(load.write(f"c{number}") for number in range(20)))
        await until(lambda: len(cluster.effects) >= 20)
        before, mine = len(other.reported("claimed")), len(victim.reported("claimed"))
        assert mine, "the other worker took all"
        began = asyncio.get_running_loop().time()
        await victim.kill()
        await until(lambda: len(other.reported("claimed")) > before)
        return asyncio.get_running_loop().time() - began


@pytest.mark.deadline(DEADLINE)
async def test_a_killed_worker_is_replaced_before_its_lease_ends(tmp_path):
    assert await takeover_time(tmp_path) < TAKEOVER_S


@pytest.mark.deadline(DEADLINE)
async def test_a_worker_without_its_lock_is_noticed(tmp_path):
    assert await takeover_time(tmp_path, "no life lock") > TAKEOVER_S


async def median_wait(folder, mutation=""):
    """Seconds that messages wait which were accepted by a worker that does no work itself."""
    async with (
        open_node() as node,
        open_light_cluster(folder, 2, (node,), mutation=mutation, roles_of={0: ("listen",)}) as cluster,
    ):
        load = MessageLoad(cluster.workers[:1], 40, random.Random(1))
        await load.run(10, 4)
        await cluster.wait_until_done()
        seen = sorted(waits(cluster, load))
        return seen[len(seen) // 2]


@pytest.mark.deadline(DEADLINE)
async def test_another_worker_is_notified_of_a_message(tmp_path):
    assert await median_wait(tmp_path) < NOTICE_S


@pytest.mark.deadline(DEADLINE)
async def test_notifications_that_are_never_sent_are_noticed(tmp_path):
    assert await median_wait(tmp_path, "no notify") > NOTICE_S


async def waits_for_lease(folder, verb, mutation=""):
    """True if the verb of a worker waits while another transaction has locked the lease row of its session."""
    import psycopg

    async with open_node() as node, open_light_cluster(folder, 1, (node,), think_s=1.0) as cluster:
        await remove_locks(node, mutation)
        (worker,) = cluster.workers
        await MessageLoad([worker], 1, random.Random(1)).write("c")
        await until(lambda: worker.reported("claimed"))
        with await asyncio.to_thread(psycopg.connect, node.url()) as db:
            db.execute("SELECT 1 FROM leases FOR UPDATE")
            if verb == "admit":
                worker.command("m-second", "c", "go second")
            sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            for _ in range(100):
                if int(await node.query(sql)):
                    return True
                counted = "turns" if verb == "admit" else "messages"
                if int(await node.query(f"SELECT count(*) FROM {counted}")) > 1:
                    return False
                await asyncio.sleep(0.05)
    raise AssertionError("the worker did nothing")


@pytest.mark.deadline(DEADLINE)
@pytest.mark.parametrize("verb,mutation", [("record", "no fence lock"), ("admit", "no admit lock")])
async def test_a_verb_without_its_lock_is_noticed(verb, mutation, tmp_path):
    assert await waits_for_lease(tmp_path / "whole", verb)
    assert not await waits_for_lease(tmp_path / "mutated", verb, mutation)
