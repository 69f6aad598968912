import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from alipes.kernel.errors import StoreError
from alipes.store.database.database import open_database
from alipes.store.database.writer import Sync
from tests.unit.store.test_database import add, names


class Counted(ThreadPoolExecutor):
    """One thread, and how often it was asked for something."""

    asked = 0

    def submit(self, work, *args):
        self.asked += 1
        return super().submit(work, *args)


def written(path):
    """A database in use, so that it has a log."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (x)")
    db.commit()
    return closing(db)


async def test_who_asks_while_the_disk_is_busy_is_told_after_the_next_time(tmp_path):
    lost = []
    with written(tmp_path / "a.db"), Counted(1) as thread:
        sync, busy = Sync(tmp_path / "a.db", thread, lost.append), threading.Event()
        thread.submit(busy.wait, 10)
        first = asyncio.create_task(sync.reached())
        await asyncio.sleep(0)
        others = [asyncio.create_task(sync.reached()) for _ in range(5)]
        await asyncio.sleep(0)
        assert thread.asked == 2
        busy.set()
        await asyncio.wait([first, *others])
        assert thread.asked == 3 and not lost
        sync.close()


async def test_a_disk_that_fails_is_told_to_all_who_wait_and_to_the_store(tmp_path):
    lost = []
    with ThreadPoolExecutor(1) as thread:
        sync = Sync(tmp_path / "nowhere" / "a.db", thread, lost.append)
        with pytest.raises(StoreError, match="nowhere"):
            await sync.reached()
    assert isinstance(lost[0], StoreError)


async def test_one_who_does_not_wait_any_longer_hides_no_failure(tmp_path):
    lost = []
    with ThreadPoolExecutor(1) as thread:
        sync = Sync(tmp_path / "nowhere" / "a.db", thread, lost.append)
        waiting = asyncio.create_task(sync.reached())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(StoreError):
            await sync.reached()
    assert len(lost) == 2


async def test_what_was_asked_for_in_one_breath_is_one_commit(tmp_path):
    commits = []
    async with open_database(tmp_path / "a.db") as database:
        await database.read(
            lambda db: db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        )
        first = database.ask(add("a"))
        await asyncio.sleep(0)
        assert await database.run(add("b")) == 1 and await first == 1
        assert commits == ["COMMIT", "COMMIT"]  # of the look above, and of both
        assert await database.read(names) == ["a", "b"]


async def test_what_is_kept_already_is_not_waited_for(tmp_path):
    async with open_database(tmp_path / "a.db") as database:
        await database.run(add("a"), soon=True)
        await database.kept()
        (tmp_path / "a.db-wal").rename(tmp_path / "gone")  # nothing of ours is asked of the disk any more
        await database.run(add("b"))
        await database.kept()
        (tmp_path / "gone").rename(tmp_path / "a.db-wal")


async def test_after_a_failure_of_the_disk_nothing_more_is_written(tmp_path):
    async with open_database(tmp_path / "a.db") as database:
        await database.run(add("a"), soon=True)
        (tmp_path / "a.db-wal").rename(tmp_path / "gone")
        with pytest.raises(StoreError, match=r"a\.db"):
            await database.kept()
        with pytest.raises(StoreError, match=r"a\.db"):
            await database.run(add("b"))
        (tmp_path / "gone").rename(tmp_path / "a.db-wal")
