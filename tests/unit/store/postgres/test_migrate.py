"""Migrations: which older alipes may still use a store, and what an alipes says that may not."""

import psycopg
import pytest

from alipes.kernel.errors import StoreError
from alipes.store.postgres.migrate import (
    find_oldest_compatible,
    list_migrations,
    migrate,
    needed_schema,
    schema_version,
)
from tests.world.postgres_server import postgres_schema

REAL = list_migrations()
NEWEST = REAL[-1][0]
FIRST, SECOND = (9998, "CREATE TABLE added_first (n bigint)"), (9999, "CREATE TABLE added_second (n bigint)")


@pytest.fixture
def db(server):
    with postgres_schema(server) as url, psycopg.connect(url, autocommit=True) as opened:
        yield opened


def test_a_database_in_another_encoding_is_refused_with_the_command(server):
    with postgres_schema(server) as url, psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS of_bytes")
        db.execute("CREATE DATABASE of_bytes ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        try:
            with psycopg.connect(url, dbname="of_bytes", autocommit=True) as other:
                with pytest.raises(StoreError, match="has the encoding SQL_ASCII; alipes needs UTF8: create another"):
                    migrate(other)
        finally:
            db.execute("DROP DATABASE of_bytes")


def test_a_store_one_migration_ahead_is_used_as_it_is(db):
    migrate(db, [*REAL, FIRST])
    migrate(db)
    assert schema_version(db) == 9998


def test_a_store_two_migrations_ahead_is_refused_with_the_numbers(db):
    migrate(db, [*REAL, FIRST, SECOND])
    migrate(db, [*REAL, FIRST])
    match = rf"newer alipes \(schema 9999, this one knows {NEWEST}, at least 9998 is needed\); upgrade alipes"
    with pytest.raises(StoreError, match=match):
        migrate(db)


def test_each_migration_ahead_counts_also_if_they_came_one_by_one(db):
    migrate(db, [*REAL, FIRST])
    migrate(db, [*REAL, FIRST, SECOND])
    with pytest.raises(StoreError, match="newer alipes"):
        migrate(db)


def test_several_migrations_of_one_release_may_name_the_schema_before_it(db):
    number, sql = SECOND
    migrate(db, [*REAL, FIRST, (number, f"-- Adds the second.\n-- compatible: {NEWEST:04}\n{sql}")])
    migrate(db)
    assert schema_version(db) == 9999


def test_a_migration_that_removes_is_refused_by_those_that_still_use_the_thing(db):
    contract = (9999, "-- contracts: 9998\nDROP TABLE added_first")
    migrate(db, [*REAL, FIRST, contract])
    migrate(db, [*REAL, FIRST])
    with pytest.raises(StoreError, match="at least 9998 is needed"):
        migrate(db)


def test_a_store_from_before_the_record_is_migrated_and_says_from_then_on(db):
    migrate(db, REAL)
    db.execute("ALTER TABLE schema_version DROP COLUMN oldest_compatible")
    db.execute("INSERT INTO schema_version VALUES (9997)")
    with pytest.raises(StoreError, match="at least 9997 is needed"):
        migrate(db)
    migrate(db, [*REAL, (9997, ""), FIRST])
    assert needed_schema(db, 9997) == 9997


@pytest.mark.parametrize(
    ("sql", "oldest"),
    [
        ("SELECT 1", 7),
        ("-- contracts: 0005\nDROP TABLE x", 5),
        ("-- What it does.\n-- compatible: 0006\nSELECT 1", 6),
        ("SELECT 1;\n-- contracts: 0005\n", 7),
    ],
)
def test_only_a_line_at_the_start_names_another_schema(sql, oldest):
    assert find_oldest_compatible(sql, 7) == oldest
