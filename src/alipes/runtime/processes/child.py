"""Child processes that end with their scope, including all descendants.

`docs/adr/0008-child-processes-end-with-their-scope.md` explains how, and what is guaranteed on which system.
"""

import asyncio
import errno
import logging
import os
import shutil
import signal
import subprocess
import termios
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from itertools import count
from typing import Literal, NamedTuple, Protocol, TypeAlias

from alipes.runtime.processes import process_tree

COLUMNS, ROWS = 80, 24
END_OF_FILE = b"\x04"
_TAKE_TERMINAL = ': <>"$0"; exec "$@"'
"""A session leader gets the first terminal it opens as controlling terminal, so that ^C and /dev/tty work."""

Link: TypeAlias = Literal["output", "pipes", "streams", "terminal"]
"""Read the output only; also write the input; also read the standard error apart from the output; or all of it
through a pseudo terminal."""


class StreamEnds(NamedTuple):
    """Descriptors of both sides; -1 if there is none."""

    output: int
    """Our end to read from; non-blocking."""
    input: int
    """Our end to write to; non-blocking."""
    stdin: int
    stdout: int
    errors: int = -1
    """Our end to read the standard error from, if it is apart from the output; non-blocking."""
    stderr: int = -1


@contextmanager
def open_stream_ends(link: Link) -> Iterator[StreamEnds]:
    """Open both sides. The child's ends are closed at the end of the block, ours only if it fails."""
    with ExitStack() as theirs, ExitStack() as ours:
        speaking, stdin = -1, subprocess.DEVNULL
        output, stdout = os.openpty() if link == "terminal" else os.pipe()
        ours.callback(os.close, output)
        theirs.callback(os.close, stdout)
        if link == "terminal":
            termios.tcsetwinsize(stdout, (ROWS, COLUMNS))
            speaking, stdin = os.dup(output), stdout
            ours.callback(os.close, speaking)
        elif link in ("pipes", "streams"):
            stdin, speaking = os.pipe()
            theirs.callback(os.close, stdin)
            ours.callback(os.close, speaking)
            os.set_blocking(speaking, False)
        os.set_blocking(output, False)
        errors, stderr = -1, stdout
        if link == "streams":
            errors, stderr = os.pipe()
            ours.callback(os.close, errors)
            theirs.callback(os.close, stderr)
            os.set_blocking(errors, False)
        yield StreamEnds(output, speaking, stdin, stdout, errors, stderr)
        ours.pop_all()


class ChildInput:
    """Input of a child process. One writer at a time."""

    def __init__(self, handle: int, *, terminal: bool) -> None:
        self.terminal = terminal
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._within_line = False

    @property
    def closed(self) -> bool:
        return self._handle < 0

    async def write(self, data: bytes, seconds: float) -> int:
        """Write for up to `seconds`; returns the bytes written. Raises OSError if the input is closed."""
        done = 0
        try:
            async with asyncio.timeout(seconds):
                while done < len(data):
                    try:
                        done += os.write(self._handle, data[done : done + 65536])
                    except BlockingIOError:
                        await self._room()
        except TimeoutError:
            pass
        if done:
            self._within_line = data[done - 1] not in b"\r\n\x04"
        return done

    async def finish(self) -> None:
        """Send end of file after everything written so far."""
        if not self.terminal:
            self.close()
        elif not self.closed:  # in the middle of a line, the first one only submits the line
            await self.write(END_OF_FILE * (2 if self._within_line else 1), 1.0)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    async def _room(self) -> None:
        free = asyncio.Event()
        self._loop.add_writer(self._handle, free.set)
        try:
            await free.wait()
        finally:
            self._loop.remove_writer(self._handle)


log = logging.getLogger(__name__)
TERM_GRACE_S = 0.03
"""Seconds between SIGTERM and SIGKILL: enough to remove a lock file, short enough to feel immediate."""
REFUSAL_GRACE_S = 1.0
"""Seconds in which a command may end by itself after a person said no to a connection."""
KILL_TIMEOUT_S = 5.0
"""Seconds to wait for killed processes; only one stuck in the kernel takes longer."""
CHUNK_BYTES = 65536
_POLL = 0.01
_BUSY, _IDLE = 0.05, 2.0
_MIN_ATTEMPTS = 100
"""Minimum number of attempts: after a suspended machine resumes, the timeout has already passed."""


class ReapedProcess(Protocol):
    """What `Child` needs of a `subprocess.Popen`."""

    returncode: int | None

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...


