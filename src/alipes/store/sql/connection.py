"""What the store needs of a database: connections that run SQL, and transactions in the order of submission.

The SQL of the store is written once, in the words that SQLite and PostgreSQL share.
"""

from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
RowChange: TypeAlias = tuple[str, str, str, str]
"""What has changed, as in `HomeChanged`: its kind, its id, its session, its status; what does not apply is empty."""


class Cursor(Protocol):
    """The result of one statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection inside a transaction. Placeholders are `?`, `?1` or `:name`."""

    def execute(self, sql: str, values: Values = ..., /) -> Cursor: ...

    def executemany(self, sql: str, rows: Iterable[Values], /) -> Cursor: ...


class Database(Protocol):
    """Runs transactions in the order of submission; a caller gets its result after its rows are on disk."""

    async def watch_rows(
        self, is_watched: Callable[[], bool], on_changes: Callable[[tuple[RowChange, ...]], None]
    ) -> None:
        """From now on, while `is_watched()`, call `on_changes` after each commit of this process with what has changed
        in the tables that people see."""

    async def check_writable(self) -> None:
        """Write something; raises `StoreError` if that is not possible."""

    def call_during_sync(self, callback: Callable[[], None]) -> None:
        """Call it once, while the next write waits for the disk."""

    async def run(self, work: Callable[[Connection], T], *, sync: bool = True, key: str = "") -> T:
        """`submit`, and wait for the result."""
        return await self.submit(work, sync=sync, key=key)

    def submit(self, work: Callable[[Connection], T], *, sync: bool = True, key: str = "") -> "Future[T]":
        """Run `work` in one transaction. Once submitted it happens, even if the caller is cancelled.

        `key`: the session that it changes; what other processes do with it waits. `sync=False`: do not wait for the
        disk. `work` may be called more than once and must use nothing but the connection. Raises what `work` raises,
        and errors of the database as `StoreError`.
        """

    async def wait_synced(self, patience_s: float = 0.0) -> None:
        """Return once everything written so far is on disk; other writes continue meanwhile.

        `patience_s`: how long to wait for another write to sync it along, before a sync of its own.
        """

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which must only read, on one consistent view of the data, after the writes before."""

    async def read_statement(self, work: Callable[[Connection], T]) -> T:
        """`read` of a `work` that runs one statement, which needs no transaction."""

    async def read_long(self, work: Callable[[Connection], T]) -> T:
        """`read` on a connection of its own, for work that takes long: writes do not wait for it."""

    async def execute(self, sql: str, *values: object, sync: bool = True) -> int:
        """`run` one statement; returns how many rows it changed."""
        return await self.run(lambda db: db.execute(sql, values).rowcount, sync=sync)

    async def fetch_one(self, sql: str, *values: object) -> Any:
        """`read` the first row that a query finds; None if there is none."""

    async def fetch_all(self, sql: str, *values: object) -> list[Any]:
        """`read` all rows that a query finds."""
