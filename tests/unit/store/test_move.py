"""Moving a store between SQLite and PostgreSQL."""

import asyncio
import sqlite3
from contextlib import closing

import psycopg
import pytest

from alipes.kernel.errors import StoreError
from alipes.store.postgres.move import move_to_postgres, move_to_sqlite
from alipes.store.sqlite.files import DATABASE_FILE
from alipes.store.sqlite.store import open_store
from tests.world.postgres_server import postgres_schema, postgres_server


@pytest.fixture
def url(leaks):
    with leaks.ignore_opened():
        server = postgres_server()
    with postgres_schema(server) as url:
        yield url


async def create_store(home):
    async with open_store(home):
        pass


@pytest.fixture
def source(tmp_path):
    """A home with rows that have gaps, NUL characters and floats."""
    asyncio.run(create_store(tmp_path))
    path = tmp_path / DATABASE_FILE
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "INSERT INTO sessions (id, key, platform, address, title, created, updated) "
            "VALUES ('s1', 'k', 'terminal', '{}', ?, 0.1, 1e9)",
            ("a\0b é",),
        )
        db.execute("INSERT INTO leases (key, session_id, holder, epoch) VALUES ('k', 's1', 'gone', 7)")
        outbox = "INSERT INTO outbox (number, id, platform, lane, outbound, created) VALUES (?, ?, 'p', 'l', '{}', 2.5)"
        db.executemany(outbox, [(3, "a"), (9, "b")])
        db.execute("DELETE FROM outbox WHERE number = 9")
    return path


def ignore(_table, _rows):
    pass


def test_rows_arrive_with_their_numbers_and_ids(source, url):
    moved = move_to_postgres(source, url, ignore)
    with psycopg.connect(url) as db:
        assert db.execute("SELECT id, title, created, updated FROM sessions").fetchall() == [("s1", "ab é", 0.1, 1e9)]
        assert db.execute("SELECT number, id FROM outbox").fetchall() == [(3, "a")]
    assert moved.tables["sessions"].rows == 1


def test_a_moved_lease_is_free_and_keeps_its_epoch(source, url):
    move_to_postgres(source, url, ignore)
    with psycopg.connect(url) as db:
        assert db.execute("SELECT key, holder, epoch FROM leases").fetchall() == [("k", None, 7)]


def test_a_number_that_was_used_is_not_used_again(source, url):
    move_to_postgres(source, url, ignore)
    add = "INSERT INTO outbox (id, platform, lane, outbound, created) VALUES ('c', 'p', 'l', '{}', 1) RETURNING number"
    with psycopg.connect(url) as db:
        assert db.execute(add).fetchone() == (10,)


def test_a_store_that_went_there_and_back_has_the_same_rows(source, url, tmp_path):
    there = move_to_postgres(source, url, ignore)
    back = move_to_sqlite(url, tmp_path / "back.db", ignore)
    assert back == there


async def test_a_store_that_came_back_can_be_opened(source, url, tmp_path):
    move_to_postgres(source, url, ignore)
    home = tmp_path / "home"
    home.mkdir()
    move_to_sqlite(url, home / DATABASE_FILE, ignore)
    async with open_store(home) as store:
        assert await store.database.fetch_one("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'") != (0,)


@pytest.fixture
def full_source(tmp_path):
    """A home with two rows in every table; equal values, so that references are right."""
    asyncio.run(create_store(tmp_path))
    path = tmp_path / DATABASE_FILE
    values = {"TEXT": "v\0{}", "INTEGER": 0, "REAL": 0.5, "BLOB": b"\0\xff"}
    with closing(sqlite3.connect(path)) as db, db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        sql = """SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'
            AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'search%'"""
        for (table,) in db.execute(sql).fetchall():
            columns = [(name, kind) for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})")]
            for number in (1, 2):
                row = {name: make_value(values[kind], number) for name, kind in columns}
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        db.executemany("INSERT INTO search_index (rowid, text) VALUES (?, ?)", [(1, "first words"), (2, "second")])
    return path


