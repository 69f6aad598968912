"""The PostgreSQL database: lost connections, errors of single jobs, text that PostgreSQL refuses."""

import asyncio
import signal

import pytest

from alipes.kernel.errors import LeaseLost, StoreError
from alipes.store.postgres.database import encode_calls, open_postgres

ADD = "INSERT INTO default_chats (platform, address) VALUES (?, ?)"


async def test_work_that_fails_does_not_affect_the_others_of_its_batch(url):
    async with open_postgres(url, "w") as db:
        jobs = [db.submit(lambda db, n=n: db.execute(ADD, (n, "x")).rowcount) for n in ("a", "a", "b")]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert results[0] == results[2] == 1 and isinstance(results[1], StoreError)
        assert await db.fetch_all("SELECT platform FROM default_chats ORDER BY 1") == [("a",), ("b",)]


async def test_nul_and_lone_surrogates_are_removed_from_text(url):
    async with open_postgres(url, "w") as db:
        await db.execute(ADD, "a\0b", "x\ud800y")
        assert await db.fetch_all("SELECT platform, address FROM default_chats") == [("ab", "x?y")]
    assert encode_calls([("v", "k\0", ["\ud800"])]) == '[["v","k",["?"]]]'


async def test_a_write_that_changes_nothing_does_not_count_as_a_sync(url):
    """PostgreSQL waits for the disk only if something was written."""
    async with open_postgres(url, "w") as db:
        await db.execute(ADD, "a", "x", sync=False)
        assert await db.run(lambda db: db.execute("SELECT 1").fetchone()) == (1,)
        before = db.counts.commits
        await db.wait_synced()
        assert db.counts.commits == before + 1
        await db.wait_synced()
        assert db.counts.commits == before + 1, "everything is on disk"


async def test_a_patient_caller_is_synced_along_with_another_write(url):
    async with open_postgres(url, "w") as db:
        await db.execute(ADD, "a", "x", sync=False)
        waiting = asyncio.ensure_future(db.wait_synced(60.0))
        await asyncio.sleep(0)
        await db.execute(ADD, "b", "x")
        before = db.counts.commits
        await waiting
        assert db.counts.commits == before


async def test_an_abandoned_database_writes_nothing_more(url):
    async with open_postgres(url, "w") as db:
        job = db.submit(lambda db: db.execute(ADD, ("a", "x")).rowcount)
        db.abandon()
        with pytest.raises(LeaseLost):
            await job
        with pytest.raises(LeaseLost):
            await db.execute(ADD, "b", "x")
    async with open_postgres(url, "v") as db:
        assert await db.fetch_all("SELECT platform FROM default_chats") == []


async def test_writes_wait_for_a_server_that_restarts_and_happen_once(own_server):
    async with open_postgres(own_server.url, "w") as db:
        await db.execute("CREATE TABLE numbers (n bigint)")
        jobs = []
        for number in range(60):
            jobs.append(db.submit(lambda db, n=number: db.execute("INSERT INTO numbers VALUES (?)", (n,)).rowcount))
            if number == 20:
                own_server.stop(signal.SIGQUIT)
            if number == 40:
                own_server.start()
            await asyncio.sleep(0)
        await asyncio.gather(*jobs)
        rows = await db.fetch_all("SELECT n FROM numbers ORDER BY n")
        assert rows == [(number,) for number in range(60)]
    own_server.stop()


async def test_a_long_read_is_cancelled_with_its_caller(url):
    async with open_postgres(url, "w") as db:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await db.read_long(lambda db: db.execute("SELECT pg_sleep(60)").fetchone())
        assert await db.read_long(lambda db: db.execute("SELECT 1").fetchone()) == (1,)
