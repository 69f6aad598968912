"""One connection to PostgreSQL that runs the store's SQL, and a session that connects again when it is lost."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import errors
from psycopg.adapt import Dumper, Loader
from psycopg.types.string import StrDumperUnknown

from alipes.kernel.errors import LeaseLost, StoreError, StoreFull
from alipes.store.postgres.dialect import translate
from alipes.store.postgres.workers import LEASE_LOST
from alipes.store.sql.connection import Values

T = TypeVar("T")

CONNECT_TIMEOUT_S = 2
MAX_BACKOFF_S = 0.5
MAX_RETRIES = 20
"""Of a batch that was the victim of a deadlock."""
DECLARED_DEAD = "AL001"
"""The code of `require_alive`."""


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


class PostgresSession:
    """The connection of one thread; connects again when the server was away."""

    def __init__(self, url: str, name: str, pooled: bool = False) -> None:
        self._url, self._name, self._pooled = url, name, pooled
        self.db: PostgresConnection | None = None
        self.stopped = threading.Event()
        self.deadline: float | None = None
        self.after_connect: Callable[[PostgresConnection], None] = lambda _db: None

    def run(self, work: Callable[[PostgresConnection], T], *, again: bool = True) -> T:
        """Run `work`; if the connection is lost, connect and run it again. Raises `StoreError`."""
        retries, delay = 0, 0.01
        while True:
            if self.stopped.is_set():
                raise LeaseLost(LEASE_LOST)
            try:
                if self.db is None:
                    self.db = connect(self._url, self._name, pooled=self._pooled)
                    self.after_connect(self.db)
                return self._run_once(work, self.db)
            except (errors.DeadlockDetected, errors.SerializationFailure) as error:
                retries += 1
                self._rollback()
                if retries > MAX_RETRIES:
                    raise translate_error(error) from error
            except psycopg.OperationalError as error:
                self._drop_lost(error, again)
                self.stopped.wait(delay)
                delay = min(delay * 2, MAX_BACKOFF_S)
            except psycopg.Error as error:
                self._rollback()
                raise translate_error(error) from error
            except msgspec.DecodeError as error:
                self._rollback()
                raise StoreError(f"the store contains a row that cannot be read ({error})") from error

    def _run_once(self, work: Callable[[PostgresConnection], T], db: PostgresConnection) -> T:
        done = False
        try:
            result = work(db)
            done = True
        finally:
            if not done:
                self._rollback()
        return result

    def _drop_lost(self, error: psycopg.OperationalError, again: bool) -> None:
        """Drop the connection; raises if connecting again is of no use."""
        if self.db is not None and not _is_lost(self.db, error):
            self._rollback()
            raise translate_error(error) from error
        self.drop()
        over = self.deadline is not None and time.monotonic() > self.deadline
        if not again or over or _is_permanent(error):
            raise translate_error(error) from error

    def _rollback(self) -> None:
        if self.db is not None and self.db.raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                self.db.run_script("ROLLBACK")
            except psycopg.Error:
                self.drop()

    def abort(self) -> None:
        """Called from another thread: the running statement fails at once, also if the server is out of reach."""
        self.stopped.set()
        if (db := self.db) is not None:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(db.raw.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        if self.db is not None:
            self.db.raw.close()
            self.db = None


def _is_lost(db: PostgresConnection, error: psycopg.OperationalError) -> bool:
    return db.raw.closed or db.raw.broken or isinstance(error, errors.AdminShutdown | errors.CannotConnectNow)


def _is_permanent(error: psycopg.OperationalError) -> bool:
    """A server that answers, and refuses this address."""
    return error.sqlstate is not None and error.sqlstate[:2] in ("28", "3D")


def translate_error(error: psycopg.Error) -> StoreError:
    """An error of PostgreSQL as a sentence for the operator."""
    text = " ".join(str(error).split())
    if error.sqlstate == DECLARED_DEAD:
        return LeaseLost(LEASE_LOST)
    if isinstance(error, errors.DiskFull):
        return StoreFull(f"the disk of PostgreSQL is full and nothing was saved; free some space ({text})")
    if isinstance(error, psycopg.OperationalError):
        return StoreError(f"PostgreSQL cannot be reached or refused the connection ({text}); check `store`")
    return StoreError(f"PostgreSQL failed ({text})")
