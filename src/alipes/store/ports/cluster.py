"""How the processes of a home work together: who gets work, events, and changes that are announced."""

from asyncio import Event
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.conversations import AdmittedTurn
from alipes.kernel.turns import Envelope, Op
from alipes.runtime.subscription import Subscription

OnOp: TypeAlias = Callable[[str, Op], None]


class Dispatcher(Protocol):
    """Routes work to the process that holds the session."""

    def wake_if_alone(self, key: str) -> bool:
        """Wake the session at once if no other process is running; else do nothing and return False."""

    async def wake(self, key: str, admitted: AdmittedTurn | None = None) -> None:
        """Work is queued for `key`: notify its holder, or take it ourselves if there is none. `admitted`: the work, if
        it was admitted just now."""

    async def signal(self, key: str, op: Op) -> None:
        """Send `op` to the session's holder in any process; stored before it is sent.

        If nobody holds the session and a turn is queued, the process that claims it finds `op` in the store;
        so claim first, then take the ops.
        """

    async def run(self, on_op: OnOp, busy: Collection[str] = ()) -> None:
        """Serve until cancelled: call `on_op(key, op)` for each wake-up (`Wake`) and signal meant for us.

        `busy`: the keys of the sessions that run here, as they change."""

    def on_idle(self) -> None:
        """A session of this process became idle."""


class EventBus(Protocol):
    """Events between the processes of one home: fast and lossy. Readers that miss some read the journal."""

    def publish(self, envelope: Envelope) -> None:
        """Pass it to every subscriber of its key; never waits, and drops events of slow readers."""

    def has_subscribers(self, key: str) -> bool:
        """True if someone subscribes to `key`, here or in another process."""

    def subscribe(self, key: str, into: Subscription | None = None) -> AbstractAsyncContextManager[Subscription]:
        """Events published under `key` from now on, by this process or by the session's holder. The iterator
        ends when the publishing process exits; read the store then.

        `into`: a subscription of the caller's own class, whose `put` is called for each envelope."""


class ScheduleChangeFeed(Protocol):
    """Says that scheduled jobs or their runs have changed, here or in another process."""

    @property
    def changed(self) -> Event:
        """Set when something has changed; cleared by the one who waits for it."""

    async def announce(self) -> None:
        """Wake the scheduler, in whichever process it runs."""


class Liveness(Protocol):
    """Which processes share the store, and whether this one still counts as alive."""

    own_name: str

    def is_alive(self, host: str | None) -> bool:
        """True if the process named `host` may still write."""

    def check_lease(self) -> None:
        """Call it before each act that others can see. Raises `LeaseLost` once others may have taken over."""


class LeaderElection(Protocol):
    """Elects one process for each name, such as the one that receives the messages of a platform."""

    async def lead(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Wait until this process leads `name`, then run `work` to its end. If it no longer leads, `work` is cancelled
        and the wait starts over."""


class PlatformStates(Protocol):
    """State files of messengers, stored for the process that receives next."""

    async def load(self, platform: str) -> dict[str, bytes]:
        """The files of a platform by name."""

    async def save(self, platform: str, name: str, data: bytes) -> None: ...


class WorkerStatus(Struct, frozen=True):
    """One worker of a cluster."""

    id: str
    host: str
    """The machine it runs on."""
    pid: int
    roles: tuple[str, ...]
    started: float
    """Unix time by the clock of the database."""
    sessions: int
    """Sessions that it holds."""
    lease_age_s: float
    """Seconds since its last renewal, by the clock of the database."""


class ClusterStatus(Struct, frozen=True):
    """A cluster at one moment."""

    workers: tuple[WorkerStatus, ...]
    waiting: int
    """Sessions that wait for a worker."""
    oldest_waiting_s: float
    """How long the first of them has waited; zero if none waits."""
    takeovers: Mapping[str, int]
    """Sessions that were freed from dead workers, by cause: `death` or `lease`."""
    leaders: Mapping[str, str]
    """The worker that leads, by name; empty: nobody does."""


class WriteCounts(Struct):
    """What one worker has written since its start."""

    commits: int = 0
    writes: int = 0
    """Writes in these commits."""
    seconds: float = 0.0
    """Time of these commits."""
    fenced: int = 0
    """Writes that were refused because another worker had taken over."""


class ClusterView(Protocol):
    """What operators see of a cluster, and whether it can take more work."""

    worker: str
    """The id of this worker."""
    roles: frozenset[str]
    """Of this worker."""
    counts: WriteCounts

    async def status(self) -> ClusterStatus: ...

    async def is_full(self) -> bool:
        """True if sessions wait for long: new work should come later. Cheap: it is asked for each message."""

    @property
    def bus_lag_s(self) -> float:
        """How long the last probe took from this worker through the server and back."""


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What a database server says about itself and about the store in it."""

    version: str
    supported: bool
    """True if it is new enough."""
    schema: int
    """The last migration; zero: there are no tables yet."""
    newest_schema: int
    """The last migration that this release knows."""
    needed_schema: int
    """If the store is newer: the migration that a release must know to use it all the same."""
    size: int
    """Bytes of all tables and their indexes."""
    pooled: bool
    """The address in `store` leads to a pooler."""
    direct_pooled: bool
    """So does that in `store_direct`."""
    standbys: tuple[str, ...]
    """How each standby follows: `sync`, `quorum`, `potential`, `async`, or `hidden` from this user."""
    synchronous_names: str
    synchronous_commit: str
    clock_difference_s: float
    """How far its clock is ahead of ours."""
    workers: tuple[str, ...]
    sessions: int
    turns: int
    messages: int
