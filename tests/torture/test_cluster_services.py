"""Real `alipes serve` processes on one PostgreSQL with one messenger: one is killed and one is paused."""

import asyncio
import os
import signal

import pytest

from tests.world.cluster import open_serve_cluster
from tests.world.environment import LIMIT_S
from tests.world.postgres_pair import data_template, open_node
from tests.world.telegram_load import FIRST, token

CHATS, TURNS = 6, 8


@pytest.fixture(scope="module", autouse=True)
def template():
    data_template()


async def wait_for_takeovers(node, count):
    """Wait until so many workers were declared dead."""
    async with asyncio.timeout(LIMIT_S):
        while int(await node.query("SELECT count(*) FROM takeovers")) < count:
            await asyncio.sleep(0.05)


async def fail_two(cluster, node):
    """Kill the first, which listens, and pause the second until it is declared dead."""
    listener, worker, _ = cluster.services
    await cluster.messenger.call("total", count=CHATS)
    await listener.kill()
    await wait_for_takeovers(node, 1)
    await cluster.messenger.call("total", count=2 * CHATS)
    os.kill(worker.pid, signal.SIGSTOP)
    await wait_for_takeovers(node, 2)
    os.kill(worker.pid, signal.SIGCONT)


@pytest.mark.deadline(300)
async def test_all_messages_are_answered_once_and_in_order_while_services_fail(tmp_path):
    async with open_node() as node, open_serve_cluster(tmp_path, 3, node) as cluster:
        first, *others = cluster.services
        await first.start()  # it makes the tables, and listens
        async with asyncio.TaskGroup() as group:
            for service in others:
                group.create_task(service.start())
        async with asyncio.TaskGroup() as group:
            talk = cluster.messenger.call("converse", chats=CHATS, turns=TURNS, pause=0.3, within=2 * LIMIT_S)
            talking = group.create_task(talk)
            group.create_task(fail_two(cluster, node))
        assert len(talking.result()) == CHATS * TURNS
        uncertain = await node.query(
            "SELECT coalesce(string_agg(outbound, ' '), '') FROM outbox WHERE uncertain_part > 0"
        )
        for chat in range(FIRST, FIRST + CHATS):
            texts = [sent["text"] for sent in await cluster.messenger.call("sent", chat=chat)]
            places = list[int]()
            for number in range(TURNS):
                found = [place for place, text in enumerate(texts) if token(chat, number) in text]
                assert len(found) == 1 or (found and token(chat, number) in uncertain), (texts, number)
                places.append(found[0])
            assert places == sorted(places), texts
