"""Migrations of PostgreSQL only add, so that workers of two neighbouring versions can share a store.

A migration that removes something starts with `-- contracts: NNNN`, the migration since which it has not been used.
"""

import pytest

from alipes.store.postgres.migrate import list_migrations
from tests.architecture.migration_rules import BASELINE, find_breaks, find_contract

MIGRATIONS = dict(list_migrations())
EARLIER = """
CREATE TABLE turns (id text, ending text);
CREATE FUNCTION take(worker text, wanted integer DEFAULT 8) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
"""


def test_a_migration_only_adds_unless_it_names_the_one_that_stopped_the_use():
    for number in (number for number in MIGRATIONS if number > BASELINE):
        sql, earlier = MIGRATIONS[number], [text for other, text in MIGRATIONS.items() if other < number]
        contract = find_contract(sql)
        if contract is None:
            assert find_breaks(sql, earlier) == [], f"migration {number}"
        else:
            assert contract in MIGRATIONS and contract < number, f"migration {number} names no earlier one"


def test_migrations_are_numbered_without_repetition():
    assert len(MIGRATIONS) == len(list_migrations())


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DROP TABLE turns;", "drops a table"),
        ("drop table if exists turns cascade", "drops a table"),
        ("DROP FUNCTION take(text, integer);", "drops a function"),
        ("DROP TRIGGER watch ON turns;", "drops a trigger"),
        ("ALTER TABLE turns DROP COLUMN ending;", "drops a column"),
        ("ALTER TABLE turns DROP ending;", "drops a column"),
        ("ALTER TABLE turns ADD COLUMN a text, DROP COLUMN ending;", "drops a column"),
        ("ALTER TABLE turns RENAME TO rounds;", "renames"),
        ("ALTER TABLE turns RENAME COLUMN ending TO outcome;", "renames"),
        ("ALTER FUNCTION take(text) RENAME TO grab;", "renames"),
        ("ALTER TABLE turns ALTER COLUMN ending TYPE bigint USING 0;", "changes the type of a column"),
        ("ALTER TABLE turns ALTER ending SET DATA TYPE bigint;", "changes the type of a column"),
        ("ALTER TABLE turns ALTER COLUMN ending SET NOT NULL;", "NOT NULL without a default"),
        ("ALTER TABLE turns ALTER COLUMN ending DROP DEFAULT;", "drops a default"),
        ("ALTER TABLE turns ADD COLUMN owner text NOT NULL;", "NOT NULL without a default"),
        ('ALTER TABLE turns ADD owner text COLLATE "C" NOT NULL, ADD b text;', "NOT NULL without a default"),
        ("ALTER TABLE turns ADD CONSTRAINT short CHECK (length(id) < 9);", "adds a constraint"),
        ("ALTER TABLE turns DROP CONSTRAINT turns_pkey;", "drops a constraint"),
        ("CREATE UNIQUE INDEX one ON turns (id);", "adds a unique index"),
        ("CREATE OR REPLACE FUNCTION take(worker text) RETURNS text AS $$ $$;", "changes the parameters"),
        (
            "CREATE FUNCTION take(worker text, wanted integer DEFAULT 8, more text DEFAULT '') RETURNS text AS $$ $$;",
            "changes the parameters",
        ),
        ("DO $$ BEGIN DROP TABLE turns; END $$;", "drops a table"),
        ("DO $$ BEGIN EXECUTE 'ALTER TABLE turns DROP COLUMN ending'; END $$;", "drops a column"),
        ("-- Adds a table.\nCREATE TABLE a (b text); /* then */ DROP TABLE turns;", "drops a table"),
    ],
)
def test_a_statement_that_breaks_older_workers_is_found(sql, why):
    (found,) = find_breaks(sql, [EARLIER])
    assert why in found


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE a (id text PRIMARY KEY, b text NOT NULL); CREATE UNIQUE INDEX one ON a (b);",
        "CREATE TABLE a (id text); ALTER TABLE a ADD COLUMN b text NOT NULL;",
        "ALTER TABLE turns ADD COLUMN owner text;",
        "ALTER TABLE turns ADD COLUMN owner text NOT NULL DEFAULT 'drop table turns';",
        "ALTER TABLE turns ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY NOT NULL;",
        "ALTER TABLE turns ADD COLUMN n numeric(8, 2);",
        "ALTER TABLE turns ALTER COLUMN ending DROP NOT NULL;",
        "ALTER TABLE turns ALTER COLUMN ending SET DEFAULT '', ALTER COLUMN ending SET NOT NULL;",
        "ALTER TABLE turns ALTER COLUMN ending SET DEFAULT '';",
        "CREATE INDEX slow ON turns (ending); DROP INDEX slow;",
        "-- DROP TABLE turns;\nSELECT 'DROP TABLE turns';",
        "CREATE FUNCTION other(a text) RETURNS void LANGUAGE sql AS $body$ DROP TABLE turns; $body$;",
        """CREATE OR REPLACE FUNCTION take(worker text,
            wanted integer DEFAULT 8) RETURNS text LANGUAGE sql AS $$ SELECT 'y' $$;""",
        "DO $$ BEGIN EXECUTE 'CREATE INDEX more ON turns (id)'; END $$;",
    ],
)
def test_a_statement_that_only_adds_passes(sql):
    assert find_breaks(sql, [EARLIER]) == []


def test_a_file_names_the_migration_since_which_the_thing_is_not_used():
    assert find_contract("-- Removes endings.\n-- contracts: 0009\nALTER TABLE turns DROP COLUMN ending;") == 9
    assert find_contract("ALTER TABLE turns DROP COLUMN ending; -- contracts: 0009\n") is None
