"""The parts of a store that a light worker uses, on PostgreSQL or SQLite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.store.sqlite.store import open_store


@asynccontextmanager
async def open_worker_store(home: Path, url: str, roles: frozenset[str], capacity: int = 0) -> AsyncIterator[Any]:
    """The whole store. On PostgreSQL, raises `LeaseLost` in the body's place once the lease is lost."""
    if not url:
        async with open_store(home) as store:
            yield store
        return
    from alipes.store.postgres.store import ClusterLimits, open_postgres_store

    async with open_postgres_store(url, limits=ClusterLimits(roles, capacity)) as store:
        yield store
