import asyncio
import logging
import os
import sqlite3
import threading
from contextlib import closing

import pytest

from alipes.kernel.errors import Fenced, StoreError
from alipes.store.sql.rows import Decoders
from alipes.store.sqlite.database import MAX_BATCH, open_database


def insert_session(value):
    return lambda db: (
        db.execute(
            "INSERT INTO sessions (id, key, platform, address, created, updated) VALUES (?, 'k', 'p', '{}', 0, 0)",
            (value,),
        ).rowcount
    )


def session_ids(db):
    return [name for (name,) in db.execute("SELECT id FROM sessions ORDER BY rowid")]


def read_from_outside(path):
    with closing(sqlite3.connect(path)) as other:
        return session_ids(other)


class Gate:
    """A write that keeps the thread busy until it is opened, so that others queue up."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, db) -> None:
        self.entered.set()
        assert self.open.wait(10)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "alipes.db"


async def submit_behind_gate(database, group, *works):
    """Submit `works` during a commit, so that they share the next one."""
    gate = Gate()
    first = group.create_task(database.run(gate))
    await asyncio.to_thread(gate.entered.wait, 10)
    tasks = [asyncio.create_task(database.run(work)) for work in works]
    await asyncio.sleep(0)
    return gate, first, tasks


async def wait_outcomes(tasks):
    await asyncio.wait(tasks)
    return [task.exception() or task.result() for task in tasks]


async def test_a_write_is_on_disk_when_its_caller_continues(path):
    async with open_database(path) as database:
        assert await database.run(insert_session("a")) == 1
        assert read_from_outside(path) == ["a"]
        assert await database.read(session_ids) == ["a"]


async def test_the_database_uses_wal_full_sync_and_private_files(path):
    async with open_database(path) as database:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        settings = await database.read(lambda db: [db.execute(f"PRAGMA {p}").fetchone()[0] for p in pragmas])
        assert settings == ["wal", 2, 1]
        for file in path.parent.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


async def test_queued_writes_share_one_commit(path):
    during = []

    def look(db):
        during.append((read_from_outside(path), session_ids(db)))

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await submit_behind_gate(database, group, insert_session("a"), insert_session("b"), look)
        gate.open.set()
        await wait_outcomes(tasks)
    assert during == [([], ["a", "b"])], "one transaction: seen within, not yet from outside"
    assert read_from_outside(path) == ["a", "b"]


async def test_a_failing_write_does_not_affect_the_others(path):
    def fenced(db):
        insert_session("half")(db)
        raise Fenced("late")

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await submit_behind_gate(
            database, group, insert_session("a"), insert_session("a"), fenced, insert_session("b")
        )
        gate.open.set()
        first, twice, late, last = await wait_outcomes(tasks)
    assert (first, last) == (1, 1)
    assert isinstance(twice, StoreError) and isinstance(twice.__cause__, sqlite3.IntegrityError)
    assert isinstance(late, Fenced)
    assert read_from_outside(path) == ["a", "b"]


async def test_a_write_that_rolls_back_the_transaction_does_not_affect_the_others(path):
    def ruin(db):
        db.execute("INSERT OR ROLLBACK INTO sessions SELECT * FROM sessions")

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await submit_behind_gate(database, group, insert_session("a"), ruin, insert_session("b"))
        gate.open.set()
        results = await wait_outcomes(tasks)
        await database.run(insert_session("c"))
    assert (results[0], results[2]) == (1, 1)
    assert isinstance(results[1], StoreError)
    assert read_from_outside(path) == ["a", "b", "c"]


async def test_callbacks_run_while_the_commit_waits_for_the_disk(path):
    async with open_database(path) as database:
        done = []
        database.call_during_sync(lambda: done.append(read_from_outside(path)))
        await database.run(insert_session("a"))
        await database.run(insert_session("b"))
        assert done == [[]] or done == [["a"]], "once, when the work was done and its commit was begun"


async def test_an_exception_in_one_write_does_not_affect_the_others(path):
    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await submit_behind_gate(
            database, group, insert_session("a"), lambda db: 1 / 0, insert_session("b")
        )
        gate.open.set()
        results = await wait_outcomes(tasks)
        with pytest.raises(ZeroDivisionError):
            await database.run(lambda db: 1 / 0)
    assert isinstance(results[1], ZeroDivisionError)
    assert read_from_outside(path) == ["a", "b"]


async def test_several_batches_keep_the_order(path):
    wanted = [f"{n:05}" for n in range(2 * MAX_BATCH + 7)]
    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await submit_behind_gate(database, group, *map(insert_session, wanted))
        gate.open.set()
        assert await wait_outcomes(tasks) == [1] * len(wanted)
    assert read_from_outside(path) == wanted


async def test_a_cancelled_caller_returns_at_once_and_its_write_happens(path):
    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, (task, other) = await submit_behind_gate(database, group, insert_session("a"), insert_session("b"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        await other
        assert read_from_outside(path) == ["a", "b"]


async def test_a_write_that_fails_after_its_caller_was_cancelled_is_logged(path, caplog):
    def fail(db):
        raise Fenced("nobody heard this")

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, (task,) = await submit_behind_gate(database, group, fail)
        task.cancel()
        with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        await database.run(insert_session("a"))
    assert "nobody heard this" in caplog.text


async def test_after_an_unnoticed_failure_every_write_fails(path):
    def full(db):
        raise sqlite3.OperationalError("database or disk is full")

    async with open_database(path) as database:
        lost, after = (asyncio.create_task(database.run(each)) for each in (full, insert_session("a")))
        await asyncio.sleep(0)
        lost.cancel()
        (refused,) = await wait_outcomes([after])
        assert lost.cancelled() and isinstance(refused, StoreError) and "disk is full" in str(refused)
        with pytest.raises(StoreError, match="disk is full"):
            await database.run(insert_session("b"))
        assert await database.read(session_ids) == []


async def test_hundreds_of_writers_some_cancelled_lose_nothing_that_was_acknowledged(path):
    seen = []

    async def write(database, name):
        await database.run(insert_session(name))
        seen.append(name)

    async with open_database(path) as database:
        tasks = [asyncio.create_task(write(database, f"{n}")) for n in range(600)]
        for n, task in enumerate(tasks):
            if n % 7 == 0:
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.wait(tasks)
        kept = await database.read(session_ids)
    assert set(seen) <= set(kept) and len(kept) == len(set(kept))


async def test_closing_waits_for_submitted_writes(path):
    async with open_database(path) as database:
        gate = Gate()
        tasks = [asyncio.create_task(database.run(work)) for work in (gate, insert_session("a"), insert_session("b"))]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
    assert await wait_outcomes(tasks) == [None, 1, 1]
    assert read_from_outside(path) == ["a", "b"]
    with pytest.raises(StoreError, match="closed"):
        await database.run(insert_session("c"))
    with pytest.raises(StoreError, match="closed"):
        await database.read(session_ids)


async def test_closing_under_cancellation_still_closes(path):
    inside = asyncio.Event()

    async def live():
        async with open_database(path) as database:
            tasks.append(asyncio.create_task(database.run(gate)))
            tasks.append(asyncio.create_task(database.run(insert_session("a"))))
            inside.set()
            await asyncio.Event().wait()

    gate, tasks = Gate(), []
    living = asyncio.create_task(live())
    await inside.wait()
    await asyncio.to_thread(gate.entered.wait, 10)
    for _ in range(3):
        living.cancel()
        await asyncio.sleep(0.01)
    assert not living.done()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await living
    await asyncio.wait(tasks)
    assert read_from_outside(path) == ["a"]
    assert sorted(file.name for file in path.parent.iterdir()) == ["alipes.db", "alipes.db.created"], (
        "the last one tidies up"
    )


async def test_opening_under_cancellation_leaves_nothing_open(path):
    fds = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        opening = open_database(path)
        task = asyncio.create_task(opening.__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(os.listdir("/proc/self/fd")) == fds


async def test_a_store_locked_by_another_program_reports_it_and_recovers(path):
    async with open_database(path, busy_timeout_s=0.05) as database:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await database.read(session_ids) == [], "reads still work"
            results = await wait_outcomes([asyncio.create_task(database.run(insert_session(n))) for n in "abc"])
            assert all(isinstance(r, StoreError) and "keeps the store" in str(r) for r in results)
            other.execute("ROLLBACK")
        await database.run(insert_session("d"))
    assert read_from_outside(path) == ["d"]


async def test_a_write_waits_for_a_short_lock_of_another_process(path):
    async with open_database(path) as database:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(0.1, other.execute, "COMMIT")
            await database.run(insert_session("a"))
    assert read_from_outside(path) == ["a"]


async def test_a_newer_schema_is_refused_with_the_fix(path):
    async with open_database(path) as database:
        await database.run(insert_session("a"))
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"written by a newer alipes.*upgrade alipes or use another home"):
        async with open_database(path):
            pass
    assert read_from_outside(path) == ["a"]


@pytest.mark.parametrize("bytes", [b"not a database at all, " * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_file_that_is_not_a_store_is_refused_and_not_changed(path, bytes):
    path.write_bytes(bytes)
    with pytest.raises(StoreError, match=f"{path.name}.*alipes restore"):
        async with open_database(path):
            pass
    assert path.read_bytes() == bytes


async def test_damage_found_while_reading_is_reported_with_the_fix(path):
    async with open_database(path) as database:
        for n in range(300):
            await database.run(insert_session(f"{n} " + "x" * 400))
    content = bytearray(path.read_bytes())
    (page,) = sqlite_page_of(path, "sessions")
    content[4096 * (page - 1) : 4096 * page] = b"\xff" * 4096
    path.write_bytes(content)
    async with open_database(path) as database:
        with pytest.raises(StoreError, match="damaged; restore a backup with `alipes restore`"):
            await database.read(session_ids)


async def test_damage_to_the_search_index_is_reported_as_damage(path):
    async with open_database(path):
        pass
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE search_index_config SET v = 0 WHERE k = 'version'")
    async with open_database(path) as database:
        with pytest.raises(StoreError, match="damaged; restore a backup with `alipes restore`"):
            await database.run(lambda db: db.execute("INSERT INTO search_index (rowid, text) VALUES (1, 'a')"))


def sqlite_page_of(path, table):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()


async def test_an_unreadable_row_is_reported(path):
    def broken(db):
        return Decoders.message.decode('{"role":"user"}')

    async with open_database(path) as database:
        with pytest.raises(StoreError, match="a row whose message cannot be read"):
            await database.read(broken)


async def test_a_directory_instead_of_the_file_is_refused(path):
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        async with open_database(path):
            pass


async def test_a_write_without_sync_does_not_wait_for_the_disk(tmp_path):
    def mode(connection):
        return connection.execute("PRAGMA synchronous").fetchone()[0]

    normal, full = 1, 2
    async with open_database(tmp_path / "alipes.db") as database:
        assert await database.run(mode) == full
        assert await database.run(mode, sync=False) == normal
        assert await database.run(mode) == full
        together = await asyncio.gather(
            database.run(mode, sync=False), database.run(mode), database.run(mode, sync=False)
        )
        assert together[1] == full, "one that must wait makes those it shares a commit with wait"


async def test_a_preallocated_log_does_not_grow_with_the_next_write(tmp_path):
    async with open_database(tmp_path / "a.db") as database:
        await database.preallocate_wal()
        size = os.path.getsize(tmp_path / "a.db-wal")
        assert size > 4_000_000
        await database.run(lambda db: db.execute("INSERT INTO wrong_pairing_codes VALUES (1)").rowcount)
        assert os.path.getsize(tmp_path / "a.db-wal") == size
        names = await database.read(lambda db: db.execute("SELECT name FROM sqlite_master").fetchall())
        assert ("filler",) not in names


async def test_a_log_that_cannot_be_preallocated_does_no_harm(tmp_path):
    async with open_database(tmp_path / "a.db", busy_timeout_s=0.05) as database:
        with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as neighbour:
            neighbour.execute("BEGIN IMMEDIATE")
            await database.preallocate_wal()
            neighbour.execute("ROLLBACK")
        assert await database.run(lambda db: db.execute("INSERT INTO wrong_pairing_codes VALUES (1)").rowcount) == 1
