"""The disk of PostgreSQL is full while workers run turns: clear errors, nothing accepted is lost, and work continues
once there is space. If the write-ahead log is on that disk, PostgreSQL itself ends."""

import asyncio
import random

import httpx2
import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve, write_settings
from tests.torture.cluster_checker import HISTORY_SQL, check_history
from tests.torture.cluster_history import load_history
from tests.world.cluster import MessageLoad, open_light_cluster
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say
from tests.world.postgres_pair import data_template, open_node, server_user
from tests.world.small_disk import mount_small_disk
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until

DEADLINE = 300
WORKERS, CHATS, RATE = 3, 20, 20.0
DATA_MB, WAL_MB = 120, 60
FULL_S = 4.0
"""How long the disk stays full: longer than a lease."""
NEVER_WAITING = """
CREATE FUNCTION make_young() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.created := NEW.created + 3600; RETURN NEW; END $$;
CREATE TRIGGER make_young BEFORE INSERT ON turns FOR EACH ROW EXECUTE FUNCTION make_young();
"""
"""Turns that nobody runs do not count as waiting for long, which would be another reason to refuse more."""
FULL = "the disk of PostgreSQL is full and nothing was saved; free some space"


@pytest.fixture(scope="module", autouse=True)
def template():
    data_template()


async def switch_log_until_ended(node, disk):
    """Have the server begin new files of its log until it cannot."""
    async with asyncio.timeout(LIMIT_S):
        while "PANIC" not in node.log_text():
            disk.fill()
            try:
                await node.query("SELECT pg_switch_wal()")
            except AssertionError:
                await asyncio.sleep(0.05)


def reasons(cluster):
    return [why for worker in cluster.workers for event in worker.reported("lost") for why in event["why"]]


async def run_through_full_disk(folder, node, disk, until_noticed):
    """Violations of the history in which the disk was full for some seconds."""
    async with open_light_cluster(folder, WORKERS, (node,)) as cluster:
        await node.query(HISTORY_SQL)
        load, enough = MessageLoad(cluster.workers, CHATS, random.Random(1)), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run_until(RATE, enough))
            await until(lambda: len(load.accepted) > CHATS)
            disk.fill()
            await until_noticed(cluster)
            await asyncio.sleep(FULL_S)
            disk.free()
            if not node.is_running:
                await node.start()
            before = len(load.accepted)
            await until(lambda: len(load.accepted) > before + CHATS)
            enough.set()
        await cluster.wait_until_done()
        return check_history(await asyncio.to_thread(load_history, cluster, load, server_crashed=True))


@pytest.mark.deadline(DEADLINE)
async def test_workers_name_a_full_disk_lose_nothing_and_continue_when_there_is_space(tmp_path):
    with mount_small_disk(DATA_MB, server_user()) as disk:
        async with open_node(data=disk.folder / "data", track_commit_timestamp="on") as node:

            async def name_the_reason(cluster):
                await until(lambda: any(FULL in why for why in reasons(cluster)))

            assert await run_through_full_disk(tmp_path, node, disk, name_the_reason) == []


@pytest.mark.deadline(DEADLINE)
async def test_workers_lose_nothing_when_postgresql_ends_because_its_log_has_no_space(tmp_path):
    with mount_small_disk(WAL_MB, server_user()) as disk:
        async with open_node(wal=disk.folder / "wal", track_commit_timestamp="on") as node:

            async def end_server(_cluster):
                await switch_log_until_ended(node, disk)

            assert await run_through_full_disk(tmp_path, node, disk, end_server) == []


@pytest.mark.deadline(DEADLINE)
async def test_a_service_names_a_full_disk_and_answers_when_there_is_space(tmp_path):
    home = Home(tmp_path / "home")
    with mount_small_disk(DATA_MB, server_user()) as disk:
        async with (
            open_node(data=disk.folder / "data") as node,
            ModelServer([Say("first"), *[Say("later")] * 99]) as model,
            TelegramServer() as telegram,
        ):
            write_settings(home, model, telegram, store=f'"{node.url()}"')
            async with open_serve(home) as served:
                telegram.chats.say("one", chat=OWNER)
                await telegram.shows(OWNER, "first")
                disk.fill()
                for number in range(20):
                    telegram.chats.say(f"two {number} " + "x" * 3000, chat=OWNER)
                async with asyncio.timeout(LIMIT_S):
                    assert b"the disk of PostgreSQL is full; free some space" in await served.process.stderr.readline()
                await asyncio.sleep(FULL_S)
                assert served.process.returncode is None
                disk.free()
                await telegram.shows(OWNER, "later")
                await served.ready()
                assert await served.left() == 0


@pytest.mark.deadline(DEADLINE)
async def test_callers_and_the_readiness_check_of_a_full_store_get_the_reason(tmp_path):
    home = Home(tmp_path / "home")
    with mount_small_disk(DATA_MB, server_user()) as disk:
        async with open_node(data=disk.folder / "data") as node, ModelServer([]) as model:
            write_settings(home, model, store=f'"{node.url()}"')
            (home.path / ".env").write_text("ALIPES_API_KEY=key-ann-0123456789abcdef\n")
            (home.path / ".env").chmod(0o600)
            with open(home.path / "config.toml", "a") as config:
                config.write('[cluster]\nroles = ["web"]\n')  # it runs no turns, so nothing ends it
            async with (
                open_serve(home) as served,
                httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=LIMIT_S) as client,
            ):
                await node.query(NEVER_WAITING)
                headers = {"authorization": "Bearer key-ann-0123456789abcdef"}

                async def ask(number):
                    body = {"input": f"{number} " + "x" * 3000, "session": f"s{number}"}
                    return await client.post("/v1/runs", json=body, headers=headers)

                assert (await ask(0)).status_code == 202
                disk.fill()
                number = 1
                while (refused := await ask(number)).status_code == 202:
                    number += 1
                assert refused.status_code == 503 and FULL in refused.text, refused.text
                async with asyncio.timeout(LIMIT_S):
                    while (ready := await client.get("/ready")).status_code == 200:
                        await ask(number)
                assert FULL in ready.json()["because"]["store"]
                disk.free()
                assert (await ask(number)).status_code == 202
                await served.ready()
