"""The state of a cluster as its tables and locks say, and what a worker may do by its roles."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from alipes.kernel.errors import StoreError
from alipes.store.ports.cluster import ClusterStatus, WorkerStatus
from alipes.store.postgres.database import PostgresDatabase
from alipes.store.postgres.leaders import Leaders
from alipes.store.postgres.notifications import Notifications, ProbeFrame
from alipes.store.postgres.workers import LEASE_S, Workers, application_name
from alipes.store.sql.connection import Connection

LISTEN = "listen"
"""The role of workers that receive on messengers."""
PLATFORM = "platform "
"""How the names of such elections start."""
FULL_AFTER_S = 10.0
"""The cluster is full if a session has waited longer for a worker."""
FULL_CHECK_S = 1.0
"""How long one answer to `is_full` is used."""
FULL_MAX_AGE_S = 5.0
"""How long it is used at most while another is being made."""
FULL_CHECK_DELAY_S = 0.05

_WORKERS = """SELECT w.id, w.host, w.pid, w.roles, extract(epoch FROM w.started)::float8,
        (SELECT count(*) FROM leases l WHERE l.holder = w.id),
        %s - extract(epoch FROM w.lease_until - clock_timestamp())::float8
    FROM workers w WHERE w.state = 'alive' ORDER BY w.started, w.id"""
_TAKEOVERS = "SELECT cause, sum(sessions)::bigint FROM takeovers GROUP BY cause"
# an advisory lock shows its 64-bit key in two halves
_LEADERS = """SELECT n.name, max(a.application_name)
    FROM (SELECT name, hashtextextended('alipes leader ' || current_schema() || ' ' || name, 0) AS key
            FROM unnest(%s::text[]) AS names (name)) n
        LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND ((l.classid::bigint << 32) | l.objid::bigint) = n.key
        LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    GROUP BY n.name"""


class RoleLeaders(Leaders):
    """Elections in which a worker without the role `listen` never receives on a messenger."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers)
        self._may_listen = LISTEN in workers.roles
        self.names: set[str] = set()
        """All elections that this worker knows of."""

    async def lead(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self.names.add(name)
        if name.startswith(PLATFORM) and not self._may_listen:
            await asyncio.Event().wait()
        await super().lead(name, work)


class PostgresClusterView:
    def __init__(
        self,
        database: PostgresDatabase,
        workers: Workers,
        notifications: Notifications,
        leaders: RoleLeaders,
        *,
        per_person: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`per_person`: the limit whose waiting sessions do not count, since no worker may take them."""
        self._database, self._workers, self._notifications, self._leaders = database, workers, notifications, leaders
        self._per_person, self._clock = per_person, clock
        self.worker, self.roles, self.counts = workers.own_name, workers.roles, database.counts
        self._lag_s, self._probe_sent = 0.0, 0.0
        self._full, self._full_checked = False, -FULL_MAX_AGE_S

    async def status(self) -> ClusterStatus:
        self._send_probe()
        names = sorted(self._leaders.names)

        def read(db: Connection) -> tuple[list[Any], Any, list[Any], list[Any]]:
            raw = db.raw  # type: ignore[attr-defined]
            return (
                raw.execute(_WORKERS, (LEASE_S,)).fetchall(),
                raw.execute("SELECT * FROM count_waiting(%s)", (self._per_person,)).fetchone(),
                raw.execute(_TAKEOVERS).fetchall(),
                raw.execute(_LEADERS, (names,)).fetchall(),
            )

        workers, (waiting, oldest), takeovers, leaders = await self._database.read_long(read)
        return ClusterStatus(
            tuple(_to_worker(row) for row in workers),
            waiting,
            round(max(float(oldest), 0.0), 3),
            {"death": 0, "lease": 0, **dict(takeovers)},
            {name: (holder or "").removeprefix(application_name("")) for name, holder in leaders},
        )

    async def is_full(self) -> bool:
        age, now = self._clock() - self._full_checked, self._clock()
        if age >= FULL_CHECK_S:
            self._full_checked = now  # first: those who ask meanwhile use the last answer
            if self._full or age >= FULL_MAX_AGE_S:
                await asyncio.wait([self._check_full()])
            else:  # under load no message waits for the check, not even behind it: a later one learns the result
                asyncio.get_running_loop().call_later(FULL_CHECK_DELAY_S, self._check_later)
        return self._full

    def _check_later(self) -> None:
        with suppress(StoreError):  # it was closed meanwhile
            self._check_full()

    def _check_full(self) -> "asyncio.Future[Any]":
        checked = self._database.look("waiting", self._per_person)
        checked.add_done_callback(self._on_checked)
        return checked

    def _on_checked(self, checked: "asyncio.Future[Any]") -> None:
        if not checked.cancelled() and checked.exception() is None:
            _, oldest = checked.result()
            self._full = oldest > FULL_AFTER_S

    @property
    def bus_lag_s(self) -> float:
        """Of the last probe; longer if one is under way for longer."""
        return max(self._lag_s, self._clock() - self._probe_sent if self._probe_sent else 0.0)

    def _send_probe(self) -> None:
        if not self._probe_sent:
            self._probe_sent = self._clock()
            self._notifications.send(self._workers.own_name, ProbeFrame(self._probe_sent))

    def on_probe(self, frame: ProbeFrame) -> None:
        """Our own probe came back."""
        self._lag_s, self._probe_sent = self._clock() - frame.sent, 0.0


def _to_worker(row: Any) -> WorkerStatus:
    id, host, pid, roles, started, sessions, age = row
    return WorkerStatus(
        id, host, pid, tuple(filter(None, roles.split(","))), started, sessions, round(max(float(age), 0.0), 3)
    )
