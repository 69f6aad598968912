"""store/postgres/functions.sql has the current functions. `python tools/postgres_functions.py` writes it."""

import re
from pathlib import Path

from tools import postgres_functions

SRC = Path(__file__).parents[2] / "src" / "alipes"
MIGRATIONS = postgres_functions.read_migrations()


def test_the_page_has_the_functions_of_the_migrations():
    assert postgres_functions.PAGE.read_text() == postgres_functions.assemble(MIGRATIONS), "run: python tools/docs.py"


def test_no_function_is_missed():
    defined = {name for _, sql in MIGRATIONS for name in re.findall(r"(?m)^CREATE.* FUNCTION (\w+)", sql)}
    assert len(defined) > 40
    page = postgres_functions.assemble(MIGRATIONS)
    assert {name for name in defined if not re.search(rf"(?m)^CREATE.* FUNCTION {name}\(", page)} == set()


def test_nothing_reads_the_page():
    assert [str(path) for path in SRC.rglob("*.py") if postgres_functions.PAGE.name in path.read_text()] == []


def test_the_last_definition_counts_and_what_is_dropped_goes():
    first = """-- One.
CREATE FUNCTION one(a text) RETURNS text LANGUAGE sql AS $$ SELECT 'a;' $$;
CREATE FUNCTION two() RETURNS text
LANGUAGE sql AS $body$ SELECT '$$' $body$ STABLE;
CREATE TABLE t (id text);
CREATE FUNCTION three(a text DEFAULT 'x') RETURNS text LANGUAGE sql AS $$ SELECT 'c' $$;
"""
    second = """CREATE OR REPLACE FUNCTION one(a text) RETURNS text LANGUAGE sql AS $$ SELECT 'b' $$;
DROP FUNCTION IF EXISTS three(text);
"""
    expected = f"""{postgres_functions.HEAD}
-- migrations/1.sql

CREATE FUNCTION two() RETURNS text
LANGUAGE sql AS $body$ SELECT '$$' $body$ STABLE;

-- migrations/2.sql

CREATE OR REPLACE FUNCTION one(a text) RETURNS text LANGUAGE sql AS $$ SELECT 'b' $$;
"""
    assert postgres_functions.assemble([("1.sql", first), ("2.sql", second)]) == expected
