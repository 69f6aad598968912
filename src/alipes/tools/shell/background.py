"""Background processes of sessions: start, output, limits, stop."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from alipes.kernel.errors import AlipesError, StoreError, ToolError
from alipes.runtime.processes.child import Child
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope, HostBackend
from alipes.runtime.tasks import KeptError
from alipes.tools.shell.output import ProcessLog, SpillFolder, open_emulator

if TYPE_CHECKING:
    from alipes.store.sql.background import BackgroundProcessStore
    from alipes.tools.shell.pty import TerminalEmulator

log = logging.getLogger(__name__)
T = TypeVar("T")
SETTLE_S, QUIET_S = 0.4, 0.1
"""Seconds to wait for first output, and of silence after which it counts as complete."""
FLOOD_BYTES, FLOOD_PAUSE_S = 4_000, 0.005
"""After reading this many bytes at once, pause this many seconds, to leave time for other tasks."""
STOP_GRACE_S = 0.5
"""Seconds between SIGTERM and SIGKILL when a session ends."""


class BackgroundProcess:
    def __init__(self, name: str, scope: CommandScope, command: str, log: ProcessLog) -> None:
        self.name, self.scope, self.session, self.command = name, scope, scope.session, command
        self.outside = scope.outside
        """It does not run in the sandbox."""
        self.log = log
        self.child: Child | None = None
        """None until it has started."""
        self.start_error: OSError | None = None
        self.is_recorded = False
        self.is_reported = False
        """The model has been informed how it ended."""
        self.task: asyncio.Task[None]
        self.started = time.time()
        self._began, self._ended = time.monotonic(), 0.0
        self._changed = asyncio.Event()
        self._subscribers: list[asyncio.Queue[bytes]] = []
        self._watchers: list[asyncio.Event] = []

    async def run(self, opening: AbstractAsyncContextManager[Child], emulator: "TerminalEmulator | None") -> None:
        """Read its output until it exits. Cancelling kills it and all its descendants."""
        try:
            async with opening as child:
                await self.read_output(child, emulator)
        except OSError as error:
            self.start_error = error
        finally:
            await self.log.finish()

    async def read_output(self, child: Child, emulator: "TerminalEmulator | None" = None) -> None:
        """Read the output of a child until it exits."""
        self.child = child
        while piece := await child.read():
            await self.log.feed(piece)
            if emulator:
                await send_replies(child, emulator)
            self._notify(piece)
            if len(piece) > FLOOD_BYTES:
                await asyncio.sleep(FLOOD_PAUSE_S)
        await child.wait()

    def mark_finished(self) -> None:
        """Record the end time and wake everybody who waits. Call it when the task is done."""
        self._ended = time.monotonic()
        self._notify(b"")

    @property
    def is_finished(self) -> bool:
        return self.task.done()

    @property
    def seconds(self) -> float:
        """How long it ran, or has been running."""
        return (self._ended or time.monotonic()) - self._began

    @property
    def status(self) -> str:
        """Its state, as the predicate of a sentence that starts with its name."""
        if not self.is_finished:
            return f"is running ({format_age(self.seconds)})"
        if self.child is None or self.child.returncode is None or self.task.cancelled():
            return f"was killed after {format_age(self.seconds)}"
        return f"ended after {format_age(self.seconds)}: {describe_exit(self.child)}"

    @property
    def title(self) -> str:
        """Its name and the start of its command."""
        line = " ".join(self.command.split())
        return f"{self.name} ({line if len(line) <= 60 else line[:57] + '...'})"

    async def wait_for_output(self) -> None:
        """Return when it has ended, paused after output, or printed nothing for `SETTLE_S`."""
        clock = asyncio.get_running_loop().time
        last = until = clock() + SETTLE_S
        with suppress(TimeoutError):
            while not self.is_finished:
                self._changed.clear()
                async with asyncio.timeout_at(min(until, last)):
                    await self._changed.wait()
                last = clock() + QUIET_S

    @contextmanager
    def subscribe(self) -> Iterator[Callable[[], Awaitable[bytes]]]:
        """Yield a function that returns the next piece of output; empty at the end."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if self.is_finished:
            queue.put_nowait(b"")
        self._subscribers.append(queue)
        try:
            yield queue.get
        finally:
            self._subscribers.remove(queue)

    @contextmanager
    def watch(self, changed: asyncio.Event) -> Iterator[None]:
        """Set `changed` whenever it has printed something or ended, while entered."""
        self._watchers.append(changed)
        try:
            yield
        finally:
            self._watchers.remove(changed)

    def _notify(self, piece: bytes) -> None:
        for event in (self._changed, *self._watchers):
            event.set()
        for queue in self._subscribers:
            queue.put_nowait(piece)


class MovedToBackground(Exception):
    """A person sent the command that is being read to the background."""