def make_value(kind, number):
    if isinstance(kind, str):
        return kind.format(number)
    return kind + (b"%d" % number if isinstance(kind, bytes) else number)


def test_every_table_goes_there_and_back(full_source, url, tmp_path):
    there = move_to_postgres(full_source, url, ignore)
    assert {name: each.rows for name, each in there.tables.items() if each.rows != 2} == {}
    back = move_to_sqlite(url, tmp_path / "back.db", ignore)
    assert back.tables == there.tables and back.left == {}


def test_a_message_that_was_being_sent_belongs_to_no_process(full_source, url):
    move_to_postgres(full_source, url, ignore)
    with psycopg.connect(url) as db:
        assert db.execute("SELECT DISTINCT owner, sender FROM outbox").fetchall() == [("", "")]


def test_sums_of_several_connections_become_one(full_source, url, tmp_path):
    move_to_postgres(full_source, url, ignore)
    with psycopg.connect(url) as db:
        db.execute("""INSERT INTO usage_sums SELECT quarter, task, tool, model, 40, input, output, cached, cache_write,
            reasoning, 0.25, priced, 0 FROM usage_sums WHERE quarter = 1""")
    move_to_sqlite(url, tmp_path / "back.db", ignore)
    with closing(sqlite3.connect(tmp_path / "back.db")) as db:
        assert db.execute("SELECT calls, cost FROM usage_sums ORDER BY quarter").fetchall() == [(41, 1.75), (2, 2.5)]


def test_a_number_that_was_used_in_postgres_is_not_used_again(full_source, url, tmp_path):
    move_to_postgres(full_source, url, ignore)
    with psycopg.connect(url) as db:
        db.execute("INSERT INTO outbox (id, platform, lane, outbound, created) VALUES ('c', 'p', 'l', '{}', 1)")
        db.execute("DELETE FROM outbox WHERE id = 'c'")
    move_to_sqlite(url, tmp_path / "back.db", ignore)
    with closing(sqlite3.connect(tmp_path / "back.db")) as db:
        add = "INSERT INTO outbox (id, platform, lane, outbound, created) VALUES ('d', 'p', 'l', '{}', 1)"
        assert db.execute(f"{add} RETURNING number").fetchone() == (4,)


def test_what_sqlite_has_no_place_for_is_named(full_source, url, tmp_path):
    move_to_postgres(full_source, url, ignore)
    with psycopg.connect(url) as db:
        db.execute("INSERT INTO platform_states VALUES ('telegram', 'offset', '7')")
    assert move_to_sqlite(url, tmp_path / "back.db", ignore).left == {"platform_states": 1}


def test_a_move_leaves_the_source_unchanged(source, url):
    before = source.read_bytes()
    move_to_postgres(source, url, ignore)
    assert source.read_bytes() == before


def test_a_target_with_rows_is_refused(source, url):
    move_to_postgres(source, url, ignore)
    with pytest.raises(StoreError, match="not empty"):
        move_to_postgres(source, url, ignore)


def test_an_existing_file_is_not_overwritten(source, url, tmp_path):
    with pytest.raises(StoreError, match="already exists"):
        move_to_sqlite(url, source, ignore)


def test_a_store_that_a_worker_uses_is_refused(source, url):
    with psycopg.connect(url, application_name="alipes 0123"), pytest.raises(StoreError, match="stop all workers"):
        move_to_postgres(source, url, ignore)


class Interrupted(Exception):
    pass


def interrupt(table, _rows):
    if table == "outbox":
        raise Interrupted


def test_an_interrupted_move_leaves_the_database_empty(source, url):
    with pytest.raises(Interrupted):
        move_to_postgres(source, url, interrupt)
    with psycopg.connect(url) as db:
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (0,)


def test_an_interrupted_move_leaves_no_file(source, url, tmp_path):
    move_to_postgres(source, url, ignore)
    folder = tmp_path / "target"
    folder.mkdir()
    with pytest.raises(Interrupted):
        move_to_sqlite(url, folder / "back.db", interrupt)
    assert list(folder.iterdir()) == []
