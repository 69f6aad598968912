"""The parts of a store that a light worker uses, on PostgreSQL or SQLite."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from alipes.store.store import StoreTasks, open_store


class WorkerStore(Struct):
    """Named as in the whole store."""

    host: str
    turns: Any
    outbox: Any
    dispatcher: Any
    bus: Any
    processes: Any


@asynccontextmanager
async def open_worker_store(
    home: Path, url: str, roles: frozenset[str], capacity: int = 0
) -> AsyncIterator[WorkerStore]:
    """Raises `LeaseLost` in the body's place once the lease is lost."""
    if not url:
        async with open_store(home) as store:
            yield WorkerStore(store.host, store.turns, store.outbox, store.dispatcher, store.bus, store.processes)
        return
    import psycopg

    from alipes.store.postgres.bus import PostgresBus
    from alipes.store.postgres.database import open_postgres
    from alipes.store.postgres.dispatcher import PostgresDispatcher
    from alipes.store.postgres.migrate import migrate
    from alipes.store.postgres.notifications import Notifications
    from alipes.store.postgres.outbox import PostgresOutbox
    from alipes.store.postgres.turns import PostgresTurns
    from alipes.store.postgres.workers import open_workers

    def create() -> None:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as db:
            migrate(db)

    await asyncio.to_thread(create)
    async with (
        open_workers(url, roles) as workers,
        StoreTasks() as tasks,
        open_postgres(url, workers.own_name) as database,
    ):
        notifications = Notifications(workers)
        turns = PostgresTurns(database, workers)  # type: ignore[arg-type]
        bus = PostgresBus(workers, notifications, turns.is_abandoned)
        dispatcher = PostgresDispatcher(turns, workers, notifications, tasks.spawn, capacity=capacity)

        def on_frame(host: str, frame: Any) -> None:
            bus.handle(host, frame)
            dispatcher.handle(frame)

        async def handle_departures() -> None:
            while True:
                host = await workers.departures.get()
                dispatcher.on_gone()
                await bus.on_gone(host)

        tasks.spawn(notifications.run(on_frame, bus.on_interrupted))
        tasks.spawn(handle_departures())
        await bus.join()
        try:
            outbox = PostgresOutbox(database, workers.own_name)
            yield WorkerStore(workers.own_name, turns, outbox, dispatcher, bus, workers)
        finally:
            database.abandon()
            bus.close()
