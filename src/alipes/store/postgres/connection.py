"""One connection to PostgreSQL that runs the store's SQL."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from psycopg.adapt import Dumper, Loader
from psycopg.types.string import StrDumperUnknown

from alipes.store.database.connection import Values
from alipes.store.postgres.dialect import translate

CONNECT_TIMEOUT_S = 2


class _TextDumper(StrDumperUnknown):
    """Removes NUL, which PostgreSQL refuses, and replaces lone surrogates."""

    def dump(self, obj: str) -> bytes:
        return obj.encode("utf-8", "replace").replace(b"\0", b"")


class _BoolDumper(Dumper):
    """As SQLite: 1 and 0. A literal without a type fits integers."""

    oid = 0

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _NumberLoader(Loader):
    """Sums of integers are `numeric`."""

    def load(self, data: Any) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class NoRows:
    """The result of a statement that has no meaning in PostgreSQL."""

    rowcount = 0

    def fetchone(self) -> Any:
        return None

    def fetchall(self) -> list[Any]:
        return []

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class PostgresConnection:
    """The store's `Connection`."""

    def __init__(self, raw: "psycopg.Connection[Any]") -> None:
        self.raw = raw

    def execute(self, sql: str, values: Values = (), /) -> Any:
        statement = translate(sql)
        if not statement.sql:
            return NoRows()
        return self.raw.execute(statement.sql.encode(), statement.bind(values))

    def executemany(self, sql: str, rows: Iterable[Values], /) -> Any:
        statement = translate(sql)
        if not statement.sql:
            return NoRows()
        cursor = self.raw.cursor()
        cursor.executemany(statement.sql.encode(), [statement.bind(row) for row in rows])
        return cursor

    def lock_sessions(self, keys: Iterable[str]) -> None:
        """Make the verbs of these sessions wait until this transaction ends. The order is that of `apply`."""
        if wanted := sorted(set(keys)):
            self.raw.execute("INSERT INTO leases (key) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (wanted,))
            self.raw.execute("SELECT 1 FROM leases WHERE key = ANY(%s) ORDER BY key FOR UPDATE", (wanted,))

    def run_script(self, sql: str) -> Any:
        """Statements in PostgreSQL's own words, without values."""
        return self.raw.execute(sql.encode())


def connect(url: str, name: str, *, pooled: bool = False) -> PostgresConnection:
    """A connection in autocommit mode, shown as `name` in `pg_stat_activity`. Raises `psycopg.Error`.

    `pooled`: behind a pooler, which may not keep prepared statements."""
    raw = psycopg.connect(
        url,
        autocommit=True,
        application_name=name,
        connect_timeout=CONNECT_TIMEOUT_S,
        prepare_threshold=None if pooled else 3,
        tcp_user_timeout=5000,
        keepalives_idle=5,
        keepalives_interval=1,
    )
    raw.adapters.register_dumper(str, _TextDumper)
    raw.adapters.register_dumper(bool, _BoolDumper)
    raw.adapters.register_loader("numeric", _NumberLoader)
    offset = time.localtime().tm_gmtoff
    raw.execute(f"SET TIME ZONE INTERVAL '{offset} seconds' HOUR TO MINUTE; SET jit = off".encode())
    return PostgresConnection(raw)
