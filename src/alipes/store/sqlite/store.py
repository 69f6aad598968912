"""Opens the store of a home: the database, and the socket over which its processes talk to each other.

Requests of the other processes are served, and work is passed to the process that holds its session.
"""

import asyncio
import logging
import math
import sqlite3
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, closing
from importlib import import_module
from pathlib import Path

import msgspec

from alipes.kernel.conversations import AdmittedTurn
from alipes.kernel.errors import SessionHeld, StoreError
from alipes.kernel.lazy import lazy_object
from alipes.kernel.turns import HOME_KEY, Op, Wake
from alipes.runtime.subscription import Subscription
from alipes.store.ports.archive import Archive
from alipes.store.ports.cluster import OnOp
from alipes.store.sql.changes import HomeChangeFeed
from alipes.store.sql.errors import is_disk_full
from alipes.store.sql.health import StoreHealth
from alipes.store.sql.store import Store
from alipes.store.sql.store_tasks import StoreTasks
from alipes.store.sql.turns import SqlTurns
from alipes.store.sqlite import peers
from alipes.store.sqlite.database import SqliteDatabase, open_database
from alipes.store.sqlite.files import DATABASE_FILE, is_writable
from alipes.store.sqlite.migrations.migrations import SCHEMA, schema_version
from alipes.store.sqlite.peers import LocalBus, Processes, open_processes

INDEXER = "alipes.store.search.indexer"
log = logging.getLogger(__name__)

EXIT_POLL_S = 0.1
"""How often to check whether a process that closed its socket has exited."""


class LocalDispatcher:
    """Routes work to the process of this home that holds the session."""

    def __init__(self, turns: SqlTurns, processes: Processes, spawn: peers.Spawn) -> None:
        self._turns, self._processes, self._spawn = turns, processes, spawn
        self._exiting: set[tuple[str, str]] = set()
        """Keys and holders that cannot be reached and have not exited yet."""
        self._on_op: OnOp | None = None
        self._serving = asyncio.Event()
        self._early: list[tuple[str, Op]] = []

    def wake_if_alone(self, key: str) -> bool:
        if alone := not self._processes.list_peers():
            self._deliver(key, Wake())
        return alone

    async def wake(self, key: str, _admitted: AdmittedTurn | None = None) -> None:
        while not self.wake_if_alone(key):
            holder = await self._turns.holder(key)
            if holder in (None, self._processes.own_name):
                self._deliver(key, Wake())
                return
            if await self._notify(holder, peers.WakeFrame(key)):
                return
            if self._processes.is_alive(holder):
                self._wake_after_exit(key, holder)
                return

    def _wake_after_exit(self, key: str, holder: str) -> None:
        """The holder closed its socket and has not exited: a killed process may take seconds on a busy disk."""
        if (key, holder) in self._exiting:
            return
        self._exiting.add((key, holder))

        async def wait() -> None:
            try:
                await self._processes.wait_until_gone(holder, poll_s=EXIT_POLL_S, timeout_s=math.inf)
            finally:
                self._exiting.discard((key, holder))
            await self.wake(key)

        self._spawn(wait())

    async def signal(self, key: str, op: Op) -> None:
        await self._turns.put_op(key, op)
        while (holder := await self._turns.holder(key)) not in (None, self._processes.own_name):
            if await self._notify(holder, peers.OpsFrame(key)):
                return
            if self._processes.is_alive(holder):
                self._wake_after_exit(key, holder)  # the next holder finds `op` in the store
                return
        if holder is None and await self._turns.has_pending(key):
            self._deliver(key, Wake())
        elif self._on_op is not None:
            await self._deliver_stored_ops(key)

    def on_idle(self) -> None:
        """Nothing is taken from elsewhere."""

    async def run(self, on_op: OnOp, _busy: Collection[str] = ()) -> None:
        self._on_op = on_op
        self._serving.set()
        try:
            early, self._early = self._early, []
            for key, op in early:
                on_op(key, op)
            await asyncio.get_running_loop().create_future()
        finally:
            self._on_op = None
            self._serving.clear()

    async def on_wake(self, key: str) -> None:
        """Another process queued a turn; return when it has been passed on."""
        await self._serving.wait()
        self._deliver(key, Wake())

    async def on_ops(self, key: str) -> None:
        """Another process stored ops for a session that we held at that moment."""
        await self._serving.wait()
        await self._deliver_stored_ops(key)

    async def _deliver_stored_ops(self, key: str) -> None:
        try:
            ops = await self._turns.take_ops(key)
        except SessionHeld as held:  # another process claimed it meanwhile
            await self._notify(held.host, peers.OpsFrame(key))
            return
        for op in ops:
            if self._on_op is not None:
                self._on_op(key, op)
            else:  # we stopped serving meanwhile: leave it for the next holder
                await self._turns.put_op(key, op)

    def _deliver(self, key: str, op: Op) -> None:
        if self._on_op is None:
            self._early.append((key, op))
        else:
            self._on_op(key, op)

    async def _notify(self, host: str | None, request: peers.RequestFrame) -> bool:
        """False if `host` is gone, or does not exit although it closed its socket."""
        if host is None:
            return False
        if await peers.send_request(self._processes, host, request):
            return True
        if not await self._processes.wait_until_gone(host):
            log.warning("process %s is running but cannot be reached; its work waits until it exits", host)
        return False


class ScheduleChanges:
    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.changed = asyncio.Event()

    async def announce(self) -> None:
        self.changed.set()
        for peer in self._processes.list_peers():
            await peers.send_request(self._processes, peer.host, peers.SchedulesFrame())


