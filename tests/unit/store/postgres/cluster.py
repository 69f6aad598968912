"""A small cluster for tests: the tables that workers use, and the parts of a worker without a whole store."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

import alipes.store.postgres
from alipes.kernel.turns import Op
from alipes.store.peers import Spawn
from alipes.store.postgres.bus import PostgresBus
from alipes.store.postgres.direct import open_direct
from alipes.store.postgres.dispatcher import PostgresDispatcher
from alipes.store.postgres.notifications import Notifications
from alipes.store.postgres.workers import Workers, application_name, open_workers
from alipes.store.store import StoreTasks

TABLES = """
CREATE TABLE leases (key text COLLATE "C" PRIMARY KEY, session_id text, holder text COLLATE "C",
    epoch bigint NOT NULL DEFAULT 0);
CREATE TABLE turns (number bigserial PRIMARY KEY, key text COLLATE "C" NOT NULL, ending text,
    held integer NOT NULL DEFAULT 0, user_id text NOT NULL DEFAULT '');
CREATE TABLE pending_ops (number bigserial PRIMARY KEY, key text COLLATE "C" NOT NULL, kind text, op text);
"""
ROLES = frozenset({"work"})
CHILD = """
import asyncio, sys
from alipes.store.postgres.workers import open_workers

async def main(url):
    async with open_workers(url, frozenset({"work"})) as workers:
        print(workers.own_name, flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


def create_tables(url: str) -> None:
    migration = Path(alipes.store.postgres.__file__).parent / "migrations" / "0003_workers.sql"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute((TABLES + migration.read_text()).encode())


@asynccontextmanager
async def run_child(url: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A worker in a process of its own, and its id."""
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


class PlainTurns:
    """The part of `SqlTurns` that the dispatcher uses, on one direct connection for each call."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.taken: list[str] = []

    async def _fetch(self, sql: str, *values: object) -> list[tuple]:
        async with open_direct(self._workers.url, application_name(self._workers.own_name)) as db:
            return await db.fetch(sql, *values)

    async def holder(self, key: str) -> str | None:
        found = await self._fetch("SELECT holder FROM leases WHERE key = %s", key)
        return found[0][0] if found else None

    async def has_pending(self, key: str) -> bool:
        return bool(await self._fetch("SELECT 1 FROM turns WHERE key = %s AND ending IS NULL AND held = 0", key))

    async def is_abandoned(self, key: str) -> bool:
        return await self.has_pending(key) and await self.holder(key) is None

    async def put_op(self, key: str, op: Op) -> None:
        await self._fetch("INSERT INTO pending_ops (key, kind) VALUES (%s, %s)", key, type(op).__name__)

    async def take_ops(self, key: str) -> tuple[str, ...]:
        found = await self._fetch("DELETE FROM pending_ops WHERE key = %s RETURNING kind", key)
        return tuple(kind for (kind,) in found)


class Member:
    """One worker of the cluster."""

    def __init__(self, workers: Workers, spawn: Spawn, capacity: int, per_person: int) -> None:
        self.workers = workers
        self.notifications = Notifications(workers)
        self.turns = PlainTurns(workers)
        self.bus = PostgresBus(workers, self.notifications, self.turns.is_abandoned)
        limits = {"capacity": capacity, "per_person": per_person}
        self.dispatcher = PostgresDispatcher(self.turns, workers, self.notifications, spawn, **limits)
        self.busy: set[str] = set()
        self.ops: list[tuple[str, object]] = []
        self.received = asyncio.Event()

    def on_op(self, key: str, op: object) -> None:
        self.busy.add(key)
        self.ops.append((key, op))
        self.received.set()

    def on_frame(self, host, frame) -> None:
        self.bus.handle(host, frame)
        self.dispatcher.handle(frame)

    async def handle_departures(self) -> None:
        while True:
            host = await self.workers.departures.get()
            self.dispatcher.on_gone()
            await self.bus.on_gone(host)


@asynccontextmanager
async def open_member(
    url: str, *, roles=ROLES, capacity: int = 0, per_person: int = 0, dispatches: bool = True
) -> AsyncIterator[Member]:
    async with open_workers(url, roles) as workers, StoreTasks() as tasks:
        member = Member(workers, tasks.spawn, capacity, per_person)
        tasks.spawn(member.notifications.run(member.on_frame, member.bus.on_interrupted))
        tasks.spawn(member.handle_departures())
        await member.bus.join()
        if dispatches:
            tasks.spawn(member.dispatcher.run(member.on_op, member.busy))
        try:
            yield member
        finally:
            await member.notifications.flush(1.0)
            member.bus.close()


async def add_sessions(url: str, count: int, holder: str | None = None, person: str = "") -> None:
    async with open_direct(url, "tests") as db:
        sql = "INSERT INTO leases (key, holder) SELECT 'k' || n, %s FROM generate_series(1, %s) n"
        await db.fetch(sql, holder, count)
        sql = "INSERT INTO turns (key, user_id) SELECT 'k' || n, %s FROM generate_series(1, %s) n"
        await db.fetch(sql, person, count)
