"""The stores that every contract suite runs on: how to open the store of a home, by the name of the engine."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from alipes.store.sqlite.store import open_store
from tests.world.postgres_server import open_postgres_store

OpenStore = Callable[..., AbstractAsyncContextManager[Any]]
"""Called with the folder of a home; each call acts as another process of the same home."""


def open_sqlite(home: Path, **options: Any) -> AbstractAsyncContextManager[Any]:
    return open_store(home, **options)


STORES: dict[str, OpenStore] = {"sqlite": open_sqlite, "postgres": open_postgres_store}
