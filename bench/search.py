"""Search, lists and deletion in a large home: 100,000 messages, or as many as ALIPES_BENCH_MESSAGES says.

The home is made in a temporary folder, or once in the folder that ALIPES_BENCH_HOME names; 2,000,000 messages take ten
minutes and 4 GB.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, Inbound
from alipes.store.ports.search import SearchIndexer, SearchScope, SessionOwner
from alipes.store.sql.api_runs import SessionQuery
from alipes.store.sql.store import Store
from alipes.store.sqlite.store import open_store
from bench.large_home import CALLERS, GUESTS, LargeHome, guest_address, load_home
from bench.measure import Row, bounded, p
from bench.serve import SETTLE, open_service, resident

MESSAGES = int(os.environ.get("ALIPES_BENCH_MESSAGES", "100000"))
HOME = os.environ.get("ALIPES_BENCH_HOME", "")
EACH, ROUNDS, STARTS, DELETED = 20, 40, 5, 5
REACH_MS, ACCEPT_REACH_MS, DELETE_REACH_MS = 50.0, 20.0, 200.0
READY_REACH_S, MEMORY_REACH_MB = 0.5, 60.0


async def search() -> list[Row]:
    """p95 of searches and lists, and of accepting a message meanwhile; who finds their own; `serve` on that home."""
    with tempfile.TemporaryDirectory() as folder:
        home = await asyncio.to_thread(load_home, Path(HOME or folder, f"home{MESSAGES}"), MESSAGES // EACH, EACH)
        rows = await _measure_service(home)
        async with open_store(home.folder) as store:
            indexer = store.search_indexer
            while await indexer.index_some():
                pass
            rows += await _measure_reads(store, home)
            rows += [await _count_guests(store, home)]
            rows += [await _measure_accepting(store, home, "a search", partial(store.archive.search, home.common))]
            return [*rows, *await _measure_deletion(store, indexer, home)]


async def _measure_reads(store: Store, home: LargeHome) -> list[Row]:
    archive, runs = store.archive, store.api_runs
    guest = SearchScope(key=guest_address(0).key)
    caller = SessionOwner("api", f"caller{CALLERS - 1}")
    find = archive.search
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "common word": partial(find, home.common),
        "two common words": partial(find, " ".join(home.words[:2])),
        "rare word": partial(find, home.rare),
        "absent word": partial(find, "absentword"),
        "part of a rare word": partial(find, home.rare[1:-1]),
        "part of a common word": partial(find, home.common[1:]),
        "two letters": partial(find, "q+"),
        "common word, a guest": partial(find, home.common, scope=guest),
        "absent word, a guest": partial(find, "absentword", scope=guest),
        "common word, a caller": partial(find, home.common, scope=SearchScope(owner=caller)),
        "absent word, a caller": partial(find, "absentword", scope=SearchScope(owner=caller)),
        "common word, a folder": partial(find, home.common, scope=SearchScope(workdir="/projects/1")),
        "absent word, a folder": partial(find, "absentword", scope=SearchScope(workdir="/projects/1")),
        "list of all": partial(archive.sessions, 50),
        "list of a guest": partial(archive.sessions, 50, scope=guest),
        "list of a caller": partial(runs.sessions, caller, SessionQuery(limit=50)),
        "unknown title": partial(_resolve_unknown, store),
        "usage of 30 days": partial(archive.usage_by, "day", days=30),
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


async def _repeat(work: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> list[float]:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    return times


async def _count_guests(store: Store, home: LargeHome) -> Row:
    """Guests who see their conversation in their list, and find a message of it."""
    guests, seen = min(GUESTS, home.sessions // 10), 0
    for number in range(guests):
        address = guest_address(number)
        scope = SearchScope(key=address.key)
        listed = await store.archive.sessions(5, scope=scope)
        found = await store.archive.search(home.common, 5, scope=scope)
        seen += bool(listed and found) and all(hit.chat == address.chat for hit in found)
    what = f"{home.messages:,} messages, guests who see and find their own conversation"
    return Row(what, str(seen), "", "", f">= {guests}", seen == guests)


async def _measure_accepting(store: Store, home: LargeHome, during: str, work: Callable[[], Awaitable[object]]) -> Row:
    """How long a message waits while `work` is repeated."""

    async def repeat_work() -> None:
        while True:
            await work()

    times = []
    async with asyncio.TaskGroup() as group:
        working = group.create_task(repeat_work())
        for number in range(ROUNDS):
            inbound = Inbound(f"{during}{number}", Address("terminal", "new"), "me", "hello")
            began = time.perf_counter()
            await store.turns.accept(inbound)
            times.append((time.perf_counter() - began) * 1000)
        working.cancel()
    return bounded(f"{home.messages:,} messages, accepted during {during}, p95", p(times, 95), ACCEPT_REACH_MS, "ms")


async def _measure_deletion(store: Store, indexer: SearchIndexer, home: LargeHome) -> list[Row]:
    """Deletes conversations and puts nothing back: a home that is kept has fewer of them afterwards."""
    chosen = [facts.id for facts in await store.archive.sessions(DELETED, scope=SearchScope(workdir="/projects/7"))]
    times = []
    for id in chosen:
        times += await _repeat(partial(store.archive.delete, id), 1)
    name = f"{home.messages:,} messages"
    rows = [bounded(f"{name}, a conversation deleted, median", statistics.median(times), DELETE_REACH_MS, "ms")]
    return [*rows, await _measure_accepting(store, home, "clean-up of the index", indexer.clean_some)]


async def _measure_service(home: LargeHome) -> list[Row]:
    waits, megabytes = [], 0.0
    for number in range(STARTS + 1):  # the first one warms up
        async with open_service(home.folder) as (pid, wait):
            waits += [wait] if number else []
            if number == STARTS:
                await asyncio.sleep(SETTLE)
                megabytes = resident(pid)
    name = f"{home.messages:,} messages, serve"
    return [
        bounded(f"{name}: start to ready, median of {STARTS}", statistics.median(waits), READY_REACH_S, "s"),
        bounded(f"{name}: resident after {SETTLE:.0f} s", megabytes, MEMORY_REACH_MB, "MB"),
    ]
