import asyncio
import logging
import os
import sqlite3
import threading
from contextlib import closing

import pytest

from alipes.kernel.errors import Fenced, StoreError
from alipes.store.database import codec
from alipes.store.database.database import BATCH, open_database


def add(value):
    return lambda db: (
        db.execute(
            "INSERT INTO sessions (id, key, platform, address, created, updated) VALUES (?, 'k', 'p', '{}', 0, 0)",
            (value,),
        ).rowcount
    )


def names(db):
    return [name for (name,) in db.execute("SELECT id FROM sessions ORDER BY rowid")]


def seen_from_outside(path):
    with closing(sqlite3.connect(path)) as other:
        return names(other)


class Gate:
    """A write that keeps the thread busy until it is let through, so that others must queue."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, db) -> None:
        self.entered.set()
        assert self.open.wait(10)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "alipes.db"


async def behind_a_gate(database, group, *works):
    """Ask for `works` while one commit is under way; they share the next."""
    gate = Gate()
    first = group.create_task(database.run(gate))
    await asyncio.to_thread(gate.entered.wait, 10)
    tasks = [asyncio.create_task(database.run(work)) for work in works]
    await asyncio.sleep(0)
    return gate, first, tasks


async def outcomes(tasks):
    await asyncio.wait(tasks)
    return [task.exception() or task.result() for task in tasks]


async def test_a_write_is_on_disk_when_its_asker_is_told(path):
    async with open_database(path) as database:
        assert await database.run(add("a")) == 1
        assert seen_from_outside(path) == ["a"]
        assert await database.read(names) == ["a"]


async def test_the_file_is_as_safe_as_sqlite_makes_it(path):
    async with open_database(path) as database:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        settings = await database.read(lambda db: [db.execute(f"PRAGMA {p}").fetchone()[0] for p in pragmas])
        assert settings == ["wal", 2, 1]
        for file in path.parent.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


async def test_writes_that_queue_are_committed_together(path):
    during = []

    def look(db):
        during.append((seen_from_outside(path), names(db)))

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await behind_a_gate(database, group, add("a"), add("b"), look)
        gate.open.set()
        await outcomes(tasks)
    assert during == [([], ["a", "b"])], "one transaction: seen within, not yet from outside"
    assert seen_from_outside(path) == ["a", "b"]


async def test_one_that_fails_takes_no_other_along(path):
    def fenced(db):
        add("half")(db)
        raise Fenced("late")

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await behind_a_gate(database, group, add("a"), add("a"), fenced, add("b"))
        gate.open.set()
        first, twice, late, last = await outcomes(tasks)
    assert (first, last) == (1, 1)
    assert isinstance(twice, StoreError) and isinstance(twice.__cause__, sqlite3.IntegrityError)
    assert isinstance(late, Fenced)
    assert seen_from_outside(path) == ["a", "b"]


async def test_one_that_undoes_the_whole_transaction_takes_no_other_along(path):
    def ruin(db):
        db.execute("INSERT OR ROLLBACK INTO sessions SELECT * FROM sessions")

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await behind_a_gate(database, group, add("a"), ruin, add("b"))
        gate.open.set()
        results = await outcomes(tasks)
        await database.run(add("c"))
    assert (results[0], results[2]) == (1, 1)
    assert isinstance(results[1], StoreError)
    assert seen_from_outside(path) == ["a", "b", "c"]


async def test_what_can_be_done_meanwhile_is_done_while_the_disk_is_waited_for(path):
    async with open_database(path) as database:
        done = []
        database.meanwhile.append(lambda: done.append(seen_from_outside(path)))
        await database.run(add("a"))
        await database.run(add("b"))
        assert done == [[]] or done == [["a"]], "once, when the work was done and its commit was begun"


async def test_a_bug_in_one_write_is_its_own(path):
    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await behind_a_gate(database, group, add("a"), lambda db: 1 / 0, add("b"))
        gate.open.set()
        results = await outcomes(tasks)
        with pytest.raises(ZeroDivisionError):
            await database.run(lambda db: 1 / 0)
    assert isinstance(results[1], ZeroDivisionError)
    assert seen_from_outside(path) == ["a", "b"]


async def test_more_than_one_batch_keeps_the_order(path):
    wanted = [f"{n:05}" for n in range(2 * BATCH + 7)]
    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, tasks = await behind_a_gate(database, group, *map(add, wanted))
        gate.open.set()
        assert await outcomes(tasks) == [1] * len(wanted)
    assert seen_from_outside(path) == wanted


async def test_who_is_cancelled_hears_it_at_once_and_the_write_happens(path):
    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, (task, other) = await behind_a_gate(database, group, add("a"), add("b"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        await other
        assert seen_from_outside(path) == ["a", "b"]


async def test_a_write_that_fails_after_its_asker_left_is_logged(path, caplog):
    def fail(db):
        raise Fenced("nobody heard this")

    async with open_database(path) as database, asyncio.TaskGroup() as group:
        gate, _, (task,) = await behind_a_gate(database, group, fail)
        task.cancel()
        with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        await database.run(add("a"))
    assert "nobody heard this" in caplog.text


async def test_after_a_write_that_was_lost_unheard_nothing_more_is_written(path):
    def full(db):
        raise sqlite3.OperationalError("database or disk is full")

    async with open_database(path) as database:
        lost, after = (asyncio.create_task(database.run(each)) for each in (full, add("a")))
        await asyncio.sleep(0)
        lost.cancel()
        (refused,) = await outcomes([after])
        assert lost.cancelled() and isinstance(refused, StoreError) and "disk is full" in str(refused)
        with pytest.raises(StoreError, match="disk is full"):
            await database.run(add("b"))
        assert await database.read(names) == []


async def test_hundreds_of_writers_some_cancelled_lose_nothing_that_was_acknowledged(path):
    told = []

    async def write(database, name):
        await database.run(add(name))
        told.append(name)

    async with open_database(path) as database:
        tasks = [asyncio.create_task(write(database, f"{n}")) for n in range(600)]
        for n, task in enumerate(tasks):
            if n % 7 == 0:
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.wait(tasks)
        kept = await database.read(names)
    assert set(told) <= set(kept) and len(kept) == len(set(kept))


async def test_closing_waits_for_what_was_asked(path):
    async with open_database(path) as database:
        gate = Gate()
        tasks = [asyncio.create_task(database.run(work)) for work in (gate, add("a"), add("b"))]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
    assert await outcomes(tasks) == [None, 1, 1]
    assert seen_from_outside(path) == ["a", "b"]
    with pytest.raises(StoreError, match="closed"):
        await database.run(add("c"))
    with pytest.raises(StoreError, match="closed"):
        await database.read(names)


async def test_closing_under_cancellation_still_closes(path):
    inside = asyncio.Event()

    async def live():
        async with open_database(path) as database:
            tasks.append(asyncio.create_task(database.run(gate)))
            tasks.append(asyncio.create_task(database.run(add("a"))))
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
    assert seen_from_outside(path) == ["a"]
    assert sorted(file.name for file in path.parent.iterdir()) == ["alipes.db"], "the last one tidies up"


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


async def test_a_store_that_another_program_keeps_locked_says_so_and_recovers(path):
    async with open_database(path, patience=0.05) as database:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await database.read(names) == [], "reading goes on"
            results = await outcomes([asyncio.create_task(database.run(add(n))) for n in "abc"])
            assert all(isinstance(r, StoreError) and "keeps the store" in str(r) for r in results)
            other.execute("ROLLBACK")
        await database.run(add("d"))
    assert seen_from_outside(path) == ["d"]


async def test_a_write_waits_for_another_process_that_is_soon_done(path):
    async with open_database(path) as database:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(0.1, other.execute, "COMMIT")
            await database.run(add("a"))
    assert seen_from_outside(path) == ["a"]


async def test_a_newer_schema_is_refused_with_the_way_out(path):
    async with open_database(path) as database:
        await database.run(add("a"))
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"written by a newer alipes.*upgrade alipes or use another home"):
        async with open_database(path):
            pass
    assert seen_from_outside(path) == ["a"]


@pytest.mark.parametrize("bytes", [b"not a database at all, " * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_file_that_is_no_store_is_refused_and_left_alone(path, bytes):
    path.write_bytes(bytes)
    with pytest.raises(StoreError, match=f"{path.name}.*alipes restore"):
        async with open_database(path):
            pass
    assert path.read_bytes() == bytes


async def test_damage_found_while_reading_names_the_way_out(path):
    async with open_database(path) as database:
        for n in range(300):
            await database.run(add(f"{n} " + "x" * 400))
    content = bytearray(path.read_bytes())
    (page,) = sqlite_page_of(path, "sessions")
    content[4096 * (page - 1) : 4096 * page] = b"\xff" * 4096
    path.write_bytes(content)
    async with open_database(path) as database:
        with pytest.raises(StoreError, match="damaged; bring back a good backup with `alipes restore`"):
            await database.read(names)


async def test_damage_to_the_index_of_words_is_told_as_damage_too(path):
    async with open_database(path):
        pass
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE words_config SET v = 0 WHERE k = 'version'")
    async with open_database(path) as database:
        with pytest.raises(StoreError, match="damaged; bring back a good backup with `alipes restore`"):
            await database.run(lambda db: db.execute("INSERT INTO words (rowid, text) VALUES (1, 'a')"))


def sqlite_page_of(path, table):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()


async def test_a_row_that_cannot_be_read_is_said_not_crashed_on(path):
    def broken(db):
        return codec.messages.decode('{"role":"user"}')

    async with open_database(path) as database:
        with pytest.raises(StoreError, match="a row that cannot be read"):
            await database.read(broken)


async def test_a_folder_in_the_place_of_the_file_is_refused(path):
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        async with open_database(path):
            pass


async def test_a_write_that_another_follows_does_not_wait_for_the_disk_and_the_other_does(tmp_path):
    def mode(connection):
        return connection.execute("PRAGMA synchronous").fetchone()[0]

    normal, full = 1, 2
    async with open_database(tmp_path / "alipes.db") as database:
        assert await database.run(mode) == full
        assert await database.run(mode, soon=True) == normal
        assert await database.run(mode) == full
        together = await asyncio.gather(
            database.run(mode, soon=True), database.run(mode), database.run(mode, soon=True)
        )
        assert together[1] == full, "one that must wait makes those it shares a commit with wait"


async def test_a_stretched_log_does_not_grow_with_the_next_writes_and_keeps_nothing(tmp_path):
    async with open_database(tmp_path / "a.db") as database:
        await database.stretch()
        size = os.path.getsize(tmp_path / "a.db-wal")
        assert size > 4_000_000
        await database.run(lambda db: db.execute("INSERT INTO missed_codes VALUES (1)").rowcount)
        assert os.path.getsize(tmp_path / "a.db-wal") == size
        names = await database.read(lambda db: db.execute("SELECT name FROM sqlite_master").fetchall())
        assert ("filler",) not in names


async def test_a_log_that_cannot_be_stretched_hinders_nobody(tmp_path):
    async with open_database(tmp_path / "a.db", patience=0.05) as database:
        with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as neighbour:
            neighbour.execute("BEGIN IMMEDIATE")
            await database.stretch()
            neighbour.execute("ROLLBACK")
        assert await database.run(lambda db: db.execute("INSERT INTO missed_codes VALUES (1)").rowcount) == 1
