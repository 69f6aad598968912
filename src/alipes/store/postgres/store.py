"""Opens the store of a cluster: PostgreSQL, and the workers that share it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from alipes.store.postgres.bus import PostgresBus
from alipes.store.postgres.capacity import OWN, Capacity
from alipes.store.postgres.cluster_status import PostgresClusterView, RoleLeaders
from alipes.store.postgres.database import PostgresDatabase, migrate_store, open_postgres
from alipes.store.postgres.dispatcher import PostgresDispatcher, PostgresScheduleChanges
from alipes.store.postgres.notifications import Frame, Notifications, ProbeFrame
from alipes.store.postgres.outbox import PostgresOutbox
from alipes.store.postgres.platform_states import PostgresPlatformStates
from alipes.store.postgres.search import PostgresArchive, PostgresSearchIndexer
from alipes.store.postgres.turns import PostgresTurns
from alipes.store.postgres.workers import LEASE_S, Workers, open_workers
from alipes.store.sql.background import BackgroundProcessStore
from alipes.store.sql.store import Store
from alipes.store.sql.store_tasks import StoreTasks
from alipes.store.sqlite.peers import SchedulesFrame, Spawn

ALL_ROLES = frozenset({"listen", "work", "web"})
FLUSH_TIMEOUT_S = 1.0
"""Time to send the last notifications of a store that closes."""


class ClusterLimits(Struct, frozen=True):
    """What this worker does in the cluster."""

    roles: frozenset[str] = ALL_ROLES
    capacity: int = 0
    """Sessions that may run here at the same time; zero: no limit."""
    per_person: int = 0
    """Sessions of one person that may run in the cluster; zero: no limit."""
    lease_s: float = LEASE_S
    """How long this worker counts as alive without a sign of life."""


ALL = ClusterLimits()
OWN_TURNS = ClusterLimits(frozenset({OWN}))
"""Of a command that does not serve."""


class PostgresBackgroundProcesses(BackgroundProcessStore):
    """The table `workers` says which are gone."""

    _lost = " AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = holder AND w.state = 'alive')"


class PostgresStore(Store):
    """The store of a cluster, and this worker of it."""

    clustered = True
    processes: Workers
    dispatcher: PostgresDispatcher
    schedule_changes: PostgresScheduleChanges
    leaders: RoleLeaders
    cluster: PostgresClusterView

    def __init__(
        self,
        database: PostgresDatabase,
        workers: Workers,
        notifications: Notifications,
        spawn: Spawn,
        limits: ClusterLimits,
    ) -> None:
        capacity = Capacity(limits.roles, limits.capacity, limits.per_person)
        turns = PostgresTurns(database, workers, capacity)
        self.cluster_bus = bus = PostgresBus(workers, notifications, turns.list_orphans)
        dispatcher = PostgresDispatcher(turns, workers, notifications, spawn, capacity)
        changes = PostgresScheduleChanges(bus, notifications)
        super().__init__(database, workers, turns, dispatcher=dispatcher, bus=bus, schedule_changes=changes)
        self.outbox, self.archive = PostgresOutbox(database, workers.own_name), PostgresArchive(database)
        self.search_indexer = PostgresSearchIndexer(database)
        self.leaders, self.platform_states = RoleLeaders(workers), PostgresPlatformStates(database)
        self.cluster = PostgresClusterView(database, workers, notifications, self.leaders, per_person=limits.per_person)
        self.background_processes = PostgresBackgroundProcesses(database, workers)

    def on_frame(self, host: str, frame: Frame) -> None:
        """The worker `host` sent this."""
        if isinstance(frame, SchedulesFrame):
            self.schedule_changes.changed.set()
        if isinstance(frame, ProbeFrame):
            self.cluster.on_probe(frame)
        self.cluster_bus.handle(host, frame)
        self.dispatcher.handle(frame)

    async def handle_departures(self) -> None:
        """Until cancelled: free what workers that are gone had, and end what they published."""
        while True:
            host = await self.processes.departures.get()
            self.dispatcher.look()
            await self.cluster_bus.on_gone(host)


async def _abandon_when_lost(workers: Workers, database: PostgresDatabase) -> None:
    """At once: what still waits for a write of this worker must not wait for a server that is out of reach."""
    await workers.lost.wait()
    database.abandon()


@asynccontextmanager
async def open_postgres_store(
    url: str, direct: str = "", limits: ClusterLimits = ALL, *, peer_timeout_s: float = 2.0
) -> AsyncIterator[PostgresStore]:
    """Open the store at `url`; create its tables if necessary. Raises `StoreError` if it cannot be used, and
    `LeaseLost` in the body's place once this worker has lost its lease.

    `direct`: an address of PostgreSQL itself, if `url` is that of a pooler. `peer_timeout_s`: how long to wait for
    another worker's answer. On exit the submitted writes are finished
    first; then the sessions of this worker are free for the others.
    """
    await migrate_store(direct or url)
    async with (
        open_workers(direct or url, limits.roles, timeout_s=peer_timeout_s, lease_s=limits.lease_s) as workers,
        StoreTasks() as tasks,
        open_postgres(url, workers.own_name, check=workers.check_lease, pooled=bool(direct)) as database,
    ):
        notifications = Notifications(workers)
        store = PostgresStore(database, workers, notifications, tasks.spawn, limits)
        tasks.spawn(notifications.run(store.on_frame, store.cluster_bus.on_interrupted))
        tasks.spawn(store.handle_departures())
        tasks.spawn(store.leaders.run())
        await store.cluster_bus.join()
        await store.changes.start()
        tasks.spawn(_abandon_when_lost(workers, database))
        try:
            yield store
        finally:
            if not workers.is_lost:
                await notifications.flush(FLUSH_TIMEOUT_S)
            store.cluster_bus.close()
