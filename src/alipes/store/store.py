"""Opens the store of a home: the database, and the socket over which its processes talk to each other."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

from alipes.kernel.errors import StoreError
from alipes.store.archive import Archive
from alipes.store.conversations import SqliteGrants, SqliteSessions, SqliteTodos
from alipes.store.database.database import Database, open_database
from alipes.store.database.migrations import SCHEMA, schema_version
from alipes.store.inbox import SqliteInbox
from alipes.store.outbox import SqliteDrafts, SqliteOutbox
from alipes.store.peers import peers
from alipes.store.peers.peers import LocalBus, Processes, open_processes
from alipes.store.peers.server import LocalDispatcher, PeerServer, StoreTasks
from alipes.store.people import SqlitePeople
from alipes.store.subagents import SqliteSubagents
from alipes.store.turns import SqliteTurns

DATABASE_FILE = "alipes.db"


class Store(NamedTuple):
    """The parts of an open store; they are usable inside `open_store` only."""

    host: str
    """The name of this process among those of the home."""
    turns: SqliteTurns
    sessions: SqliteSessions
    grants: SqliteGrants
    archive: Archive
    outbox: SqliteOutbox
    drafts: SqliteDrafts
    people: SqlitePeople
    inbox: SqliteInbox
    todos: SqliteTodos
    subagents: SqliteSubagents
    dispatcher: LocalDispatcher
    bus: LocalBus
    database: Database
    processes: Processes


@asynccontextmanager
async def open_store(home: Path, *, busy_timeout_s: float = 10.0, peer_timeout_s: float = 2.0) -> AsyncIterator[Store]:
    """Open the store of `home`; create it if necessary. Raises `StoreError` if it cannot be used.

    `busy_timeout_s`: how long a write waits for one of another process; `peer_timeout_s`: how long to wait
    for another process's answer. On exit the submitted writes are finished first, then this process no
    longer counts as alive, then its connections close: a peer that sees one close finds our sessions free.
    """
    processes = open_processes(home, timeout_s=peer_timeout_s)
    async with StoreTasks() as tasks, AsyncExitStack() as stack:
        socket = processes.open_socket()
        stack.callback(processes.remove_socket, socket)
        with processes.register():
            _check_old_processes(processes, home / DATABASE_FILE)
            async with open_database(home / DATABASE_FILE, busy_timeout_s=busy_timeout_s) as database:
                announced = asyncio.Event()
                turns = SqliteTurns(database, processes, before_claim=announced.wait)
                bus = LocalBus(processes, tasks.spawn, turns.is_abandoned)
                dispatcher = LocalDispatcher(turns, processes)
                peer_server = PeerServer(tasks, bus, dispatcher)
                server = await asyncio.start_unix_server(
                    peer_server.accept_connection, sock=socket, limit=peers.MAX_LINE_BYTES, start_serving=False
                )
                stack.callback(server.close)
                await server.start_serving()
                tasks.spawn(_announce(processes, announced))
                try:
                    yield Store(
                        host=processes.own_name,
                        turns=turns,
                        sessions=SqliteSessions(database, processes),
                        grants=SqliteGrants(database),
                        archive=Archive(database),
                        outbox=SqliteOutbox(database),
                        drafts=SqliteDrafts(database),
                        people=SqlitePeople(database),
                        inbox=SqliteInbox(database),
                        todos=SqliteTodos(database),
                        subagents=SqliteSubagents(database),
                        dispatcher=dispatcher,
                        bus=bus,
                        database=database,
                        processes=processes,
                    )
                finally:
                    bus.close()


def _check_old_processes(processes: Processes, path: Path) -> None:
    """Refuse to migrate while a process of an older release uses the database: its queries would fail."""
    old = [peer for peer in processes.list_peers() if peer.schema < SCHEMA]
    if not old or not path.is_file():
        return
    with closing(sqlite3.connect(path)) as db:
        if schema_version(db) >= SCHEMA:
            return
    raise StoreError(f"process {old[0].pid} of the previous release is using {path.parent}; stop it, then start again")


async def _announce(processes: Processes, announced: asyncio.Event) -> None:
    """Tell the other processes that we may publish, and wait until they have subscribed here."""
    async with asyncio.TaskGroup() as group:
        for peer in processes.list_peers():
            group.create_task(peers.send_request(processes, peer.host, peers.HelloFrame(processes.own_name)))
    announced.set()
