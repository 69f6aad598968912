"""The large home on PostgreSQL: 100,000 messages, or as many as ALIPES_BENCH_MESSAGES says.

It is made as a SQLite home (kept in the folder that ALIPES_BENCH_HOME names) and copied into a private server.
"""

import asyncio
import statistics
import tempfile
from functools import partial
from pathlib import Path

from tests.world.postgres_pair import PostgresNode, open_node

from alipes.store.postgres.store import open_postgres_store
from alipes.store.sqlite.files import DATABASE_FILE
from bench import search
from bench.cluster import open_setup, steady_rows
from bench.large_home import LargeHome, load_home
from bench.measure import Row, bounded
from bench.serve import SETTLE, open_service, resident


def _load(folder: str) -> LargeHome:
    place = Path(search.HOME or folder, f"home{search.MESSAGES}")
    return load_home(place, search.MESSAGES // search.EACH, search.EACH)


def _copy(home: LargeHome, url: str) -> None:
    from alipes.store.postgres.move import move_to_postgres  # needs psycopg, which is optional

    move_to_postgres(home.folder / DATABASE_FILE, url, lambda *_: None)


async def large_home() -> list[Row]:
    """Search and lists, accepting meanwhile, guests, and `serve` on that store."""
    with tempfile.TemporaryDirectory() as folder:
        home = await asyncio.to_thread(_load, folder)
        async with open_node(shared_buffers="512MB", fsync="on") as node:
            await asyncio.to_thread(_copy, home, node.url())
            await node.query("ANALYZE")
            rows = await _measure_service(home, node.url(), Path(folder, "serve"))
            async with open_postgres_store(node.url()) as store:
                rows += await search._measure_reads(store, home)
                rows += [await search._count_guests(store, home)]
                find = partial(store.archive.search, home.common)
                rows += [await search._measure_accepting(store, home, "a search", find)]
            return [row._replace(what=f"PostgreSQL, {row.what}") for row in rows]


async def _measure_service(home: LargeHome, url: str, folder: Path) -> list[Row]:
    waits, megabytes = [], 0.0
    folder.mkdir()
    for number in range(search.STARTS + 1):  # the first one warms up
        async with open_service(folder, f'store = "{url}"\n') as (pid, wait):
            waits += [wait] if number else []
            if number == search.STARTS:
                await asyncio.sleep(SETTLE)
                megabytes = resident(pid)
    name = f"{home.messages:,} messages, serve"
    return [
        bounded(f"{name}: start to ready, median", statistics.median(waits), search.READY_REACH_S, "s"),
        bounded(f"{name}: resident after {SETTLE:.0f} s", megabytes, search.MEMORY_REACH_MB, "MB"),
    ]


async def large_load() -> list[Row]:
    """The steady load of 4 workers with a large home in the tables."""
    with tempfile.TemporaryDirectory() as folder:
        home = await asyncio.to_thread(_load, folder)

        async def fill(node: PostgresNode) -> None:
            await asyncio.to_thread(_copy, home, node.url())
            await node.query("ANALYZE")

        async with open_setup(4, fill=fill) as world:
            return await steady_rows(world, f"{home.messages:,} messages in the tables, 200 messages/s")


ALL = {"clusterhome": large_home, "clusterlargeload": large_load}
