"""Values of runs: what starts one, what it may cost, and what follows from its end."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.features.schedules.job import Job, JobRun
from alipes.kernel.messages import Message
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Inbound


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
