"""The workers of a cluster: which are alive, and for how long this one may act.

A worker holds an advisory lock on a direct connection and a lease by the database's clock. Each waits for the lock of
the next one in the ring, so that a death is noticed at once; a worker that is paused or cut off loses its lease.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import ConfigError, LeaseLost
from alipes.runtime.tasks import unwrap_error_group
from alipes.store.postgres.direct import ConnectionLost, DirectConnection, open_direct

log = logging.getLogger(__name__)

LEASE_S = 3.0
RENEW_S = 1.0
MARGIN_S = 0.25
"""How long before the end of its lease a worker stops to act."""
LEASE_LOST = (
    "PostgreSQL was out of reach for too long, and this process lost its lease; "
    "what it was doing continues in another process, or when alipes is started again"
)
RECONNECT_S = 0.05
MIN_PAUSE_S = 0.02
RING_WAIT_S = 0.2
"""How soon a worker that joined is watched by the one before it."""
RING_GRACE_S = 0.5
"""After our own connection was lost, the others have this long to connect again before their locks count."""
LOCK_TIMEOUT = "55P03"
"""The server's code for a lock that was not granted in time."""
_FORGET = """WITH gone AS (DELETE FROM workers
    WHERE state <> 'alive' AND lease_until < clock_timestamp() - interval '30 days' RETURNING id)
    DELETE FROM worker_batches WHERE worker IN (SELECT id FROM gone)"""
"""Workers that have been gone for long; nothing refers to them."""
_LOCK = "hashtextextended('alipes worker ' || %s, 0)"
Cause: TypeAlias = Literal["death", "lease", "left"]
"""Why a worker is gone: its lock was released, its lease is over, or it exits."""


def application_name(worker: str) -> str:
    """The name of all connections of a worker: those of a dead one are ended."""
    return f"alipes {worker}"


def channel_of(worker: str) -> str:
    """The notification channel of a worker."""
    return f"alipes_{worker}"


class Worker(Struct, frozen=True):
    """Another worker, as its row says."""

    host: str
    """Its id."""
    node: str
    """The machine it runs on."""
    pid: int
    roles: frozenset[str]
    started: float


