"""One background process: its life and how it ended. Who owns it is said elsewhere."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress

from alipes.runtime.process import Child
from alipes.tools.background_log import Log
from alipes.tools.pty_reading import Rendering

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
