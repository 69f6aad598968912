"""What `alipes doctor` and `alipes store` report about a PostgreSQL server, without becoming a worker."""

import time
from typing import Any

import psycopg

from alipes.kernel.errors import StoreError
from alipes.store.ports.cluster import ServerFacts
from alipes.store.postgres.migrate import list_migrations, needed_schema, schema_version

CONNECT_TIMEOUT_S = 5
_WORKERS = """SELECT id, host, pid, roles FROM workers
    WHERE state = 'alive' AND lease_until > clock_timestamp() ORDER BY started"""
_SIZE = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
    WHERE c.relkind = 'r' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"""
_STANDBYS = "SELECT coalesce(sync_state, 'hidden') FROM pg_stat_replication"


def inspect_server(url: str, direct: str = "") -> ServerFacts:
    """Ask the server; blocks. Raises `StoreError` if it cannot be reached."""
    with _connect(direct or url) as db:
        schema, newest = schema_version(db), list_migrations()[-1][0]
        counts = dict.fromkeys(("sessions", "turns", "messages"), 0)
        for table in counts if schema else ():
            counts[table] = _scalar(db, f"SELECT count(*) FROM {table}")
        return ServerFacts(
            version=_scalar(db, "SHOW server_version"),
            supported=db.info.server_version >= 150000,
            schema=schema,
            newest_schema=newest,
            needed_schema=needed_schema(db, newest) if schema else 0,
            size=_scalar(db, _SIZE),
            pooled=_is_pooled(url),
            direct_pooled=_is_pooled(direct) if direct else False,
            standbys=tuple(state for (state,) in db.execute(_STANDBYS).fetchall()),
            synchronous_names=_scalar(db, "SHOW synchronous_standby_names"),
            synchronous_commit=_scalar(db, "SHOW synchronous_commit"),
            clock_difference_s=_measure_clock(db),
            workers=tuple(
                f"{id} on {host} (pid {pid}; {roles.replace(',', ', ')})"
                for id, host, pid, roles in (db.execute(_WORKERS).fetchall() if schema >= 3 else ())
            ),
            **counts,
        )


def _connect(url: str) -> "psycopg.Connection[Any]":
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, prepare_threshold=None)
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL cannot be reached: {str(error).strip()}") from error


def _scalar(db: "psycopg.Connection[Any]", sql: str) -> Any:
    row: Any = db.execute(sql.encode()).fetchone()
    return row[0]


def _is_pooled(url: str) -> bool:
    """A pooler gives its clients process numbers of its own."""
    with _connect(url) as db:
        return bool(_scalar(db, "SELECT pg_backend_pid()") != db.info.backend_pid)


def _measure_clock(db: "psycopg.Connection[Any]") -> float:
    """How far the clock of the server is ahead of ours."""
    before = time.time()
    there = float(_scalar(db, "SELECT extract(epoch FROM clock_timestamp())::float8"))
    return there - (before + time.time()) / 2
