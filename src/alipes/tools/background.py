"""Processes that outlive the turn that began them, but neither their session nor us. They are named.

`open_app` enters it before the lobby serves and leaves it after; `session_left` is a hook.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from alipes.kernel.errors import ToolError
from alipes.runtime.orphans import Keeper
from alipes.runtime.process import open_child
from alipes.tools.background_job import Job, end
from alipes.tools.background_log import Log
from alipes.tools.output import Spill
from alipes.tools.pty_reading import Rendering

FAREWELL = 0.5
"""Seconds between SIGTERM and the end of whoever ignores it, when a session ends."""


class Background:
    """The living background processes of every session, and some that are over."""

    def __init__(
        self,
        spill: Spill,
        *,
        keeper: Keeper | None = None,
        mask: Callable[[str], str] = str,
        per_session: int = 16,
        in_all: int = 64,
        remembered: int = 64,
    ) -> None:
        """`mask` takes secrets out of what they write. So many may live; so many that are over are known."""
        self._spill, self._keeper, self._mask = spill, keeper, mask
        self._per_session, self._in_all, self._remembered = per_session, in_all, remembered
        self._group = asyncio.TaskGroup()
        self._jobs: dict[str, Job] = {}
        self._count = 0

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await end(self._jobs.values(), FAREWELL)
        finally:
            # the group may know of a cancellation; other errors of the body are not its to wrap
            cancelled = isinstance(error, asyncio.CancelledError)
            await self._group.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))

    async def start(
        self, session: str, command: str, *, cwd: str, env: Mapping[str, str], pty: bool = False
    ) -> Job:
        """Start it for `session`; returns once it said something, is over, or is silent for long enough.

        Raises `ToolError` when it cannot be started. Cancelled, it leaves nothing running.
        """
        self._refuse_too_many(session)
        rendering = Rendering() if pty else None
        self._count += 1
        job = Job(f"p{self._count}", session, command, Log(self._spill, self._mask, rendering))
        child = open_child(
            command, cwd=cwd, env=env, link="terminal" if pty else "pipes", keeper=self._keeper
        )
        job.task = self._group.create_task(job.run(child, rendering), name=f"background {job.name}")
        job.task.add_done_callback(lambda _: self._bury(job))
        self._jobs[job.name] = job
        try:
            await job.settle()
        except asyncio.CancelledError:
            self._jobs.pop(job.name, None)
            await end([job], 0)
            raise
        if job.trouble is not None:
            self._jobs.pop(job.name, None)
            raise ToolError(f"the command could not be started: {job.trouble}") from job.trouble
        return job

    def of(self, session: str) -> tuple[Job, ...]:
        """Those of `session`, oldest first, also those that are over."""
        return tuple(job for job in self._jobs.values() if job.session == session)

    def living(self, session: str) -> tuple[Job, ...]:
        """Those that run. A session that has some is not to be forgotten."""
        return tuple(job for job in self.of(session) if not job.over)

    def find(self, session: str, name: str) -> Job:
        """The one of that name. Raises `ToolError` that names those there are."""
        job = self._jobs.get(name)
        if job is not None and job.session == session:
            return job
        there = ", ".join(each.title for each in self.of(session))
        others = (
            f"there is {there}" if there else "there is none; they end with their conversation and with us"
        )
        raise ToolError(f"there is no background process {name!r}: {others}")

    def mention(self, session: str) -> str:
        """What runs, in a few words; empty when nothing does."""
        titles = ", ".join(job.title for job in self.living(session))
        return f"in the background: {titles}" if titles else ""

    def news(self, session: str) -> str:
        """Which are over since the model was last told, in a few words; tells each once."""
        over = [job for job in self.of(session) if job.over and not job.told]
        for job in over:
            job.told = True
        return "; ".join(f"{job.title} {job.status}" for job in over)

    async def end(self, session: str) -> None:
        """The session is over: so are its processes. Call it when no turn of it lives any more."""
        await end(self.living(session), FAREWELL)
        for job in self.of(session):
            del self._jobs[job.name]

    async def session_left(self, session: str) -> None:
        """The hook by which we hear of it."""
        await self.end(session)

    def _refuse_too_many(self, session: str) -> None:
        living = self.living(session)
        if len(living) >= self._per_session:
            raise ToolError(f"{len(living)} are running already; end one first: {self.mention(session)}")
        if sum(not job.over for job in self._jobs.values()) >= self._in_all:
            raise ToolError(f"{self._in_all} background processes of other conversations are running already")

    def _bury(self, job: Job) -> None:
        job.bury()
        over = [name for name, each in self._jobs.items() if each.over]
        for name in over[: -self._remembered]:
            del self._jobs[name]
