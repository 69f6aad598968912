"""Whether the store can be written, how much waits in it, and when writes are safe."""

import time
from collections.abc import Callable
from typing import NamedTuple

from alipes.store.sql.connection import Connection, Database


class StoreStatus(NamedTuple):
    turns: int
    """Unfinished turns."""
    queued: int
    """Unsent messages in the outbox."""
    failed: int
    """Messages in the outbox that were given up."""
    oldest_s: float
    """Age of the oldest unsent message in seconds."""


class StoreHealth:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def check_writable(self) -> None:
        """Write something; raises `StoreError` if that is not possible."""
        await self._database.check_writable()

    async def read_status(self) -> StoreStatus:
        """How much work is in the store."""

        def work(db: Connection) -> StoreStatus:
            (turns,) = db.execute("SELECT count(*) FROM turns WHERE ending IS NULL AND held = 0").fetchone()
            sql = "SELECT count(*), min(created) FROM outbox WHERE state IN ('queued', 'sending')"
            queued, since = db.execute(sql).fetchone()
            (failed,) = db.execute("SELECT count(*) FROM outbox WHERE state IN ('failed', 'expired')").fetchone()
            return StoreStatus(turns, queued, failed, max(time.time() - since, 0.0) if since else 0.0)

        return await self._database.read(work)

    async def wait_synced(self, patience_s: float = 0.0) -> None:
        """Return once everything written so far is on disk; other writes continue meanwhile."""
        await self._database.wait_synced(patience_s)

    async def warm_up(self) -> None:
        """Prepare for many writes, before a server starts."""

    def call_during_sync(self, callback: Callable[[], None]) -> None:
        """Call it once, while the next write that waits for the disk does so: for work that can be done meanwhile."""
        self._database.call_during_sync(callback)
