"""Brings a PostgreSQL schema up to date: numbered SQL files, applied in order in one transaction.

While workers are replaced one by one, two versions of alipes work on one store. So each migration records the oldest
schema whose alipes may still work: that before it, or the one that a line at the start of the file names:

    -- contracts: 0010     removes something that has not been used since migration 0010
    -- compatible: 0010    adds only, and belongs to the same release as the migrations after 0010
"""

import re
from importlib.resources import files
from typing import Any

import psycopg

from alipes.kernel.errors import StoreError

LOCK = 0x616C69706573
"""Advisory lock of the database: one migration at a time, of all schemas (an extension belongs to the database)."""
OLDEST_SERVER = 150000
_HEADER = re.compile(r"\A(?:--[^\n]*\n)*?-- (?:contracts|compatible): (\d{4})\n")
_NEEDED = """SELECT coalesce(max(coalesce((to_jsonb(s)->>'oldest_compatible')::bigint, version)), 0)
    FROM schema_version s WHERE version > %s"""
"""A row without the column was written before there was one."""


def list_migrations() -> list[tuple[int, str]]:
    """The number and the SQL of each migration, in order."""
    folder = files("alipes.store.postgres") / "migrations"
    found = [(int(file.name[:4]), file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted(found)


def find_oldest_compatible(sql: str, previous: int) -> int:
    """The oldest schema whose alipes may work after this migration. `previous`: the migration before it."""
    header = _HEADER.match(sql)
    return int(header[1]) if header else previous


def migrate(db: "psycopg.Connection[Any]", steps: list[tuple[int, str]] | None = None) -> None:
    """Apply what is missing, in one transaction; safe while other processes do the same. `db` is in autocommit mode.

    Raises `StoreError` for a schema of a newer alipes that we may not use, a server that is too old, another encoding.
    """
    if db.info.server_version < OLDEST_SERVER:
        raise StoreError(
            f"PostgreSQL {db.info.server_version // 10000} is too old; alipes needs PostgreSQL 15 or newer"
        )
    if (encoding := db.info.parameter_status("server_encoding")) != "UTF8":
        raise StoreError(
            f"the database has the encoding {encoding}; alipes needs UTF8: create another with "
            "`createdb --encoding UTF8 --template template0 NAME`, and name it in `store`"
        )
    steps = list_migrations() if steps is None else steps
    newest = steps[-1][0]
    if schema_version(db) == newest:
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        version = schema_version(db)
        if version > newest:
            _require_compatible(db, version, newest)
            return
        if db.execute("SELECT current_schema()").fetchone() == (None,):
            raise StoreError("the schema named in the address of the store does not exist; create it in PostgreSQL")
        db.execute("CREATE TABLE IF NOT EXISTS schema_version (version bigint PRIMARY KEY)")
        db.execute("ALTER TABLE schema_version ADD COLUMN IF NOT EXISTS oldest_compatible bigint")
        _wait_for_writers(db)
        previous = 0
        for number, sql in steps:
            if number > version:
                db.execute(sql.encode())
                oldest = find_oldest_compatible(sql, previous)
                db.execute("INSERT INTO schema_version (version, oldest_compatible) VALUES (%s, %s)", (number, oldest))
            previous = number


def _wait_for_writers(db: "psycopg.Connection[Any]") -> None:
    """Let the running writes of workers finish and keep new ones waiting, before any of their tables is locked:
    otherwise each could wait for the other. Leases are still renewed.

    The advisory lock is that of transactions of `PostgresDatabase`; each `apply` reads `worker_batches` first."""
    db.execute("SELECT pg_advisory_xact_lock(20001, hashtext(current_schema()))")
    row: Any = db.execute("SELECT to_regclass(quote_ident(current_schema()) || '.worker_batches')").fetchone()
    if row[0] is not None:
        db.execute("LOCK TABLE worker_batches IN ACCESS EXCLUSIVE MODE")


def _require_compatible(db: "psycopg.Connection[Any]", version: int, newest: int) -> None:
    needed = needed_schema(db, newest)
    if needed > newest:
        raise StoreError(
            f"this store was written by a newer alipes (schema {version}, this one knows {newest}, at least {needed} "
            "is needed); upgrade alipes or use another store"
        )


def needed_schema(db: "psycopg.Connection[Any]", newest: int) -> int:
    """The oldest schema that an alipes must know to use this store, as far as migrations after `newest` demand it."""
    row: Any = db.execute(_NEEDED, (newest,)).fetchone()
    return int(row[0])


def schema_version(db: "psycopg.Connection[Any]") -> int:
    """The number of the last migration; 0 for an empty schema."""
    row: Any = db.execute("SELECT to_regclass(quote_ident(current_schema()) || '.schema_version')").fetchone()
    if row[0] is None:
        return 0
    row = db.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    return int(row[0])