class ForegroundCommand:
    """A command that a call waits for, until a person sends it to the background."""

    def __init__(self, scope: CommandScope, command: str) -> None:
        self.scope, self.command = scope, command
        self.process: BackgroundProcess | None = None
        """Set once it was sent to the background."""
        self.changed = asyncio.Event()
        """Set once it has ended, or its output so far is in the log of the process."""
        self._requested = False
        self._reading: asyncio.Timeout | None = None

    def move(self) -> None:
        self._requested = True
        if self._reading is not None:
            self._reading.reschedule(0)

    async def read(self, child: Child) -> bytes:
        """The next piece of output. Raises MovedToBackground."""
        if self._requested:
            raise MovedToBackground
        try:
            async with asyncio.timeout(None) as self._reading:
                return await child.read()
        except TimeoutError:
            raise MovedToBackground from None
        finally:
            self._reading = None


async def stop_processes(processes: Iterable[BackgroundProcess], grace: float) -> None:
    """Send SIGTERM, and kill those that still run after `grace` seconds. Returns when all have ended.

    Cancelled, it does not wait for the grace time.
    """
    running = [process for process in processes if not process.is_finished]
    if not running:
        return
    try:
        if grace:
            for process in running:
                if process.child is not None:
                    process.child.tree.tell(signal.SIGTERM)
            await asyncio.wait([process.task for process in running], timeout=grace)
    finally:
        for process in running:
            process.task.cancel()
    await asyncio.wait([process.task for process in running])


async def send_replies(child: Child, emulator: "TerminalEmulator") -> None:
    """Send the replies of the emulated terminal to the program."""
    if emulator.replies:
        with suppress(OSError):
            await child.input.write(bytes(emulator.replies), 0)
        emulator.replies.clear()


def describe_exit(child: Child) -> str:
    code = child.returncode
    assert code is not None
    if child.was_ended:
        return f"{child.refusal} The command was stopped."
    status = f"exit code {code}"
    if code < 0:
        known = -code in list(signal.Signals)
        status = f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
    if child.survivors:
        plural = "es" if child.survivors > 1 else ""
        return f"{status}; {child.survivors} leftover child process{plural} killed"
    return status


