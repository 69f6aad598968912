"""What a failed call means for whoever listens to a messenger: told once, waited out. It judges nothing."""

import asyncio
import logging
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import Tell
from alipes.runtime.tasks import backoff

Job: TypeAlias = Callable[[], Awaitable[None]]


class Lanes:
    """All jobs are children of `tasks`, whose end waits for them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.tasks = tasks
        self._waiting: dict[str, deque[Job]] = {}

    def put(self, lane: str, job: Job) -> None:
        if lane in self._waiting:
            self._waiting[lane].append(job)
            return
        self._waiting[lane] = deque((job,))
        self.tasks.create_task(self._run(lane))

    async def _run(self, lane: str) -> None:
        jobs = self._waiting[lane]
        while jobs:
            await jobs.popleft()()
        del self._waiting[lane]


@contextmanager
def needed(messenger: str, library: str, extra: str) -> Iterator[None]:
    """Around the import. Raises ConfigError that says what to install."""
    try:
        with warnings.catch_warnings():
            # Parts of theirs use what Python is about to drop; none of that is ours to mend.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"{messenger} needs {library} ({missing}): pip install 'alipes[{extra}]'"
        ) from missing


log = logging.getLogger(__name__)

Judge: TypeAlias = Callable[[Exception, int], DeliveryError]
"""A failure in our words, and how many there were in a row. Raises where waiting does not help."""


class Trouble:
    """From the first failure to the next good answer, which `over` is called for."""

    def __init__(self, messenger: str, tell: Tell, judge: Judge) -> None:
        self._messenger, self._tell, self._judge = messenger, tell, judge
        self._count, self._cause = 0, ""

    def over(self) -> None:
        if self._cause:
            log.info("%s answers again", self._messenger)
        self._count, self._cause = 0, ""
        self._tell("ready", "")

    async def wait(self, theirs: Exception) -> None:
        """Tell why, and wait as long as it takes. Raises what `judge` does."""
        self._count += 1
        error = self._judge(theirs, self._count)
        self.told(str(error))
        await asyncio.sleep(backoff(self._count) if error.retry_after is None else error.retry_after)

    def told(self, why: str) -> None:
        if why != self._cause:
            log.warning("listening to %s: %s", self._messenger, why)
        self._cause = why
        self._tell("broken", why)


def unanswered(who: str, doing: str, why: str, *, sent: bool, late: bool) -> DeliveryError:
    """`uncertain` where it was sent: nobody said what became of it. `who` as within a sentence."""
    begins = f"{who[:1].upper()}{who[1:]}"
    if not sent:
        return DeliveryError(f"{begins} cannot be reached ({doing}: {why}).")
    if late:
        return DeliveryError(f"{begins} did not answer in time ({doing}).", uncertain=True)
    return DeliveryError(f"The connection to {who} broke while {doing} ({why}).", uncertain=True)


def brief(error: BaseException) -> str:
    """Its kind, and what it says if anything."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
