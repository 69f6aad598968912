"""Each part that keeps a cluster correct is removed on purpose, and the fault tools notice.

The verdicts do not depend on the speed of the machine: what must not happen is prevented otherwise, and what must
happen is waited for. Locks of SQL functions are shown by a transaction that holds the lease row: a verb that takes
no lock does not wait.
"""

import asyncio
import random
import time
from contextlib import AsyncExitStack, suppress

import pytest

from tests.torture.cluster_checker import COMMIT_SLACK_S, HISTORY_SQL, check_history, count_by_rule
from tests.torture.cluster_history import load_history
from tests.torture.fault_injector import remove_locks
from tests.world.cluster import MessageLoad, open_light_cluster
from tests.world.cluster_worker import GATE
from tests.world.environment import LIMIT_S
from tests.world.postgres_pair import data_template, open_node
from tests.world.wait import until

DEADLINE = 240
CHATS = 8
NEVER_S = 3600.0


@pytest.fixture(scope="module", autouse=True)
def template():
    data_template()


async def query_until(cluster, sql):
    """Wait until the query returns something else than zero."""
    async with asyncio.timeout(LIMIT_S):
        while not (await asyncio.to_thread(cluster.query, sql))[0][0]:
            await asyncio.sleep(0.05)


async def write_all(load, count=CHATS):
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(load.write(f"c{number}"))


async def late_calls(folder, mutation=""):
    """Violations after a worker was paused beyond its lease between the record of its tool calls and the calls."""
    async with (
        open_node(track_commit_timestamp="on") as node,
        open_light_cluster(folder, 2, (node,), started=1, mutation=mutation, gate=True) as cluster,
    ):
        await node.query(HISTORY_SQL)
        victim, other = cluster.workers
        load = MessageLoad([victim], CHATS, random.Random(1))
        await write_all(load)
        await query_until(cluster, f"SELECT count(*) = {CHATS} FROM tool_calls")
        await other.start()
        victim.pause()
        await until(lambda: len(other.reported("claimed")) >= CHATS)
        await asyncio.sleep(2 * COMMIT_SLACK_S)  # what it begins now is late
        (folder / GATE).touch()
        victim.resume()
        await cluster.wait_until_done()
        if mutation:
            await until(lambda: len(cluster.effects) >= CHATS)
        return count_by_rule(check_history(await asyncio.to_thread(load_history, cluster, load)))


@pytest.mark.deadline(DEADLINE)
async def test_a_paused_worker_begins_no_call_after_its_lease(tmp_path):
    assert await late_calls(tmp_path) == {}


@pytest.mark.deadline(DEADLINE)
async def test_a_worker_without_deadline_is_noticed(tmp_path):
    assert (await late_calls(tmp_path, "no deadline"))["late call"] == CHATS


async def takeover_cause(folder, lease_s, mutation=""):
    """Why the turns of a killed worker, whose lease lasts this long, were taken over."""
    async with (
        open_node() as node,
        open_light_cluster(folder, 2, (node,), started=1, mutation=mutation, gate=True) as cluster,
    ):
        victim, other = cluster.workers
        await write_all(MessageLoad([victim], CHATS, random.Random(1)))
        await query_until(cluster, f"SELECT count(*) = {CHATS} FROM tool_calls")
        await other.start()
        name = victim.name
        await victim.kill()
        extend = f"UPDATE workers SET lease_until = clock_timestamp() + interval '{lease_s} s' WHERE id = '{name}'"
        await node.query(extend)
        await until(lambda: len(other.reported("claimed")) >= CHATS)
        return (await node.query(f"SELECT cause FROM takeovers WHERE worker = '{name}'")).strip()


@pytest.mark.deadline(DEADLINE)
async def test_a_killed_worker_is_replaced_before_its_lease_ends(tmp_path):
    assert await takeover_cause(tmp_path, NEVER_S) == "death"


@pytest.mark.deadline(DEADLINE)
async def test_a_worker_without_its_lock_is_noticed(tmp_path):
    assert await takeover_cause(tmp_path, 2.0, "no life lock") == "lease"


async def is_notified(folder, patience_s, mutation=""):
    """True if another worker, which does not poll, begins what a worker accepts that does no work itself."""
    listener = {0: ("listen",)}
    async with (
        open_node() as node,
        open_light_cluster(folder, 2, (node,), mutation=mutation, poll_s=NEVER_S, roles_of=listener) as cluster,
    ):
        load, other = MessageLoad(cluster.workers[:1], 1, random.Random(1)), cluster.workers[1]
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not other.reported("claimed"):
            await load.write(f"c{time.monotonic()}")  # again: at first the two may not know each other
            with suppress(TimeoutError):
                await until(lambda: other.reported("claimed"), 0.5)
        return bool(other.reported("claimed"))


@pytest.mark.deadline(DEADLINE)
async def test_another_worker_is_notified_of_a_message(tmp_path):
    assert await is_notified(tmp_path, LIMIT_S)


@pytest.mark.deadline(DEADLINE)
async def test_notifications_that_are_never_sent_are_noticed(tmp_path):
    assert not await is_notified(tmp_path, 3.0, "no notify")


async def waits_for_lease(folder, verb, mutation=""):
    """True if the verb of a worker waits while another transaction has locked the lease row of its session."""
    import psycopg

    done = {"admit": "count(*) > 1 FROM turns", "record": "count(*) > 2 FROM messages"}[verb]
    folder.mkdir()
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(open_node())
        options = {"gate": verb == "record", "roles_of": {1: ("web",)}}
        cluster = await stack.enter_async_context(open_light_cluster(folder, 2, (node,), **options))
        await remove_locks(node, mutation)
        worker, web = cluster.workers
        await MessageLoad([worker], 1, random.Random(1)).write("c")
        if verb == "record":
            await query_until(cluster, "SELECT count(*) FROM tool_calls")
        else:
            await query_until(
                cluster, "SELECT (SELECT bool_and(holder IS NULL) FROM leases) AND ending <> '' FROM turns"
            )
        with await asyncio.to_thread(psycopg.connect, node.url()) as db:
            db.execute("SELECT 1 FROM leases FOR UPDATE")
            (folder / GATE).touch()
            if verb == "admit":
                web.command("m-second", "c", "go second")  # it does not take the session, which waits as well
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            async with asyncio.timeout(LIMIT_S):
                while True:
                    locked = int(await node.query(waiting))  # first: a later verb may wait as well
                    if (await node.query(f"SELECT {done}")).strip() == "t":
                        return False
                    if locked:
                        return True


@pytest.mark.deadline(DEADLINE)
@pytest.mark.parametrize("verb", ["record", "admit"])
async def test_a_verb_waits_for_the_lease_of_its_session(verb, tmp_path):
    assert await waits_for_lease(tmp_path / "whole", verb)


@pytest.mark.deadline(DEADLINE)
@pytest.mark.parametrize("verb,mutation", [("record", "no fence lock"), ("admit", "no admit lock")])
async def test_a_verb_without_its_lock_is_noticed(verb, mutation, tmp_path):
    assert not await waits_for_lease(tmp_path / "mutated", verb, mutation)
