"""Opens the store that the settings of a home name: SQLite in the home, or PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.store.archive import Archive
from alipes.store.sql_store import SqlStore
from alipes.store.store import open_archive, open_store


def open_home_store(settings: Settings) -> AbstractAsyncContextManager[SqlStore]:
    """The store of the home. Raises `StoreError` if it cannot be used."""
    url, direct = settings.store_urls()
    if not url:
        return open_store(settings.home)
    try:
        from alipes.store.postgres.store import ClusterLimits, open_postgres_store  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "the store is PostgreSQL: install its driver with `pip install 'alipes[postgres]'`"
        ) from error
    cluster = settings.cluster
    limits = ClusterLimits(frozenset(cluster.roles), cluster.capacity, cluster.per_person)
    return open_postgres_store(url, direct, limits)


@asynccontextmanager
async def open_home_archive(settings: Settings) -> AsyncIterator[Archive]:
    """The stored conversations, for reading; also on a read-only home. Raises `StoreError`."""
    if settings.store:
        async with open_home_store(settings) as store:
            yield store.archive
    else:
        async with open_archive(settings.home) as archive:
            yield archive
