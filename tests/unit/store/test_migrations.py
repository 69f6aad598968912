import sqlite3
from contextlib import closing

import pytest

from alipes.kernel.errors import StoreError
from alipes.store.database.migrations import MIGRATIONS, SCHEMA, migrate, version

ONE = ("CREATE TABLE a (x)",)
TWO = ("ALTER TABLE a ADD COLUMN y", "INSERT INTO a VALUES (1, 2)")
BROKEN = ("CREATE TABLE b (x)", "CREATE TABLE b (x)")


@pytest.fixture
def db(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        yield connection


def test_a_new_file_gets_every_step_in_order(db):
    migrate(db, (ONE, TWO))
    assert version(db) == 2
    assert db.execute("SELECT x, y FROM a").fetchall() == [(1, 2)]


def test_an_older_file_gets_the_steps_it_lacks_and_keeps_its_rows(db):
    migrate(db, (ONE,))
    db.execute("INSERT INTO a VALUES (7)")
    migrate(db, (ONE, TWO))
    migrate(db, (ONE, TWO))
    assert db.execute("SELECT x, y FROM a").fetchall() == [(7, None), (1, 2)]


def test_a_step_that_fails_leaves_nothing_of_itself(db):
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, (ONE, BROKEN))
    assert version(db) == 1
    assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("a",)]
    migrate(db, (ONE, TWO))
    assert version(db) == 2


def test_a_newer_file_is_left_alone_and_the_fix_is_said(db):
    migrate(db, (ONE, TWO))
    with pytest.raises(StoreError, match=r"newer alipes \(schema 2, this one knows 1\); upgrade alipes"):
        migrate(db, (ONE,))
    assert not db.in_transaction


def test_our_schema_is_the_number_of_our_steps(db):
    migrate(db)
    assert version(db) == SCHEMA == len(MIGRATIONS)
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    migrate(db)


def test_a_store_of_the_first_schema_keeps_its_rows_and_gets_the_usual_for_what_is_new(db):
    migrate(db, MIGRATIONS[:1])
    db.execute("INSERT INTO sessions VALUES ('s', 'k', 'p', '{}', 'title', 1, 2)")
    db.execute(
        "INSERT INTO turns (id, key, session, platform, inbound_id, inbound, created) "
        "VALUES ('t', 'k', 's', 'p', '1', '{}', 1)"
    )
    migrate(db)
    assert db.execute("SELECT title, parent, model, busy FROM sessions").fetchall() == [
        ("title", None, "", "")
    ]
    assert db.execute("SELECT id, busy, begun FROM turns").fetchall() == [("t", "queue", None)]


def test_the_common_questions_are_answered_by_an_index(db):
    migrate(db)
    questions = {
        "SELECT min(number) FROM turns WHERE key = ? AND ending IS NULL": "turns_unfinished",
        "SELECT number FROM turns WHERE id = ? AND epoch = 1 AND ending IS NULL": "turns_1",
        "SELECT 1 FROM turns WHERE platform = 'p' AND inbound_id = ?": "turns_2",
        "SELECT turn, message FROM said WHERE session = ? ORDER BY number": "said_by_session",
        "SELECT op FROM controls WHERE key = ? ORDER BY number": "controls_by_key",
        "DELETE FROM said WHERE turn = ?": "said_by_turn",
        "SELECT ancestor, upto FROM lineage WHERE session = ?": "PRIMARY KEY",
        "SELECT session FROM lineage WHERE ancestor = ?": "lineage_by_ancestor",
        "SELECT 1 FROM hidden WHERE turn = ?": "hidden_by_turn",
        "SELECT 1 FROM grants WHERE rule = ?": "PRIMARY KEY",
        "SELECT turn, message FROM said WHERE session = ? AND turn <= 9 "
        "AND turn NOT IN (SELECT turn FROM hidden WHERE session = 's') ORDER BY number": "said_by_session",
    }
    for sql, index in questions.items():
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",)))
        assert index in plan and "SCAN" not in plan and "TEMP" not in plan, (sql, plan)
