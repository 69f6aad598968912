"""A small cluster for tests: stores of several workers in this process, and workers in processes of their own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from alipes.kernel.turns import Op
from alipes.store.postgres.direct import open_direct
from alipes.store.postgres.store import ClusterLimits, PostgresStore, open_postgres_store

ROLES = frozenset({"work"})
CHILD = """
import asyncio, sys
from alipes.store.postgres.store import open_postgres_store

async def main(url):
    async with open_postgres_store(url) as store:
        async def lead():
            print(store.processes.own_name, flush=True)
            await asyncio.Event().wait()
        await store.leaders.lead("account", lead)

asyncio.run(main(sys.argv[1]))
"""


@asynccontextmanager
async def run_child(url: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A worker in a process of its own, which leads `account`, and its id."""
    command = (sys.executable, "-c", CHILD, url)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Member:
    """One worker of the cluster, and what its dispatcher delivered."""

    def __init__(self, store: PostgresStore) -> None:
        self.store, self.workers, self.bus = store, store.processes, store.bus
        self.dispatcher, self.turns = store.dispatcher, store.turns
        self.busy: set[str] = set()
        self.ops: list[tuple[str, Op]] = []

    def on_op(self, key: str, op: Op) -> None:
        self.busy.add(key)
        self.ops.append((key, op))


@asynccontextmanager
async def open_member(url: str, *, capacity: int = 0, per_person: int = 0) -> AsyncIterator[Member]:
    limits = ClusterLimits(ROLES, capacity, per_person)
    async with open_postgres_store(url, limits=limits) as store, asyncio.TaskGroup() as group:
        member = Member(store)
        running = group.create_task(store.dispatcher.run(member.on_op, member.busy))
        try:
            yield member
        finally:
            running.cancel()


async def fetch(url: str, sql: str, *values: object) -> list:
    async with open_direct(url, "tests") as db:
        return await db.fetch(sql, *values)


async def add_sessions(url: str, count: int, holder: str | None = None, person: str = "") -> None:
    """Sessions `k1` and on, each with one turn that waits."""
    async with open_direct(url, "tests") as db:
        sql = """INSERT INTO sessions (id, key, platform, address, created, updated)
            SELECT 's' || n, 'k' || n, 'cli', '', 1, 1 FROM generate_series(1, %s) n"""
        await db.fetch(sql, count)
        sql = """INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, created, user_id)
            SELECT 't' || n, 'k' || n, 's' || n, 'cli', n, '', 1, %s FROM generate_series(1, %s) n"""
        await db.fetch(sql, person, count)
        sql = "INSERT INTO leases (key, session_id, holder) SELECT 'k' || n, 's' || n, %s FROM generate_series(1, %s) n"
        await db.fetch(sql, holder, count)