def format_age(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


class BackgroundProcesses:
    """The running background processes of all sessions, and recently finished ones."""

    def __init__(
        self,
        spill: SpillFolder,
        *,
        backend: CommandBackend | None = None,
        records: "BackgroundProcessStore | None" = None,
        max_per_session: int = 16,
        max_total: int = 64,
        max_finished: int = 64,
    ) -> None:
        """`records`: stores which ones run, for the conversation after a death of this process. The limits are for
        running processes, and for finished ones that are remembered."""
        self._records, self._closing = records, False
        self._spill, self._backend = spill, backend or HostBackend()
        self._max_per_session, self._max_total, self._max_finished = max_per_session, max_total, max_finished
        self._group = asyncio.TaskGroup()
        self._processes: dict[str, BackgroundProcess] = {}
        self._count = 0
        self._watchers: list[asyncio.Event] = []
        self._foreground: list[ForegroundCommand] = []
        self._end_hooks: list[Callable[[BackgroundProcess], Coroutine[Any, Any, None]]] = []

    def add_end_hook(self, hook: Callable[[BackgroundProcess], Coroutine[Any, Any, None]]) -> None:
        """Call `hook` with each process that has ended."""
        self._end_hooks.append(hook)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._closing = True  # running commands are lost for their conversations: the records stay
        try:
            await stop_processes(self._processes.values(), STOP_GRACE_S)
        finally:
            # only a cancellation is passed on: the group would wrap other errors of the body
            cancelled = isinstance(error[1], asyncio.CancelledError)
            await self._group.__aexit__(*(error if cancelled else (None, None, None)))

    async def start(
        self, scope: CommandScope, command: str, *, cwd: str, env: Mapping[str, str], pty: bool = False
    ) -> BackgroundProcess:
        """Start a command for a conversation; returns after its first output, its end, or a short wait.

        Raises `ToolError` if it cannot be started. Cancelled, it leaves nothing running.
        """
        self._check_limits(scope.session)
        emulator = open_emulator() if pty else None
        self._count += 1
        process = BackgroundProcess(f"p{self._count}", scope, command, ProcessLog(self._spill, emulator))
        child = self._backend.open(command, scope, cwd=cwd, env=env, link="terminal" if pty else "pipes")
        process.task = self._group.create_task(process.run(child, emulator), name=f"background {process.name}")
        process.task.add_done_callback(lambda _: self._on_finished(process))
        self._processes[process.name] = process
        self._notify()
        try:
            await process.wait_for_output()
        except asyncio.CancelledError:
            self._processes.pop(process.name, None)
            await stop_processes([process], 0)
            raise
        if process.start_error is not None:
            self._processes.pop(process.name, None)
            raise ToolError(f"the command could not be started: {process.start_error}") from process.start_error
        await self._record(process)
        return process

    @contextmanager
    def foreground(self, scope: CommandScope, command: str) -> Iterator[ForegroundCommand]:
        """A command that can be sent to the background, while entered."""
        running = ForegroundCommand(scope, command)
        self._foreground.append(running)
        try:
            yield running
        finally:
            self._foreground.remove(running)

    def move_to_background(self, session: str) -> bool:
        """Send the commands to the background that calls of the conversation wait for; False if there are none.

        Raises `ToolError` at the limit."""
        found = [each for each in self._foreground if each.scope.session == session]
        if found:
            self._check_limits(session)
        for each in found:
            each.move()
        return bool(found)

    def run_task(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T | BaseException]":
        """Run the work of a command that may become a background process; its result, or what it raised: a command
        that fails must not end the others."""

        async def settle() -> T | BaseException:
            kept = KeptError()
            with kept:
                return await work
            assert kept.error is not None
            if not isinstance(kept.error, OSError | AlipesError):
                log.error("%s failed", name, exc_info=kept.error)
            return kept.error

        return self._group.create_task(settle(), name=name)

    async def adopt(self, running: ForegroundCommand, output: bytes) -> BackgroundProcess:
        """Make a background process of a command that the current task reads."""
        task = asyncio.current_task()
        assert task is not None
        self._count += 1
        process = BackgroundProcess(f"p{self._count}", running.scope, running.command, ProcessLog(self._spill, None))
        process.task = task
        task.add_done_callback(lambda _: self._on_finished(process))
        self._processes[process.name] = running.process = process
        await process.log.feed(output)
        self._notify()
        await self._record(process)
        return process

    async def _record(self, process: BackgroundProcess) -> None:
        if self._records is not None and not process.is_finished:
            process.is_recorded = True
            await self._records.add(process.session, process.name, self._spill.mask(process.command))

    async def _remove_record(self, process: BackgroundProcess) -> None:
        assert self._records is not None
        with suppress(StoreError):  # the next use of the store reports it
            await self._records.remove(process.name)

    def processes_of(self, session: str) -> tuple[BackgroundProcess, ...]:
        """Processes of `session`, oldest first, including finished ones."""
        return tuple(process for process in self._processes.values() if process.session == session)

    def list_running(self) -> list[BackgroundProcess]:
        """The running processes of all conversations."""
        return [process for process in self._processes.values() if not process.is_finished]

    def running(self, session: str) -> tuple[BackgroundProcess, ...]:
        """Running processes of `session`. A session that has some stays in memory."""
        return tuple(process for process in self.processes_of(session) if not process.is_finished)

    @contextmanager
    def watch(self, changed: asyncio.Event) -> Iterator[None]:
        """Set `changed` whenever a process starts or ends, while entered."""
        self._watchers.append(changed)
        try:
            yield
        finally:
            self._watchers.remove(changed)

    def find(self, session: str, name: str) -> BackgroundProcess:
        """The process of that name. Raises `ToolError` that lists the existing ones."""
        process = self._processes.get(name)
        if process is not None and process.session == session:
            return process
        titles = ", ".join(each.title for each in self.processes_of(session))
        existing = f"existing: {titles}" if titles else "none exist; they end with the conversation"
        raise ToolError(f"no background process {name!r}; {existing}")

    def runs_outside(self, session: str, name: str) -> bool:
        """True if the process of that name does not run in the sandbox."""
        process = self._processes.get(name)
        return process is not None and process.session == session and process.outside

    def describe_running(self, session: str) -> str:
        """Short list of the running processes; empty if there are none."""
        titles = ", ".join(process.title for process in self.running(session))
        return f"in the background: {titles}" if titles else ""

    def report_finished(self, session: str) -> str:
        """Processes that ended since the last call; each is reported once."""
        finished = [p for p in self.processes_of(session) if p.is_finished and not p.is_reported]
        for process in finished:
            process.is_reported = True
        return "; ".join(f"{process.title} {process.status}" for process in finished)

    async def session_left(self, session: str) -> None:
        """Hook: stop the processes of a session that has ended. Call it when no turn of it is running."""
        await stop_processes(self.running(session), STOP_GRACE_S)
        for process in self.processes_of(session):
            del self._processes[process.name]

    def _check_limits(self, session: str) -> None:
        running = self.running(session)
        if len(running) >= self._max_per_session:
            titles = self.describe_running(session)
            raise ToolError(f"{len(running)} background processes already: kill one first ({titles})")
        if sum(not process.is_finished for process in self._processes.values()) >= self._max_total:
            raise ToolError(f"{self._max_total} background processes of all conversations are running")

    def _notify(self) -> None:
        for changed in self._watchers:
            changed.set()

    def _on_finished(self, process: BackgroundProcess) -> None:
        process.mark_finished()
        self._notify()
        for hook in self._end_hooks:
            self._group.create_task(hook(process), name=f"end of {process.name}")
        if process.is_recorded and not self._closing:
            self._group.create_task(self._remove_record(process), name=f"end of {process.name}")
        finished = [name for name, each in self._processes.items() if each.is_finished]
        for name in finished[: -self._max_finished]:
            del self._processes[name]