class Workers:
    """The table `workers`, seen by one worker."""

    def __init__(self, url: str, roles: frozenset[str], timeout_s: float = 2.0, lease_s: float = LEASE_S) -> None:
        """`url`: a direct route to PostgreSQL. `timeout_s`: how long another worker may take to answer. `lease_s`: how
        long this worker counts as alive without a sign of life."""
        self.own_name = os.urandom(6).hex()
        self.url, self.roles, self.timeout_s, self.lease_s = url, roles, timeout_s, lease_s
        self.departures: asyncio.Queue[str] = asyncio.Queue()
        """Ids of workers that are gone, each once."""
        self.takeovers: dict[str, int] = {"death": 0, "lease": 0}
        """Sessions of dead workers that this worker freed, by cause."""
        self.renewed_at = 0.0
        self._deadline = 0.0
        self.lost = asyncio.Event()
        """Set once the lease is lost."""
        self._life: DirectConnection | None = None
        self._alive: dict[str, Worker] = {}
        self._gone: set[str] = set()
        self._refresh = asyncio.Event()
        self._next_expiry_s = lease_s

    def is_alive(self, host: str | None) -> bool:
        """True unless `host` is known to be gone: its sessions are freed in the transaction that declares it dead."""
        return host is not None and host not in self._gone

    def list_peers(self) -> list[Worker]:
        """The other workers."""
        return list(self._alive.values())

    def find_peer(self, host: str) -> Worker | None:
        return self._alive.get(host)

    async def wait_until_gone(self, host: str, *, poll_s: float = 0.005, timeout_s: float | None = None) -> bool:
        """Wait until `host` is known to be gone; False if it is not in time."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while self.is_alive(host):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(poll_s)
        return True

    def check_lease(self) -> None:
        if self.is_lost or _now() > self._deadline:
            self.lost.set()
            raise LeaseLost(LEASE_LOST)

    @property
    def is_lost(self) -> bool:
        return self.lost.is_set()

    @property
    def lease_age_s(self) -> float:
        """Seconds since the last confirmed renewal was sent."""
        return _now() - self.renewed_at

    def on_gone(self, host: str) -> None:
        """Somebody declared `host` dead, or it left."""
        if host == self.own_name:
            self.lost.set()
        else:
            self._note_gone(host)
        self._refresh.set()

    def on_joined(self, host: str) -> None:
        """A new worker said hello: read its row."""
        if host not in self._alive:
            self._refresh.set()

    def _note_gone(self, host: str) -> None:
        self._alive.pop(host, None)
        if host not in self._gone:
            self._gone.add(host)
            self.departures.put_nowait(host)

    # The lease

    async def _register(self, life: DirectConnection) -> None:
        await _check_not_pooled(life, self.url, application_name(self.own_name))
        await self._take_lock(life)
        sent = _now()
        sql = """INSERT INTO workers (id, host, pid, roles, lease_until, server_start, state, started)
            VALUES (%s, %s, %s, %s, clock_timestamp() + %s * interval '1 second', pg_postmaster_start_time(),
                'alive', clock_timestamp())"""
        await life.fetch(_FORGET, timeout_s=LEASE_S)
        values = (self.own_name, socket.gethostname(), os.getpid(), ",".join(sorted(self.roles)), self.lease_s)
        await life.fetch(sql, *values, timeout_s=self.timeout_s)
        self._confirm(sent)
        await self._read_peers(life)

    async def _take_lock(self, life: DirectConnection) -> None:
        while True:
            sql = f"SELECT pg_try_advisory_lock({_LOCK})"
            ((taken,),) = await life.fetch(sql, self.own_name, timeout_s=LEASE_S)
            if taken:
                return
            await self._renew(life)  # its holder declares us dead, or sees that the server was restarted
            await asyncio.sleep(RECONNECT_S)

    async def _keep_lease(self, life: DirectConnection) -> None:
        """Renew the lease on the first connection, then on others. Raises `LeaseLost`."""
        try:
            await self._renew_until_lost(life)
        except ConnectionLost as error:
            log.warning("the lease is renewed on another connection: %s", error)
        while True:
            self.check_lease()
            try:
                async with open_direct(self.url, application_name(self.own_name)) as life:
                    await self._take_lock(life)
                    sql = "UPDATE workers SET server_start = pg_postmaster_start_time() WHERE id = %s"
                    await life.fetch(sql, self.own_name, timeout_s=LEASE_S)
                    await self._renew_until_lost(life)
            except ConnectionLost as error:
                log.info("the lease could not be renewed: %s", error)
                await asyncio.sleep(RECONNECT_S)

    async def _renew_until_lost(self, life: DirectConnection) -> None:
        self._life = life
        while True:
            await self._renew(life)
            await self._read_peers(life)
            self._refresh.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(RENEW_S, self._next_expiry_s + MIN_PAUSE_S)):
                    await self._refresh.wait()

    async def _renew(self, life: DirectConnection) -> None:
        self.check_lease()
        sent = _now()
        sql = """UPDATE workers SET lease_until = clock_timestamp() + %s * interval '1 second'
            WHERE id = %s AND state = 'alive' RETURNING 1"""
        if not await life.fetch(sql, self.lease_s, self.own_name, timeout_s=LEASE_S):
            self.lost.set()
        self.check_lease()
        self._confirm(sent)

    def _confirm(self, sent: float) -> None:
        self.renewed_at = sent
        self._deadline = sent + self.lease_s - MARGIN_S

    async def _watch_deadline(self) -> None:
        """Raises `LeaseLost` soon after the deadline, also while a renewal waits for its answer."""
        while True:
            self.check_lease()
            await asyncio.sleep(min(max(self._deadline - _now(), 0.01), RENEW_S / 4))

    # The others

    async def _read_peers(self, life: DirectConnection) -> None:
        sql = """SELECT id, host, pid, roles, extract(epoch FROM started)::float8,
            extract(epoch FROM lease_until - clock_timestamp())::float8
            FROM workers WHERE state = 'alive' AND id <> %s ORDER BY id"""
        found = await life.fetch(sql, self.own_name, timeout_s=LEASE_S)
        peers = {
            id: Worker(id, host, pid, frozenset(filter(None, roles.split(","))), started)
            for id, host, pid, roles, started, _ in found
        }
        self._next_expiry_s = min((left for *_, left in found if left > 0), default=self.lease_s)
        for missing in self._alive.keys() - peers.keys():
            self._note_gone(missing)
        self._alive = {id: peer for id, peer in peers.items() if id not in self._gone}
        for id, *_, left in found:
            if left <= 0:
                await _declare_late(self, id)

    async def _declare(self, connection: DirectConnection, host: str, cause: Cause) -> None:
        self.check_lease()
        sql = "SELECT declare_dead(%s, %s, %s)"
        ((freed,),) = await connection.fetch(sql, host, cause, self.own_name, timeout_s=self.timeout_s)
        if freed is not None:
            log.warning("worker %s is gone (%s); %d sessions were freed", host, cause, freed)
            self.takeovers[cause] = self.takeovers.get(cause, 0) + freed
            self._note_gone(host)

    async def _leave(self) -> None:
        """Free our sessions at once, instead of waiting to be declared dead."""
        life = self._life
        with suppress(ConnectionLost, LeaseLost):
            self.check_lease()
            if life is not None and not life.is_lost:
                sql = "SELECT declare_dead(%s, 'left', %s)"
                await life.fetch(sql, self.own_name, self.own_name, timeout_s=self.timeout_s)
        self.lost.set()


async def _declare_late(workers: Workers, host: str) -> None:
    """On a connection of its own: the rows of a paused worker may be locked for a moment."""
    with suppress(ConnectionLost):
        async with open_direct(workers.url, application_name(workers.own_name)) as connection:
            await workers._declare(connection, host, "lease")


async def _watch_ring(workers: Workers) -> None:
    """Wait for the lock of the next worker in the ring; with it, declare that worker dead."""
    while True:
        try:
            async with open_direct(workers.url, application_name(workers.own_name)) as ring:
                await ring.fetch(f"SET lock_timeout = {int(RING_WAIT_S * 1000)}", timeout_s=RENEW_S)
                while True:
                    await _watch_next(workers, ring)
        except ConnectionLost as error:
            log.info("the next worker is watched on another connection: %s", error)
            await asyncio.sleep(RING_GRACE_S)


async def _watch_next(workers: Workers, ring: DirectConnection) -> None:
    ids = sorted(workers._alive)
    if not ids:
        await asyncio.sleep(RECONNECT_S)
        return
    following = next((id for id in ids if id > workers.own_name), ids[0])
    try:
        await ring.fetch(f"SELECT pg_advisory_lock_shared({_LOCK})", following, timeout_s=LEASE_S)
    except ConnectionLost as lost:
        if lost.sqlstate != LOCK_TIMEOUT:
            raise
        return
    sql = "SELECT 1 FROM workers WHERE id = %s AND state = 'alive' AND server_start = pg_postmaster_start_time()"
    connected = await ring.fetch(sql, following, timeout_s=LEASE_S)
    if connected:
        await workers._declare(ring, following, "death")
    await ring.fetch(f"SELECT pg_advisory_unlock_shared({_LOCK})", following, timeout_s=LEASE_S)
    if not connected:  # it is gone already, or did not connect since the server was restarted: its lease decides
        workers._refresh.set()
        await asyncio.sleep(RECONNECT_S)


@asynccontextmanager
async def open_workers(
    url: str, roles: frozenset[str], *, timeout_s: float = 2.0, lease_s: float = LEASE_S
) -> AsyncIterator[Workers]:
    """Count as alive while the context lasts. Raises `LeaseLost` in the body's place once the lease is lost."""
    workers = Workers(url, roles, timeout_s, lease_s)
    with unwrap_error_group():
        async with open_direct(url, application_name(workers.own_name)) as life, asyncio.TaskGroup() as group:
            await workers._register(life)
            tasks = [
                group.create_task(workers._keep_lease(life), name="lease"),
                group.create_task(workers._watch_deadline(), name="lease deadline"),
                group.create_task(_watch_ring(workers), name="ring of workers"),
            ]
            try:
                yield workers
            finally:
                await workers._leave()
                for task in tasks:
                    task.cancel()


async def _check_not_pooled(life: DirectConnection, url: str, name: str) -> None:
    """Raises `ConfigError` if a pooler is between us and the server: a lock would belong to a shared connection."""
    key = int.from_bytes(os.urandom(7), "big")
    ((taken, pid),) = await life.fetch("SELECT pg_try_advisory_lock(%s), pg_backend_pid()", key, timeout_s=LEASE_S)
    async with open_direct(url, name) as other:
        sql = "SELECT pg_backend_pid(), pg_try_advisory_lock(%s)"
        ((other_pid, taken_twice),) = await other.fetch(sql, key, timeout_s=LEASE_S)
        ((pid_again, released),) = await life.fetch(
            "SELECT pg_backend_pid(), pg_advisory_unlock(%s)", key, timeout_s=LEASE_S
        )
    direct = taken and released and not taken_twice and pid == pid_again == life.backend and pid != other_pid
    if not direct:
        raise ConfigError(
            "the address in `store` leads to a connection pooler, where locks are shared between workers; "
            "set `store_direct` to an address of PostgreSQL itself"
        )


def _now() -> float:
    """A clock that also counts while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
