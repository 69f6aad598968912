"""The private PostgreSQL servers of the fault tests."""

import asyncio
import os

import psycopg
import pytest

from tests.world.postgres_pair import data_template, make_url, open_node, open_pair
from tests.world.tcp_proxy import open_proxy


@pytest.fixture(scope="module", autouse=True)
def template():
    data_template()


def connect(url):
    return psycopg.connect(url, autocommit=True, connect_timeout=5)


@pytest.mark.deadline(120)
async def test_committed_rows_survive_a_crash_of_the_server():
    async with open_node() as node:
        await node.query("CREATE TABLE rows (number int)")
        await node.query("INSERT INTO rows VALUES (1)")
        pid = node.pid
        await node.restart()
        assert node.pid != pid
        assert (await node.query("SELECT number FROM rows")).strip() == "1"
        await node.kill()
        assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.deadline(120)
async def test_a_promoted_standby_has_every_committed_row_and_accepts_writes():
    async with open_pair() as pair:
        with await asyncio.to_thread(connect, pair.url) as before:
            before.execute("CREATE TABLE rows (number int)")
            before.execute("INSERT INTO rows SELECT generate_series(1, 100)")
        await pair.promote()
        with await asyncio.to_thread(connect, pair.url) as after:
            assert after.execute("SELECT count(*) FROM rows").fetchone() == (100,)
            after.execute("INSERT INTO rows VALUES (101)")
        await pair.rebuild()
        assert (await pair.standby.query("SELECT pg_is_in_recovery()")).strip() == "t"
        assert (await pair.standby.query("SELECT count(*) FROM rows")).strip() == "101"


@pytest.mark.deadline(120)
async def test_a_statement_waits_while_the_proxy_is_silent():
    async with open_node() as node, open_proxy(("127.0.0.1", node.port)) as proxy:
        with await asyncio.to_thread(connect, make_url([proxy.port])) as db:
            proxy.silence()
            waiting = asyncio.get_running_loop().run_in_executor(None, db.execute, "SELECT 1")
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            assert not done
            proxy.restore()
            assert (await waiting).fetchone() == (1,)
