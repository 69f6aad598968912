"""Opens the store that the settings of a home name: SQLite in the home, or PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, MissingExtra
from alipes.store.ports.archive import Archive
from alipes.store.ports.cluster import ServerFacts
from alipes.store.sql.store import Store
from alipes.store.sqlite.files import DATABASE_FILE
from alipes.store.sqlite.store import open_archive, open_store

MISSING_DRIVER = "the store is PostgreSQL: install its driver with `alipes install postgres`"


def open_home_store(settings: Settings, *, serves: bool = False) -> AbstractAsyncContextManager[Store]:
    """The store of the home. Raises `StoreError` if it cannot be used.

    `serves`: this process has the roles of the settings in a cluster; else it runs only its own turns."""
    url, direct = settings.store_urls()
    if not url:
        return open_store(settings.home)
    try:
        from alipes.store.postgres.store import OWN_TURNS, ClusterLimits, open_postgres_store  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(MISSING_DRIVER, "postgres") from error
    cluster = settings.cluster
    limits = ClusterLimits(frozenset(cluster.roles), cluster.capacity, cluster.per_person)
    return open_postgres_store(url, direct, limits if serves else OWN_TURNS)


def copy_to_postgres(settings: Settings, url: str, on_table: Callable[[str, int], None]) -> int:
    """Copy the SQLite store of the home into an empty PostgreSQL store, and compare them; returns how many rows.

    `on_table` is called after each table. Raises `StoreError`; then the target stays empty."""
    from alipes.store.postgres.move import move_to_postgres  # noqa: PLC0415

    return move_to_postgres(settings.home / DATABASE_FILE, url, on_table).rows


def copy_to_sqlite(settings: Settings, target: Path | None, on_table: Callable[[str, int], None]) -> int:
    """Copy the PostgreSQL store into the new file `target`, by default that of the home. See `copy_to_postgres`."""
    from alipes.store.postgres.move import move_to_sqlite  # noqa: PLC0415

    moved = move_to_sqlite(settings.store_urls()[0], target or settings.home / DATABASE_FILE, on_table)
    for name, count in moved.left.items():
        on_table(f"{name} (stays in PostgreSQL)", count)
    return moved.rows


async def inspect_home_server(settings: Settings) -> ServerFacts:
    """What the PostgreSQL server of the home says about itself. Raises `StoreError`."""
    try:
        from alipes.store.postgres.inspection import inspect_server  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(MISSING_DRIVER) from error
    return await asyncio.to_thread(inspect_server, *settings.store_urls())


@asynccontextmanager
async def open_home_archive(settings: Settings) -> AsyncIterator[Archive]:
    """The stored conversations, for reading; also on a read-only home. Raises `StoreError`."""
    if settings.store:
        async with open_home_store(settings) as store:
            yield store.archive
    else:
        async with open_archive(settings.home) as archive:
            yield archive
