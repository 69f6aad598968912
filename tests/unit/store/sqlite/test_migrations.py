"""The schema of a new file, and the steps that bring an older file up to it."""

import sqlite3
from contextlib import closing

import pytest

from alipes.kernel.errors import StoreError
from alipes.store.sqlite.migrations.migrations import SCHEMA, STEPS, migrate, schema_version

FIRST = (1, ("CREATE TABLE a (x)",))
SECOND = (2, ("ALTER TABLE a ADD COLUMN y", "INSERT INTO a VALUES (1, 2)"))
BROKEN = (2, ("CREATE TABLE b (x)", "CREATE TABLE b (x)"))


@pytest.fixture
def db(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        yield connection


def test_a_new_file_gets_every_step_in_order(db):
    migrate(db, {0: FIRST, 1: SECOND})
    assert schema_version(db) == 2
    assert db.execute("SELECT x, y FROM a").fetchall() == [(1, 2)]


def test_an_older_file_gets_the_missing_steps_and_keeps_its_rows(db):
    migrate(db, {0: FIRST})
    db.execute("INSERT INTO a VALUES (7)")
    migrate(db, {0: FIRST, 1: SECOND})
    migrate(db, {0: FIRST, 1: SECOND})
    assert db.execute("SELECT x, y FROM a").fetchall() == [(7, None), (1, 2)]


def test_a_step_that_fails_changes_nothing(db):
    migrate(db, {0: FIRST})
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, {0: FIRST, 1: BROKEN})
    assert schema_version(db) == 1 and not db.in_transaction
    assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("a",)]
    migrate(db, {0: FIRST, 1: SECOND})
    assert schema_version(db) == 2


def test_a_newer_file_is_not_changed_and_the_error_says_what_to_do(db):
    migrate(db, {0: FIRST, 1: SECOND})
    with pytest.raises(StoreError, match=r"newer alipes \(schema 2, this one knows 1\); upgrade alipes"):
        migrate(db, {0: FIRST})
    assert not db.in_transaction


def test_a_file_older_than_the_previous_release_is_refused_and_not_changed(db):
    db.execute("CREATE TABLE sessions (id)")
    db.execute("PRAGMA user_version = 8")
    with pytest.raises(StoreError, match=r"too old.*schema 8, oldest supported: 9.*the previous release"):
        migrate(db)
    assert schema_version(db) == 8 and not db.in_transaction


def test_every_step_leads_to_the_newest_schema(db):
    migrate(db)
    assert schema_version(db) == SCHEMA == max(reached for reached, _ in STEPS.values())
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    migrate(db)


def test_rights_of_schema_10_become_approvals(db):
    migrate(db, {0: STEPS[0]})
    db.execute("INSERT INTO grants VALUES (?, 7.0)", (b"rm \xed\xb3\xbf",))
    migrate(db)
    sql = "SELECT rule, choice, answered_at, length(id), turn_id, revoked_at FROM approvals"
    assert db.execute(sql).fetchall() == [(b"rm \xed\xb3\xbf", "always", 7.0, 12, "", None)]


def test_frequent_queries_use_an_index(db):
    migrate(db)
    queries = {
        "SELECT min(number) FROM turns WHERE key = ? AND ending IS NULL": "turns_unfinished",
        "SELECT number FROM turns WHERE id = ? AND epoch = 1 AND ending IS NULL": "turns_1",
        "SELECT 1 FROM turns WHERE platform = 'p' AND inbound_id = ?": "turns_2",
        "SELECT message FROM messages WHERE session_id = ? ORDER BY number": "messages_by_session",
        "SELECT op FROM pending_ops WHERE key = ? ORDER BY number": "pending_ops_by_key",
        "DELETE FROM messages WHERE turn_number = ?": "messages_by_turn",
        "SELECT ancestor_id, last_turn FROM session_ancestors WHERE session_id = ?": "PRIMARY KEY",
        "SELECT session_id FROM session_ancestors WHERE ancestor_id = ?": "session_ancestors_by_ancestor",
        "SELECT 1 FROM undone_turns WHERE turn_number = ?": "undone_turns_by_turn",
        "SELECT 1 FROM approvals WHERE rule = ? AND revoked_at IS NULL": "approvals_by_rule",
        "SELECT 1 FROM approvals WHERE turn_id = ? AND taken_at IS NULL": "approvals_waiting",
        "SELECT source FROM untrusted_sources WHERE session_id = ?": "PRIMARY KEY",
        "SELECT message FROM messages WHERE session_id = ? AND turn_number <= 9 AND turn_number NOT IN "
        "(SELECT turn_number FROM undone_turns WHERE session_id = 's') ORDER BY number": "messages_by_session",
    }
    for sql, index in queries.items():
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",)))
        assert index in plan and "SCAN" not in plan and "TEMP" not in plan, (sql, plan)