class Child:
    """A running child process, started and ended by `open_child`."""

    def __init__(self, popen: ReapedProcess, ends: StreamEnds, tree: process_tree.ProcessTree) -> None:
        self.pid = popen.pid
        self.tree = tree
        self.input = ChildInput(ends.input, terminal=ends.stdin == ends.stdout)
        """Closed from the start if it has no input."""
        self.returncode: int | None = None
        """Negative: the signal that ended it. None while it is running."""
        self.survivors = 0
        """Processes of its tree that were still alive when the scope was left, and were ended then."""
        self.ends_together = False
        """True if the kernel kills all its processes when it exits: it has a process namespace of its own."""
        self.is_waiting: Callable[[], bool] = lambda: False
        """Whether it waits for a person's answer, which does not count as time."""
        self.notes: list[str] = []
        """What the model must know besides the output, complete when the scope was left."""
        self.refusal = ""
        """What a person said no to while it ran, as a sentence."""
        self.was_ended = False
        """It did not end by itself after that."""
        self._ends_when_refused = False
        self._popen, self._output, self._errors = popen, ends.output, ends.errors
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._readable: asyncio.Future[None] | None = None
        self._rest = 2 * CHUNK_BYTES if self.input.terminal else CHUNK_BYTES
        self._handle = os.pidfd_open(self.pid) if isinstance(tree, process_tree.LinuxProcessTree) else -1
        if self._handle >= 0:
            self._loop.add_reader(self._handle, self._check_exit)
        else:
            self._check_exit()
        self._timer = self._loop.call_later(_BUSY, self._reap_periodically, _BUSY)
        self._closed = False

    def end_when_refused(self) -> None:
        """From now on `refuse` ends it."""
        self._ends_when_refused = True

    def refuse(self, sentence: str) -> None:
        """A person said no to what it wants to do: it has a moment to say so itself, then its tree is ended."""
        if self._ends_when_refused and not self.refusal:
            self.refusal = sentence
            self._loop.call_later(REFUSAL_GRACE_S, self._end_tree)

    def _end_tree(self) -> None:
        if not self._closed and self.returncode is None:
            self.was_ended = True
            self.tree.tell(signal.SIGTERM)
            self._loop.call_later(TERM_GRACE_S, self._kill_tree)

    def _kill_tree(self) -> None:
        if not self._closed:
            self.tree.kill()

    async def read(self) -> bytes:
        """The next chunk of output; empty at the end.

        The end is when all writers closed the pipe, or when the child exited and its output was read: a
        grandchild that keeps the pipe open or floods it does not block us. One reader at a time.
        """
        while True:
            await asyncio.sleep(0)  # let other tasks run during a flood of output
            piece = self._take()
            if piece is not None:
                return piece
            self._readable = self._loop.create_future()
            self._loop.add_reader(self._output, self._wake_reader)
            try:
                await self._readable
            finally:
                self._loop.remove_reader(self._output)
                self._readable = None

    async def read_errors(self) -> bytes:
        """The next chunk of the standard error; empty at the end, when all writers closed it. One reader at a time."""
        while True:
            try:
                return os.read(self._errors, CHUNK_BYTES)
            except BlockingIOError:
                readable = self._loop.create_future()
            self._loop.add_reader(self._errors, _wake, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(self._errors)

    async def wait(self) -> int:
        """Wait for the child itself to exit. Returns its return code."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Kill the child itself."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # it is not reaped before `close`, so this is no other process

    def close(self) -> None:
        """Close the pipes and reap the child. Called by `open_child` when the tree is gone."""
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._output = -1
        if self._errors >= 0:
            self._loop.remove_reader(self._errors)
            os.close(self._errors)
            self._errors = -1
        self.input.close()
        self._unwatch()
        self._timer.cancel()
        self._closed = True
        if self._popen.poll() is None:
            self._popen.returncode = -signal.SIGKILL  # stuck in the kernel: it will die there

    def _take(self) -> bytes | None:
        exited = self.returncode is not None
        if exited and not self._rest:
            return b""
        try:
            piece = os.read(self._output, self._rest if exited else CHUNK_BYTES)
        except BlockingIOError:
            return b"" if exited else None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # a terminal whose other ends are all closed
        if exited:  # the pipe held at most this much when the child exited; the rest is from other processes
            self._rest -= len(piece)
        return piece

    def _wake_reader(self) -> None:
        if self._readable is not None:
            _wake(self._readable)

    def _check_exit(self) -> None:
        if self._output < 0:
            return
        code = self._exit_code()
        if code is not None:
            self._unwatch()
            self.returncode = code
            self._exited.set()
            self._wake_reader()
        elif self._handle < 0:
            self._loop.call_later(_POLL, self._check_exit)

    def _reap_periodically(self, pause: float) -> None:
        """Reap orphans that exited by themselves: a long-running child may leave thousands."""
        pause = _BUSY if self.tree.reap_zombies() > 10 else min(pause * 2, _IDLE)
        self._timer = self._loop.call_later(pause, self._reap_periodically, pause)

    def _unwatch(self) -> None:
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _exit_code(self) -> int | None:
        if self._handle < 0:
            return self._popen.poll()
        # not reaped: while it is a zombie, its pid and group cannot be reused
        seen = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


@asynccontextmanager
async def open_child(  # noqa: PLR0913
    command: str | Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    link: Link = "output",
    keeper: process_tree.OrphanGuard | None = None,
    fds: Sequence[int] = (),
    portable: bool = not process_tree.LINUX,
) -> AsyncIterator[Child]:
    """Run an argv or a shell command line in its own session.

    It has no input and one output pipe unless `link` says otherwise. Leaving the scope ends the child and
    all its descendants, first by SIGTERM, after the grace period by SIGKILL, and waits until they are gone.
    `env` is the whole environment except for the mark. `keeper` ends them also if this process is killed.
    `fds` are descriptors that the child inherits.
    `portable` relies on the process group alone, for systems without /proc. Raises OSError if it cannot
    be started.
    """
    if isinstance(command, str):
        command = (shutil.which("bash", path=env.get("PATH", os.defpath)) or "/bin/sh", "-c", command)
    mark = process_tree.new_mark(keeper.guard() if keeper else None)
    if not portable:
        process_tree.adopt_orphans()
    start = _Start(list(command), cwd, process_tree.marked_environment(env, mark), link, fds)
    async with stop_with_scope(_start(start, None if portable else mark)) as child:
        yield child


@asynccontextmanager
async def stop_with_scope(child: Child) -> AsyncIterator[Child]:
    """Leaving the scope ends a child and all its descendants, and waits until they are gone."""
    try:
        yield child
    finally:
        try:
            ended = child.ends_together and child.returncode is not None
            survivors = len(child.tree.living())
            child.survivors = 0 if ended else survivors
            if survivors:
                await _stop(child, 0.0 if ended else TERM_GRACE_S)
        finally:
            child.close()


class _Start(NamedTuple):
    argv: list[str]
    cwd: str
    env: dict[str, str]
    link: Link
    fds: Sequence[int]


def _start(start: _Start, mark: int | None) -> Child:
    with open_stream_ends(start.link) as ends:
        argv = start.argv
        if start.link == "terminal":
            argv = ["/bin/sh", "-c", _TAKE_TERMINAL, os.ttyname(ends.stdin), *argv]
        with nullcontext() if mark is None else process_tree.inherit_mark(mark):
            # no preexec_fn: without it the child is created by vfork, which is faster and safe with threads
            popen = subprocess.Popen(
                argv,
                cwd=start.cwd,
                env=start.env,
                stdin=ends.stdin,
                stdout=ends.stdout,
                stderr=ends.stderr,
                start_new_session=True,
                pass_fds=start.fds,
            )
        tree = process_tree.ProcessGroup(popen.pid) if mark is None else process_tree.open_tree(popen.pid, mark)
        try:
            return Child(popen, ends, tree)
        except OSError:  # no file descriptor left to watch it
            tree.kill()
            popen.wait()
            raise


async def _stop(child: Child, grace_s: float) -> None:
    """SIGTERM, then SIGKILL, until all are gone. If cancelled: kill at once, then raise it."""
    clock = asyncio.get_running_loop().time
    grace, patience, pause = clock() + grace_s, clock() + KILL_TIMEOUT_S, 0.001
    again: asyncio.CancelledError | None = None
    if grace_s:
        child.tree.tell(signal.SIGTERM)
    for times in count():
        if not child.tree.living():
            break
        if clock() >= patience and times >= _MIN_ATTEMPTS:
            log.error("processes started by %d could not be killed: %s", child.pid, child.tree.living())
            break
        if again or clock() >= grace:
            if child.ends_together:
                child.kill()
            child.tree.kill()
        try:
            await asyncio.sleep(pause)
        except asyncio.CancelledError as cancelled:
            again = cancelled
        pause = min(pause * 1.5, 0.005)
    if again:
        raise again
