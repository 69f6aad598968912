"""A worker in a network of its own, whose only link is cut for longer than its lease. Real packets are lost, so the
time limits of TCP apply; the proxies of the other tests keep what is sent."""

import asyncio
import random

import pytest

from alipes.store.postgres.workers import LEASE_S
from tests.torture.cluster_checker import COMMIT_SLACK_S, HISTORY_SQL, check_history
from tests.torture.cluster_history import load_history
from tests.world.cluster import MessageLoad, open_light_cluster
from tests.world.cluster_worker import GATE
from tests.world.environment import LIMIT_S
from tests.world.network_namespace import open_network_namespace
from tests.world.postgres_pair import data_template, open_node
from tests.world.wait import until

CHATS = 8


@pytest.fixture(scope="module", autouse=True)
def template():
    data_template()


async def write_all(load):
    async with asyncio.TaskGroup() as group:
        for number in range(CHATS):
            group.create_task(load.write(f"c{number}"))


@pytest.mark.deadline(300)
async def test_the_turns_of_a_worker_without_network_continue_elsewhere_and_it_starts_over(tmp_path):
    with open_network_namespace() as namespace:
        listen = f"'127.0.0.1,{namespace.host_address}'"
        async with open_node(listen_addresses=listen, track_commit_timestamp="on") as node:
            await node.trust(f"{namespace.own_address}/32")
            options = {"started": 1, "gate": True, "namespaces": {0: namespace}}
            async with open_light_cluster(tmp_path, 3, (node,), **options) as cluster:
                await node.query(HISTORY_SQL)
                victim, *others = cluster.workers
                load = MessageLoad([victim], CHATS, random.Random(1))
                await write_all(load)
                async with asyncio.timeout(LIMIT_S):
                    while int(await node.query("SELECT count(*) FROM tool_calls")) < CHATS:
                        await asyncio.sleep(0.05)
                for worker in others:
                    await worker.start()
                first_name = victim.name
                namespace.cut()
                await until(lambda: sum(len(worker.reported("claimed")) for worker in others) >= CHATS)
                await asyncio.sleep(2 * COMMIT_SLACK_S)
                (tmp_path / GATE).touch()  # a call that the victim begins now is late
                await until(lambda: victim.reported("lost"))
                await asyncio.sleep(LEASE_S)
                namespace.restore()
                await until(lambda: victim.name not in ("", first_name))
                await write_all(load)
                await cluster.wait_until_done()
                assert check_history(await asyncio.to_thread(load_history, cluster, load)) == []
                cause = await node.query(f"SELECT cause FROM takeovers WHERE worker = '{first_name}'")
                assert cause.strip() == "lease"
                assert {line["worker"] for line in cluster.effects}.isdisjoint({first_name})
