"""Dispatch in a cluster: work goes to the worker that holds the session; free sessions are taken in batches."""

import asyncio
import logging
from collections.abc import Callable, Collection

from alipes.kernel.conversations import AdmittedTurn
from alipes.kernel.errors import SessionHeld
from alipes.kernel.turns import Op, Wake
from alipes.store.postgres.bus import PostgresBus
from alipes.store.postgres.capacity import BATCH, MAX_BATCH, WORK, Capacity
from alipes.store.postgres.direct import ConnectionLost, DirectConnection, open_direct
from alipes.store.postgres.notifications import Frame, Notifications, WorkFrame
from alipes.store.postgres.turns import PostgresTurns
from alipes.store.postgres.workers import RECONNECT_S, Workers, application_name
from alipes.store.sqlite.peers import OpsFrame, SchedulesFrame, Spawn, WakeFrame

log = logging.getLogger(__name__)

POLL_S = 1.0
"""Interval of the safety net: notifications may be lost."""
TAKE_TIMEOUT_S = 5.0
OnOp = Callable[[str, Op], None]
_HELD_WITH_WORK = """SELECT l.key FROM leases l WHERE l.holder = %s AND EXISTS (
    SELECT 1 FROM turns t WHERE t.key = l.key AND t.ending IS NULL AND t.held = 0)
    AND NOT is_parked(l.key, extract(epoch FROM clock_timestamp())::double precision)"""


class PostgresDispatcher:
    """Routes work to the worker that holds the session, and takes sessions that nobody holds."""

    def __init__(
        self, turns: PostgresTurns, workers: Workers, notifications: Notifications, spawn: Spawn, capacity: Capacity
    ) -> None:
        self._turns, self._workers, self._notifications, self._spawn = turns, workers, notifications, spawn
        self._capacity = capacity
        self._on_op: OnOp | None = None
        self._early: list[tuple[str, Op]] = []
        self._early_ops: list[str] = []
        self._look = asyncio.Event()
        """Set if a session may be waiting."""
        self._unserved: set[str] = set()
        """Sessions with work that this worker held and did not serve when it last looked."""

    def wake_if_alone(self, key: str) -> bool:
        alone = not self._workers.list_peers() and self._capacity.may_start(key)
        if alone:
            self._deliver(key, Wake())
        return alone

    async def wake(self, key: str, admitted: AdmittedTurn | None = None) -> None:
        """Work is queued for `key`: notify its holder, or take it here, or tell the workers that it waits."""
        holder = await self._turns.holder(key) if admitted is None else admitted.holder
        if not self._workers.is_alive(holder):
            holder = None
        if holder == self._workers.own_name or (holder is None and self._capacity.may_start(key)):
            self._deliver(key, Wake())
        elif holder is not None:
            self._notifications.send(holder, WakeFrame(key))
        else:
            self._announce_work()

    def _announce_work(self) -> None:
        self._look.set()
        for peer in self._workers.list_peers():
            if WORK in peer.roles:
                self._notifications.send(peer.host, WorkFrame())

    async def signal(self, key: str, op: Op) -> None:
        holder, waits = await self._turns.signal(key, op)
        if holder is not None and holder != self._workers.own_name:
            return  # it was notified by the same transaction
        if holder is None and waits:
            await self.wake(key)
        elif self._on_op is not None:
            await self._deliver_stored_ops(key)

    async def run(self, on_op: OnOp, busy: Collection[str] = ()) -> None:
        self._on_op, self._capacity.busy, self._capacity.serves = on_op, busy, True
        try:
            early, self._early = self._early, []
            for key, op in early:
                on_op(key, op)
            for key in self._early_ops:
                self._spawn(self._deliver_stored_ops(key))
            self._early_ops.clear()
            await self._take_until_cancelled()
        finally:
            self._on_op, self._capacity.busy, self._capacity.serves = None, (), False

    async def _take_until_cancelled(self) -> None:
        while True:
            try:
                name = application_name(self._workers.own_name)
                async with open_direct(self._workers.url, name) as connection:
                    await connection.fetch("SET synchronous_commit = off", timeout_s=TAKE_TIMEOUT_S)
                    while True:
                        polls = not await self._wait_for_work()
                        await self._take_all(connection)
                        if polls:
                            await self._wake_unserved(connection)
            except ConnectionLost as error:
                log.info("sessions are taken on another connection: %s", error)
                await asyncio.sleep(RECONNECT_S)

    async def _wait_for_work(self) -> bool:
        """False if nothing was announced for so long that we look anyway."""
        try:
            async with asyncio.timeout(POLL_S):
                return await self._look.wait()
        except TimeoutError:
            return False
        finally:
            self._look.clear()

    async def _take_all(self, connection: DirectConnection) -> None:
        """Take waiting sessions while there is room, and look for ops whose notification was lost."""
        batch = BATCH
        while room := self._capacity.room(batch):
            self._workers.check_lease()
            sql = "SELECT take_sessions(%s, %s, %s)"
            values = (self._workers.own_name, room, self._capacity.per_person)
            taken = await connection.fetch(sql, *values, timeout_s=TAKE_TIMEOUT_S)
            for (key,) in taken:
                self._deliver(key, Wake())
            if len(taken) < room:
                break
            batch = min(batch * 2, MAX_BATCH)
        sql = "SELECT DISTINCT key FROM pending_ops JOIN leases USING (key) WHERE holder = %s"
        for (key,) in await connection.fetch(sql, self._workers.own_name, timeout_s=TAKE_TIMEOUT_S):
            await self._deliver_stored_ops(key)

    async def _wake_unserved(self, connection: DirectConnection) -> None:
        """Wake the sessions that this worker holds and does not serve: their wake-up was lost, or the caller that
        admitted the message was cancelled before it. Those found for the first time may be about to start."""
        found = await connection.fetch(_HELD_WITH_WORK, self._workers.own_name, timeout_s=TAKE_TIMEOUT_S)
        unserved = {key for (key,) in found if key not in self._capacity.busy}
        for key in unserved & self._unserved:
            self._deliver(key, Wake())
        self._unserved = unserved

    def on_idle(self) -> None:
        """A session here became idle: take more if we were full."""
        if self._capacity.was_full:
            self._look.set()

    def look(self) -> None:
        """Look for sessions that wait, now."""
        self._look.set()

    def handle(self, frame: Frame) -> None:
        """Another worker sent this."""
        match frame:
            case WakeFrame(key):
                self._deliver(key, Wake())
            case OpsFrame(key):
                if self._on_op is None:
                    self._early_ops.append(key)
                else:
                    self._spawn(self._deliver_stored_ops(key))
            case WorkFrame():
                self._look.set()

    async def _deliver_stored_ops(self, key: str) -> None:
        try:
            ops = await self._turns.take_ops(key)
        except SessionHeld as held:  # another worker claimed it meanwhile
            self._notifications.send(held.host, OpsFrame(key))
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


class PostgresScheduleChanges:
    def __init__(self, bus: PostgresBus, notifications: Notifications) -> None:
        self._bus, self._notifications = bus, notifications
        self.changed = asyncio.Event()

    async def announce(self) -> None:
        self.changed.set()
        for host in self._bus.list_hosts():
            self._notifications.send(host, SchedulesFrame())
