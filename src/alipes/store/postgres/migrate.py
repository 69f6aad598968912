"""Brings a PostgreSQL schema up to date: numbered SQL files, applied in order in one transaction."""

from importlib.resources import files
from typing import Any

import psycopg

from alipes.kernel.errors import StoreError

LOCK = 0x616C69706573
"""Advisory lock of the database: one migration at a time, of all schemas (an extension belongs to the database)."""
OLDEST_SERVER = 150000


def list_migrations() -> list[tuple[int, str]]:
    """The number and the SQL of each migration, in order."""
    folder = files("alipes.store.postgres") / "migrations"
    found = [(int(file.name[:4]), file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted(found)


def migrate(db: "psycopg.Connection[Any]", steps: list[tuple[int, str]] | None = None) -> None:
    """Apply what is missing, in one transaction; safe while other processes do the same. `db` is in autocommit mode.

    Raises `StoreError` for a schema of a newer alipes, and for a server that is too old.
    """
    if db.info.server_version < OLDEST_SERVER:
        raise StoreError(
            f"PostgreSQL {db.info.server_version // 10000} is too old; alipes needs PostgreSQL 15 or newer"
        )
    steps = list_migrations() if steps is None else steps
    newest = steps[-1][0]
    if schema_version(db) == newest:
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        version = schema_version(db)
        if version > newest:
            raise StoreError(
                f"this store was written by a newer alipes (schema {version}, this one knows {newest}); "
                "upgrade alipes or use another store"
            )
        if db.execute("SELECT current_schema()").fetchone() == (None,):
            raise StoreError("the schema named in the address of the store does not exist; create it in PostgreSQL")
        db.execute("CREATE TABLE IF NOT EXISTS schema_version (version bigint PRIMARY KEY)")
        for number, sql in steps:
            if number > version:
                db.execute(sql.encode())
                db.execute("INSERT INTO schema_version VALUES (%s)", (number,))


def schema_version(db: "psycopg.Connection[Any]") -> int:
    """The number of the last migration; 0 for an empty schema."""
    row: Any = db.execute("SELECT to_regclass(quote_ident(current_schema()) || '.schema_version')").fetchone()
    if row[0] is None:
        return 0
    row = db.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    return int(row[0])
