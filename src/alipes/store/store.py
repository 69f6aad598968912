"""The store of a home, opened whole: turns, archive, dispatcher and bus over one file and one socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from alipes.store.archive import Archive
from alipes.store.conversations import SqliteGrants, SqliteSessions
from alipes.store.database.database import Database, open_database
from alipes.store.inbox import SqliteArrivals
from alipes.store.outbox import SqliteDrafts, SqliteOutbox
from alipes.store.peers import peers
from alipes.store.peers.bus import LocalBus
from alipes.store.peers.peers import Hosts, open_hosts
from alipes.store.peers.server import LocalDispatcher, Node, Tasks
from alipes.store.people import SqlitePeople
from alipes.store.subagents import SqliteSubagents
from alipes.store.todos import SqliteTodos
from alipes.store.turns import SqliteTurns

FILE = "alipes.db"


class Store(NamedTuple):
    """What the rest of the house uses; all of it ends with `open_store`."""

    host: str
    """The name of this process among those of the home."""
    turns: SqliteTurns
    sessions: SqliteSessions
    grants: SqliteGrants
    archive: Archive
    outbox: SqliteOutbox
    drafts: SqliteDrafts
    people: SqlitePeople
    arrivals: SqliteArrivals
    todos: SqliteTodos
    subagents: SqliteSubagents
    dispatcher: LocalDispatcher
    bus: LocalBus
    database: Database
    hosts: Hosts


@asynccontextmanager
async def open_store(home: Path, *, patience: float = 10.0, within: float = 2.0) -> AsyncIterator[Store]:
    """The store of `home`, made if need be; raises `StoreError` when it cannot be used.

    `patience`: how long a write waits for another process's; `within`: for its answer on the socket.
    At the end what was asked for is written, then we count as dead, then our connections close:
    who sees one close finds our sessions free.
    """
    hosts = open_hosts(home, within=within)
    async with Tasks() as tasks, AsyncExitStack() as last:
        door = hosts.listen()
        last.callback(hosts.leave, door)
        with hosts.join():
            async with open_database(home / FILE, patience=patience) as database:
                announced = asyncio.Event()
                turns = SqliteTurns(database, hosts, before_claim=announced.wait)
                bus = LocalBus(hosts, tasks.spawn, turns.abandoned)
                dispatcher = LocalDispatcher(turns, hosts)
                node = Node(tasks, bus, dispatcher)
                server = await asyncio.start_unix_server(
                    node.admit, sock=door, limit=peers.LINE, start_serving=False
                )
                last.callback(server.close)
                await server.start_serving()
                tasks.spawn(_announce(hosts, announced))
                try:
                    yield Store(
                        host=hosts.me,
                        turns=turns,
                        sessions=SqliteSessions(database, hosts),
                        grants=SqliteGrants(database),
                        archive=Archive(database),
                        outbox=SqliteOutbox(database),
                        drafts=SqliteDrafts(database),
                        people=SqlitePeople(database),
                        arrivals=SqliteArrivals(database),
                        todos=SqliteTodos(database),
                        subagents=SqliteSubagents(database),
                        dispatcher=dispatcher,
                        bus=bus,
                        database=database,
                        hosts=hosts,
                    )
                finally:
                    bus.end()


async def _announce(hosts: Hosts, announced: asyncio.Event) -> None:
    """Tell the living that we may publish; when that is done, whoever listens already does so here too."""
    async with asyncio.TaskGroup() as told:
        for peer in hosts.others():
            told.create_task(peers.tell(hosts, peer.host, peers.Hello(hosts.me)))
    announced.set()
