"""One background process: its life and how it ended. Who owns it is said elsewhere."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from types import TracebackType
from typing import Self

from alipes.kernel.errors import ToolError
from alipes.runtime.processes.child import Child, open_child
from alipes.runtime.processes.orphans import Keeper
from alipes.tools.shell.output import Log, Spill
from alipes.tools.shell.pty import Rendering

SETTLE, QUIET = 0.4, 0.1
"""Seconds to wait for a word, and of silence after which it counts as said."""
FLOOD, PAUSE = 4_000, 0.005
"""After so many bytes at once it has to wait so many seconds: what floods us must not take all our time."""


class Job:
    """A process, from the call that started it until it is forgotten."""

    def __init__(self, name: str, session: str, command: str, log: Log) -> None:
        self.name, self.session, self.command = name, session, command
        self.log = log
        self.child: Child | None = None
        """None until it is started."""
        self.trouble: OSError | None = None
        """Why it could not be."""
        self.told = False
        """The model knows how it ended."""
        self.task: asyncio.Task[None]
        self._began, self._ended = time.monotonic(), 0.0
        self._changed = asyncio.Event()
        self._ears: list[asyncio.Queue[bytes]] = []

    async def run(self, opening: AbstractAsyncContextManager[Child], rendering: Rendering | None) -> None:
        """Live it. Cancelling ends the process and all it begot; done, nothing of it is left."""
        try:
            async with opening as child:
                self.child = child
                while piece := await child.read():
                    await self.log.feed(piece)
                    if rendering:
                        await answer(child, rendering)
                    self._stir(piece)
                    if len(piece) > FLOOD:
                        await asyncio.sleep(PAUSE)
                await child.wait()
        except OSError as error:
            self.trouble = error
        finally:
            await self.log.finish()

    def bury(self) -> None:
        """Its task is done, in whichever way."""
        self._ended = time.monotonic()
        self._stir(b"")

    @property
    def over(self) -> bool:
        return self.task.done()

    @property
    def seconds(self) -> float:
        """How long it has lived."""
        return (self._ended or time.monotonic()) - self._began

    @property
    def status(self) -> str:
        """What it does or how it ended, as the end of a sentence that begins with its name."""
        if not self.over:
            return f"runs ({age(self.seconds)})"
        if self.child is None or self.child.returncode is None or self.task.cancelled():
            return f"was ended after {age(self.seconds)}"
        return f"is over after {age(self.seconds)}: {ending(self.child)}"

    @property
    def title(self) -> str:
        """Its name and the beginning of its command."""
        line = " ".join(self.command.split())
        return f"{self.name} ({line if len(line) <= 60 else line[:57] + '...'})"

    async def settle(self) -> None:
        """Return when it is over, or said something and fell silent, or said nothing for long enough."""
        clock = asyncio.get_running_loop().time
        last = until = clock() + SETTLE
        with suppress(TimeoutError):
            while not self.over:
                self._changed.clear()
                async with asyncio.timeout_at(min(until, last)):
                    await self._changed.wait()
                last = clock() + QUIET

    @contextmanager
    def overhear(self) -> Iterator[Callable[[], Awaitable[bytes]]]:
        """What gives the next raw piece it writes from now on; empty when it is over."""
        ear: asyncio.Queue[bytes] = asyncio.Queue()
        if self.over:
            ear.put_nowait(b"")
        self._ears.append(ear)
        try:
            yield ear.get
        finally:
            self._ears.remove(ear)

    def _stir(self, piece: bytes) -> None:
        self._changed.set()
        for ear in self._ears:
            ear.put_nowait(piece)


async def end(jobs: Iterable[Job], grace: float) -> None:
    """Ask them to end; after `grace` seconds end whoever is left. Returns when nothing of theirs lives.

    Cancelled meanwhile, it waits no longer: their own tasks see to the rest.
    """
    living = [job for job in jobs if not job.over]
    if not living:
        return
    try:
        if grace:
            for job in living:
                if job.child is not None:
                    job.child.family.tell(signal.SIGTERM)
            await asyncio.wait([job.task for job in living], timeout=grace)
    finally:
        for job in living:
            job.task.cancel()
    await asyncio.wait([job.task for job in living])


async def answer(child: Child, rendering: Rendering) -> None:
    """Send back what the program asked its terminal."""
    if rendering.replies:
        with suppress(OSError):
            await child.input.write(bytes(rendering.replies), 0)
        rendering.replies.clear()


def ending(child: Child) -> str:
    """How a child whose scope is left came to its end."""
    code = child.returncode
    assert code is not None
    said = f"exit code {code}" if code >= 0 else f"ended by {_signal(-code)}"
    if child.survivors:
        plural = "es" if child.survivors > 1 else ""
        return f"{said}; {child.survivors} process{plural} left in the background ended with it"
    return said


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def age(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


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
