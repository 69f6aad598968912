"""Two versions of alipes on one store: workers keep working while a newer one migrates it, and old ones may start."""

import asyncio
import random
from operator import lt

import pytest

from alipes.store.postgres.database import PostgresSession
from alipes.store.postgres.migrate import list_migrations, migrate
from tests.torture.cluster_checker import HISTORY_SQL, check_history
from tests.torture.cluster_history import load_history
from tests.world.cluster import MessageLoad, open_light_cluster
from tests.world.postgres_pair import data_template, open_node
from tests.world.wait import until

CHATS, RATE = 20, 20.0
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_version' ORDER BY 1"
ADD = "ALTER TABLE {0} ADD COLUMN added_later text NOT NULL DEFAULT ''; CREATE INDEX ON {0} (added_later);"


@pytest.fixture(scope="module", autouse=True)
def template():
    data_template()


async def migrate_further(node, sql):
    """As a worker of the next version does when it starts."""

    def work():
        session = PostgresSession(node.url(), "alipes migration")
        try:
            session.run(lambda db: migrate(db.raw, [*list_migrations(), (9999, sql)]), again=False)
        finally:
            session.drop()

    await asyncio.to_thread(work)


@pytest.mark.deadline(240)
async def test_workers_of_the_version_before_work_and_start_while_every_table_is_extended(tmp_path):
    async with (
        open_node(track_commit_timestamp="on") as node,
        open_light_cluster(tmp_path, 3, (node,), started=2) as cluster,
    ):
        await node.query(HISTORY_SQL)
        *running, late = cluster.workers
        load, enough = MessageLoad(cluster.workers, CHATS, random.Random(1)), asyncio.Event()
        tables = (await node.query(TABLES)).split()
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run_until(RATE, enough))
            await until(lambda: len(load.accepted) > CHATS)
            await migrate_further(node, "\n".join(ADD.format(table) for table in tables))
            await late.start()
            before = [len(worker.reported("claimed")) for worker in cluster.workers]
            await until(lambda: all(map(lt, before, [len(each.reported("claimed")) for each in cluster.workers])))
            enough.set()
        await cluster.wait_until_done()
        assert (await node.query("SELECT max(version) FROM schema_version")).strip() == "9999"
        assert check_history(await asyncio.to_thread(load_history, cluster, load)) == []
        assert [worker.reported("lost") for worker in running] == [[], []]
