"""Scheduled jobs and their runs."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from alipes.features.schedules.job import FirePlan, Job, JobRun, Schedule, ScheduleState
from alipes.kernel.messages import Message
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Inbound
from alipes.store.ports.cluster import ScheduleChangeFeed


class NewRun(Struct, frozen=True):
    """A run to be inserted."""

    schedule: str
    job: Job
    fire_at: float
    start_at: float
    attempt: int = 1
    cause: str = ""
    given: str = ""
    untrusted: str = ""


PrepareRun: TypeAlias = Callable[[JobRun], Inbound | None]
"""The message that starts a run; None if it must wait. Raises `ConfigError` if it cannot run."""


class RunBudget(Struct, frozen=True):
    """What the runs of a job, or of all, may use from a moment on. Once it is used up, none is started."""

    since: float
    schedule: str
    """The job; empty: all of them."""
    dollars: float | None
    tokens: int | None
    """If given, it counts instead of `dollars`."""
    reason: str
    """Why a run is left out then."""


RunBudgets: TypeAlias = Callable[[JobRun], tuple[RunBudget, ...]]
"""The budgets that a run counts for."""


class FinishedRun(Struct, frozen=True):
    """An ended run that is not settled yet."""

    run: JobRun
    answer: str
    """The last message of the model."""
    messages: tuple[Message, ...] = ()
    """The messages of the turn."""
    sources: str = ""
    """The text of strangers that it has read, if any."""


class Settlement(Struct, frozen=True):
    """What follows from the end of a run; stored in one transaction."""

    outbounds: tuple[Outbound, ...] = ()
    notices: tuple[Inbound, ...] = ()
    """Messages for conversations that are not chats."""
    posts: tuple[tuple[str, str, str], ...] = ()
    """Id, URL and body."""
    retry: NewRun | None = None
    answer: str = ""
    """For the jobs that run after this one; empty if it failed."""
    untrusted: str = ""
    """Whose text the answer may contain."""


class QueuedPost(Struct, frozen=True):
    number: int
    id: str
    url: str
    body: str
    attempts: int


class ScheduleRunStore(Protocol):
    """The runs of all jobs."""

    @property
    def changes(self) -> ScheduleChangeFeed: ...

    def with_clock(self, clock: Callable[[], float]) -> "ScheduleRunStore":
        """The same runs; what is written from now on has the time of `clock`."""

    async def add(self, run: NewRun) -> int:
        """Start a job now or later, whatever its time; returns the number of the run, or 0 if there is such a run."""

    async def has_waiting(self, now: float) -> bool:
        """True if a run waits to be started."""

    async def list_waiting_with_skills(self, now: float) -> tuple[JobRun, ...]:
        """Waiting runs whose skills must be loaded before they start, in the order in which they start."""

    async def start_waiting(
        self, now: float, limit: int, prepare: PrepareRun, budgets: RunBudgets, *, only: int = 0
    ) -> tuple[str, ...]:
        """Admit the turns of waiting runs, of at most `limit` at a time; returns their session keys. A run for which
        `prepare` raises `ConfigError` has failed; one of which a budget is used up is left out. `only`: the number of
        a run."""

    async def add_detail(self, number: int, text: str) -> None:
        """Add a sentence to the detail of a run."""

    async def list_finished(self) -> tuple[FinishedRun, ...]:
        """Ended runs that are not settled yet, oldest first."""

    async def settle(self, run: JobRun, settlement: Settlement) -> tuple[str, ...] | None:
        """Store what follows from the end of a run, once; returns the session keys that got a message, or None if
        another process settled it."""

    async def latest(self, schedule: str = "", limit: int = 20) -> tuple[JobRun, ...]:
        """The latest runs, of one job by its id or of all."""

    async def find(self, number: int) -> JobRun | None: ...

    async def last_runs(self) -> dict[str, JobRun]:
        """By schedule, its latest run."""

    async def running(self, schedule: str = "") -> tuple[JobRun, ...]: ...

    async def due_posts(self, now: float) -> tuple[QueuedPost, ...]: ...

    async def finish_post(self, post: QueuedPost, why: str = "", due: float | None = None) -> None:
        """It was sent; or, with `why`, it failed and is sent again at `due`, or never."""


class ScheduleStore(Protocol):
    """The jobs of a home."""

    @property
    def changes(self) -> ScheduleChangeFeed: ...

    def with_clock(self, clock: Callable[[], float]) -> "ScheduleStore":
        """The same jobs; what is written from now on has the time of `clock`."""

    async def add(self, job: Job, due: float | None, *, state: ScheduleState = "on", id: str = "") -> Schedule | None:
        """None if the name is already in use."""

    async def find(self, name: str) -> Schedule | None:
        """By name or id."""

    async def all(self) -> tuple[Schedule, ...]: ...

    async def count(self) -> int:
        """Jobs that are on."""

    async def list_events(self, kind: str, name: str = "") -> tuple[Schedule, ...]:
        """The jobs that an event of this kind starts, by name; `name`: of the webhook or job."""

    async def update(self, id: str, job: Job, due: float | None, state: ScheduleState) -> bool:
        """False if it was removed meanwhile, or if its new name is in use."""

    async def remove(self, id: str) -> bool:
        """Remove the job; a running run ends as usual. False if there is none."""

    async def set_seen(self, id: str, seen: str) -> None: ...

    async def next_wake(self, now: float) -> float | None:
        """When the scheduler has something to do next: a job, a retry, or an answer to send again."""

    async def has_due(self, now: float) -> bool:
        """True if the time of a job has come."""

    async def fire_due(self, now: float, plan: Callable[[Schedule], FirePlan]) -> int:
        """Make runs of the jobs whose time has come, and set their next time. Returns how many jobs there were."""

    async def fire_event(self, schedule: Schedule, run: NewRun, seen: str = "", *, delivery: str = "") -> bool:
        """Make a run for an event, and remember what was seen. False if the event, named by the cause, has started
        the job already, or the job was changed meanwhile. `delivery`: its id, which is remembered longer than runs
        are."""
