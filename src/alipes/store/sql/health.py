"""Whether the store can be written, how much waits in it, and when writes are safe."""

from collections.abc import Callable

from alipes.store.ports.health import StoreStatus
from alipes.store.sql.connection import Database
from alipes.store.sqlite.database import SqliteDatabase
from alipes.store.sqlite.quick_reads import read_status


class SqlHealth:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def check_writable(self) -> None:
        await self._database.check_writable()

    async def read_status(self) -> StoreStatus:
        return await read_status(self._database)

    async def wait_synced(self, patience_s: float = 0.0) -> None:
        await self._database.wait_synced(patience_s)

    async def warm_up(self) -> None:
        """Nothing to prepare."""

    def call_during_sync(self, callback: Callable[[], None]) -> None:
        self._database.call_during_sync(callback)


class SqliteHealth(SqlHealth):
    _database: SqliteDatabase

    async def warm_up(self) -> None:
        await self._database.preallocate_wal()