class PeerServer:
    """Serves the connections of the other processes; commands that the agent runs are refused."""

    def __init__(
        self,
        tasks: StoreTasks,
        bus: LocalBus,
        dispatcher: LocalDispatcher,
        processes: Processes,
        schedule_changes: "ScheduleChanges",
        changes: HomeChangeFeed,
    ) -> None:
        self._tasks, self._bus, self._dispatcher, self._processes = tasks, bus, dispatcher, processes
        self._schedule_changes, self._changes = schedule_changes, changes

    def accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid = peers.connected_pid(writer)
        refused = bool(pid) and self._processes.is_tool_process(pid)
        if refused:
            log.warning("process %d, which alipes started, was refused at the socket of this home", pid)
        if self._tasks.closing or refused:
            writer.transport.abort()
        else:
            self._tasks.spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subscription = Subscription()
        keys: set[str] = set()
        sender: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                request = peers.request_decoder.decode(line)
                await self._handle(request, subscription, keys)
                if sender is None and isinstance(request, peers.SubscribeFrame):
                    sender = self._tasks.spawn(_send_events(subscription, writer))
                writer.write(peers.encode_line(peers.DoneFrame()))
        except OSError as error:
            log.debug("a process of this home closed its connection: %s", error)
        except (ValueError, msgspec.DecodeError, StoreError) as error:
            log.warning("a request of another process of this home failed: %s", error)
        finally:
            for key in keys:
                self._bus.remove_remote(key, subscription)
            if sender is not None:
                sender.cancel()
            await peers.close_connection(writer)

    async def _handle(self, request: peers.RequestFrame, subscription: Subscription, keys: set[str]) -> None:
        match request:
            case peers.SubscribeFrame(key):
                if key == HOME_KEY:
                    await self._changes.start()
                keys.add(key)
                self._bus.add_remote(key, subscription)
            case peers.UnsubscribeFrame(key):
                keys.discard(key)
                self._bus.remove_remote(key, subscription)
            case peers.SchedulesFrame():
                self._schedule_changes.changed.set()
            case peers.HelloFrame(host):
                await self._bus.subscribe_all_at(host)
            case peers.WakeFrame(key):
                await self._dispatcher.on_wake(key)
            case peers.OpsFrame(key):
                await self._dispatcher.on_ops(key)


async def _send_events(subscription: Subscription, writer: asyncio.StreamWriter) -> None:
    """Send as fast as the other process reads; what exceeds the backlog is dropped and counted."""
    reported = 0
    while envelopes := await subscription.take_all():
        lines = [peers.encode_line(peers.PublishedFrame(envelope)) for envelope in envelopes]
        short = [line for line in lines if len(line) <= peers.MAX_LINE_BYTES]
        subscription.missed += len(lines) - len(short)
        writer.write(b"".join(short))
        if subscription.missed > reported:
            writer.write(peers.encode_line(peers.MissedFrame(subscription.missed - reported)))
            reported = subscription.missed
        try:
            await writer.drain()
        except OSError:
            return


class SqliteHealth(StoreHealth):
    _database: SqliteDatabase

    async def warm_up(self) -> None:
        await self._database.preallocate_wal()


class SqliteStore(Store):
    """The store of a home in one file, and the processes of this machine that use it."""

    database: SqliteDatabase

    def __init__(
        self, database: SqliteDatabase, processes: Processes, turns: SqlTurns, bus: LocalBus, spawn: peers.Spawn
    ) -> None:
        self.local_dispatcher = LocalDispatcher(turns, processes, spawn)
        self.local_schedule_changes = ScheduleChanges(processes)
        super().__init__(
            *(database, processes, turns),
            dispatcher=self.local_dispatcher,
            bus=bus,
            schedule_changes=self.local_schedule_changes,
        )
        self.archive, self.health = lazy_object(lambda: _open_archive(database)), SqliteHealth(database)
        self.search_indexer = lazy_object(
            lambda: import_module("alipes.store.search.indexer").SqlSearchIndexer(database)
        )


@asynccontextmanager
async def open_store(
    home: Path, *, busy_timeout_s: float = 10.0, peer_timeout_s: float = 2.0
) -> AsyncIterator[SqliteStore]:
    """Open the store of `home` in SQLite; create it if necessary. Raises `StoreError` if it cannot be used.

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
                turns = SqlTurns(database, processes, before_claim=announced.wait)
                bus = LocalBus(processes, tasks.spawn, turns.is_abandoned)
                store = SqliteStore(database, processes, turns, bus, tasks.spawn)
                peer_server = PeerServer(
                    *(tasks, bus, store.local_dispatcher, processes),
                    schedule_changes=store.local_schedule_changes,
                    changes=store.changes,
                )
                server = await asyncio.start_unix_server(
                    peer_server.accept_connection, sock=socket, limit=peers.MAX_LINE_BYTES, start_serving=False
                )
                stack.callback(server.close)
                await server.start_serving()
                tasks.spawn(_announce(processes, announced))
                try:
                    yield store
                finally:
                    bus.close()


@asynccontextmanager
async def open_archive(home: Path) -> AsyncIterator[Archive]:
    """The stored conversations, for reading; also on a read-only home and a full disk. Raises `StoreError`."""
    async with AsyncExitStack() as stack:
        yield await _enter_archive(stack, home)


async def _enter_archive(stack: AsyncExitStack, home: Path) -> Archive:
    path = home / DATABASE_FILE
    if not path.exists() or is_writable(path):
        try:
            return (await stack.enter_async_context(open_store(home))).archive
        except StoreError as error:
            if not path.exists() or not is_disk_full(error):
                raise
    return _open_archive(await stack.enter_async_context(open_database(path, read_only=True)))


def _open_archive(database: SqliteDatabase) -> Archive:
    archive: Archive = import_module("alipes.store.sqlite.archive").SqliteArchive(database)
    return archive


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
