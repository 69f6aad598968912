"""Shared connection code of the messengers: ordered lanes, optional libraries, reconnecting, error texts."""

import asyncio
import logging
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from alipes.config.extras import explain_missing
from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.platform import OnStatus
from alipes.runtime.tasks import backoff

T = TypeVar("T")
Job: TypeAlias = Callable[[], Awaitable[None]]


class Lanes:
    """Runs jobs one after the other per lane. All are children of `tasks`, which waits for them."""

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
def optional_library(messenger: str, library: str, extra: str) -> Iterator[None]:
    """Wraps the import of a library. Raises ConfigError that says what to install."""
    try:
        with warnings.catch_warnings():
            # some libraries use features that Python is about to drop
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{messenger} needs {library} ({missing}). {explain_missing(extra)}") from missing


log = logging.getLogger(__name__)

ClassifyFailure: TypeAlias = Callable[[Exception, int], DeliveryError]
"""Turns a failure into a DeliveryError, given the number of failures in a row. Raises if waiting cannot help."""


class ConnectionRetry:
    """Counts failures since the last success; reports them and waits before the next attempt."""

    def __init__(self, messenger: str, on_status: OnStatus, classify: ClassifyFailure) -> None:
        self._messenger, self._on_status, self._classify = messenger, on_status, classify
        self._count, self._cause = 0, ""

    def succeeded(self) -> None:
        if self._cause:
            log.info("%s is reachable again", self._messenger)
        self._count, self._cause = 0, ""
        self._on_status("ready", "")

    async def wait(self, failure: Exception) -> None:
        """Report a failure and wait before the next attempt. Raises what `classify` raises."""
        self._count += 1
        error = self._classify(failure, self._count)
        self.report(str(error))
        await asyncio.sleep(backoff(self._count) if error.retry_after is None else error.retry_after)

    async def until_success(self, call: Callable[[], Awaitable[T]], *failures: type[Exception]) -> T:
        """Repeat a call until it does not raise one of `failures`."""
        while True:
            try:
                return await call()
            except failures as failure:
                await self.wait(failure)

    def report(self, why: str) -> None:
        if why != self._cause:
            log.warning("receiving from %s: %s", self._messenger, why)
        self._cause = why
        self._on_status("broken", why)


def no_answer_error(who: str, doing: str, why: str, *, sent: bool, late: bool) -> DeliveryError:
    """A call without an answer; `uncertain` if it was sent. `who` is written as inside a sentence."""
    begins = f"{who[:1].upper()}{who[1:]}"
    if not sent:
        return DeliveryError(f"{begins} cannot be reached ({doing}: {why}).")
    if late:
        return DeliveryError(f"{begins} did not answer in time ({doing}).", uncertain=True)
    return DeliveryError(f"The connection to {who} broke while {doing} ({why}).", uncertain=True)


def describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
