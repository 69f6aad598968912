import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from alipes.kernel.errors import StoreError
from alipes.store.sqlite.database import DiskSync, open_database
from tests.unit.store.sqlite.test_database import insert_session, session_ids


class CountingExecutor(ThreadPoolExecutor):
    """One thread, and the number of jobs submitted to it."""

    submitted = 0

    def submit(self, work, *args):
        self.submitted += 1
        return super().submit(work, *args)


def open_wal_database(path):
    """An open database, so that it has a write-ahead log."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (x)")
    db.commit()
    return closing(db)


async def test_callers_during_a_sync_wait_for_the_next_one(tmp_path):
    lost = []
    with open_wal_database(tmp_path / "a.db"), CountingExecutor(1) as thread:
        sync, busy = DiskSync(tmp_path / "a.db", thread, lost.append), threading.Event()
        thread.submit(busy.wait, 10)
        first = asyncio.create_task(sync.wait())
        await asyncio.sleep(0)
        others = [asyncio.create_task(sync.wait()) for _ in range(5)]
        await asyncio.sleep(0)
        assert thread.submitted == 2
        busy.set()
        await asyncio.wait([first, *others])
        assert thread.submitted == 3 and not lost
        sync.close()


async def test_a_failed_sync_is_raised_and_reported_to_the_store(tmp_path):
    lost = []
    with ThreadPoolExecutor(1) as thread:
        sync = DiskSync(tmp_path / "nowhere" / "a.db", thread, lost.append)
        with pytest.raises(StoreError, match="nowhere"):
            await sync.wait()
    assert isinstance(lost[0], StoreError)


async def test_a_failure_is_reported_even_if_its_caller_was_cancelled(tmp_path):
    lost = []
    with ThreadPoolExecutor(1) as thread:
        sync = DiskSync(tmp_path / "nowhere" / "a.db", thread, lost.append)
        waiting = asyncio.create_task(sync.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(StoreError):
            await sync.wait()
    assert len(lost) == 2


async def test_writes_of_the_same_loop_step_share_one_commit(tmp_path):
    commits = []
    async with open_database(tmp_path / "a.db") as database:
        await database.read(
            lambda db: db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        )
        first = database.submit(insert_session("a"))
        await asyncio.sleep(0)
        assert await database.run(insert_session("b")) == 1 and await first == 1
        assert commits == ["COMMIT", "COMMIT"]  # of the read above, and of both writes
        assert await database.read(session_ids) == ["a", "b"]


async def test_data_already_on_disk_is_not_synced_again(tmp_path):
    async with open_database(tmp_path / "a.db") as database:
        await database.run(insert_session("a"), sync=False)
        await database.wait_synced()
        (tmp_path / "a.db-wal").rename(tmp_path / "gone")  # a sync would fail now
        await database.run(insert_session("b"))
        await database.wait_synced()
        (tmp_path / "gone").rename(tmp_path / "a.db-wal")


async def test_after_a_failed_sync_nothing_more_is_written(tmp_path):
    async with open_database(tmp_path / "a.db") as database:
        await database.run(insert_session("a"), sync=False)
        (tmp_path / "a.db-wal").rename(tmp_path / "gone")
        with pytest.raises(StoreError, match=r"a\.db"):
            await database.wait_synced()
        with pytest.raises(StoreError, match=r"a\.db"):
            await database.run(insert_session("b"))
        (tmp_path / "gone").rename(tmp_path / "a.db-wal")
