"""Search and lists in a large home: 100,000 messages, or as many as ALIPES_BENCH_MESSAGES says, such as 2000000.

The home is made in a temporary folder; 2,000,000 messages take some minutes and 4 GB.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, Inbound
from alipes.store.api_runs import SqliteApiRuns
from alipes.store.search.indexer import SqliteSearchIndexer
from alipes.store.search.scope import SearchScope, SessionOwner
from alipes.store.store import Store, open_store
from bench.large_home import CALLERS, LargeHome, guest_address, make_home
from bench.measure import Row, bounded, p

MESSAGES = int(os.environ.get("ALIPES_BENCH_MESSAGES", "100000"))
EACH, ROUNDS = 20, 40
REACH_MS = 50.0
ACCEPT_REACH_MS = 20.0


async def search() -> list[Row]:
    """p95 of searches and lists, and of accepting a message meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        home = await asyncio.to_thread(make_home, Path(folder, "home"), MESSAGES // EACH, EACH)
        async with open_store(home.folder) as store:
            indexer = SqliteSearchIndexer(store.database)
            while await indexer.index_some():
                pass
            return [*await _measure_reads(store, home), await _measure_accepting(store, home)]


async def _measure_reads(store: Store, home: LargeHome) -> list[Row]:
    archive, runs = store.archive, SqliteApiRuns(store.database)
    guest = SearchScope(key=guest_address(0).key)
    caller = SessionOwner("api", f"caller{CALLERS - 1}")
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "common word": lambda: archive.search(home.common),
        "rare word": lambda: archive.search(home.rare),
        "absent word": lambda: archive.search("absentword"),
        "part of a word": lambda: archive.search(home.rare[1:-1]),
        "common word, a guest": lambda: archive.search(home.common, scope=guest),
        "common word, a caller": lambda: archive.search(home.common, scope=SearchScope(owner=caller)),
        "list of a caller": lambda: runs.sessions(caller, limit=50),
        "unknown title": lambda: _resolve_unknown(store),
        "usage of 30 days": lambda: archive.usage_by("day", days=30),
    }
    return [
        bounded(f"{home.messages:,} messages, {name}, p95", p(await _repeat(work), 95), REACH_MS, "ms")
        for name, work in works.items()
    ]


async def _resolve_unknown(store: Store) -> None:
    try:
        await store.archive.resolve("no such title", title_start=True)
    except SessionError:
        return


async def _repeat(work: Callable[[], Awaitable[object]]) -> list[float]:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    return times


async def _measure_accepting(store: Store, home: LargeHome) -> Row:
    async def search_all() -> None:
        while True:
            await store.archive.search(home.common)

    times = []
    async with asyncio.TaskGroup() as group:
        searching = group.create_task(search_all())
        for number in range(ROUNDS):
            inbound = Inbound(f"new{number}", Address("terminal", "new"), "me", "hello")
            began = time.perf_counter()
            await store.turns.accept(inbound)
            times.append((time.perf_counter() - began) * 1000)
        searching.cancel()
    return bounded(f"{home.messages:,} messages, accepted during a search, p95", p(times, 95), ACCEPT_REACH_MS, "ms")
