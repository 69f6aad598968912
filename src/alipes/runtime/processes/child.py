"""Child processes that die with their scope: the child and whatever it begot. It judges no command.

`docs/adr/0008-a-child-dies-with-its-scope.md` says how, and what is promised where.
"""

import asyncio
import errno
import logging
import os
import shutil
import signal
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

from alipes.runtime.processes import process_tree
from alipes.runtime.processes.orphans import Keeper

COLUMNS, ROWS = 80, 24
END_OF_FILE = b"\x04"
_TAKE_TERMINAL = ': <>"$0"; exec "$@"'
"""The leader of a session gets the first terminal that it opens itself as its own."""

Link: TypeAlias = Literal["output", "pipes", "terminal"]
"""We hear the child; or we speak to it too; or both, through a pseudo terminal."""


class Ends(NamedTuple):
    """Descriptors of both sides; -1 is none."""

    output: int
    """Ours to read; it does not block."""
    input: int
    """Ours to write, likewise."""
    stdin: int
    stdout: int


@contextmanager
def open_ends(link: Link) -> Iterator[Ends]:
    """A new link. The child's ends are closed when the block is left; ours stay, unless it fails."""
    with ExitStack() as theirs, ExitStack() as ours:
        speaking, stdin = -1, subprocess.DEVNULL
        if link == "terminal":
            output, stdout = os.openpty()
            ours.callback(os.close, output)
            theirs.callback(os.close, stdout)
            termios.tcsetwinsize(stdout, (ROWS, COLUMNS))
            speaking, stdin = os.dup(output), stdout
            ours.callback(os.close, speaking)
        else:
            output, stdout = os.pipe()
            ours.callback(os.close, output)
            theirs.callback(os.close, stdout)
            if link == "pipes":
                stdin, speaking = os.pipe()
                theirs.callback(os.close, stdin)
                ours.callback(os.close, speaking)
                os.set_blocking(speaking, False)
        os.set_blocking(output, False)
        yield Ends(output, speaking, stdin, stdout)
        ours.pop_all()


def on_terminal(argv: Sequence[str], terminal: int) -> list[str]:
    """An argv that takes `terminal` for its controlling one, then becomes `argv`: ^C and /dev/tty work."""
    return ["/bin/sh", "-c", _TAKE_TERMINAL, os.ttyname(terminal), *argv]


class Input:
    """Where a child's input is written. One writer at a time."""

    def __init__(self, handle: int, *, terminal: bool) -> None:
        self.terminal = terminal
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._within_line = False

    @property
    def closed(self) -> bool:
        return self._handle < 0

    async def write(self, data: bytes, seconds: float) -> int:
        """How many bytes were taken within `seconds`. Raises OSError when the child reads no more."""
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
        """Let the child read the end of file, as soon as it has read what was written before."""
        if not self.terminal:
            self.close()
        elif not self.closed:  # in the middle of a line the first one only sends the line
            await self.write(END_OF_FILE * (2 if self._within_line else 1), 1.0)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    async def _room(self) -> None:
        free = self._loop.create_future()
        self._loop.add_writer(self._handle, _wake, free)
        try:
            await free
        finally:
            self._loop.remove_writer(self._handle)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


log = logging.getLogger(__name__)
GRACE = 0.03
"""Seconds between SIGTERM and SIGKILL: enough to remove a lock file, short enough to feel like a stop."""
PATIENCE = 5.0
"""Seconds to wait for the killed to be gone; only a process stuck in the kernel takes longer."""
CHUNK = 65536
_POLL = 0.01
_BUSY, _IDLE = 0.05, 2.0
_LEAST = 100
"""Times we try, however long that takes: after a suspended machine wakes up, all time is over at once."""


class Child:
    """A running child. `open_child` makes it and ends it."""

    def __init__(self, popen: "subprocess.Popen[bytes]", ends: Ends, family: process_tree.Family) -> None:
        self.pid = popen.pid
        self.family = family
        self.input = Input(ends.input, terminal=ends.stdin == ends.stdout)
        """Closed from the beginning when it was given none."""
        self.returncode: int | None = None
        """Negative: the signal that ended it. None while it runs."""
        self.survivors = 0
        """How many of its family were alive when its scope was left, and were ended then."""
        self._popen, self._output = popen, ends.output
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._stirred: asyncio.Future[None] | None = None
        self._rest = 2 * CHUNK if self.input.terminal else CHUNK
        self._handle = os.pidfd_open(self.pid) if isinstance(family, process_tree.Tree) else -1
        if self._handle >= 0:
            self._loop.add_reader(self._handle, self._see_exit)
        else:
            self._see_exit()
        self._timer = self._loop.call_later(_BUSY, self._sweep, _BUSY)

    async def read(self) -> bytes:
        """The next piece of what it writes; empty when there will be no more.

        That is when every writer closed the pipe, or when the child exited and all it wrote was read: a
        grandchild that keeps the pipe open, or floods it, does not keep us. One reader at a time.
        """
        while True:
            await asyncio.sleep(0)  # a flood must leave the loop to others too
            piece = self._take()
            if piece is not None:
                return piece
            self._stirred = self._loop.create_future()
            self._loop.add_reader(self._output, self._stir)
            try:
                await self._stirred
            finally:
                self._loop.remove_reader(self._output)
                self._stirred = None

    async def wait(self) -> int:
        """Wait until the child itself has exited; its return code."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    def close(self) -> None:
        """Let go of its pipe and put it to rest; for `open_child`, when the family is gone."""
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._output = -1
        self.input.close()
        self._unwatch()
        self._timer.cancel()
        if self._popen.poll() is None:
            self._popen.returncode = -signal.SIGKILL  # stuck in the kernel: it dies there, unwatched

    def _take(self) -> bytes | None:
        exited = self.returncode is not None
        if exited and not self._rest:
            return b""
        try:
            piece = os.read(self._output, self._rest if exited else CHUNK)
        except BlockingIOError:
            return b"" if exited else None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # how a terminal says that all its other ends are closed
        if exited:  # the pipe held no more than this when the child exited; the rest is others'
            self._rest -= len(piece)
        return piece

    def _stir(self) -> None:
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)

    def _see_exit(self) -> None:
        if self._output < 0:
            return
        code = self._exit_code()
        if code is not None:
            self._unwatch()
            self.returncode = code
            self._exited.set()
            self._stir()
        elif self._handle < 0:
            self._loop.call_later(_POLL, self._see_exit)

    def _sweep(self, pause: float) -> None:
        """Now and then bury orphans that died by themselves: a long life may leave thousands."""
        pause = _BUSY if self.family.bury() > 10 else min(pause * 2, _IDLE)
        self._timer = self._loop.call_later(pause, self._sweep, pause)

    def _unwatch(self) -> None:
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _exit_code(self) -> int | None:
        if self._handle < 0:
            return self._popen.poll()
        # looked at, not reaped: while it is a zombie its number and its group's cannot become a stranger's
        seen = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


@asynccontextmanager
async def open_child(
    command: str | Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    link: Link = "output",
    keeper: Keeper | None = None,
    portable: bool = not process_tree.LINUX,
) -> AsyncIterator[Child]:
    """Run an argv, or a line of shell, in a session of its own.

    It reads nothing and writes to one pipe, unless `link` says otherwise. Leaving the scope, in whichever
    way, ends the child and all its descendants and returns when they are gone: after SIGTERM and `GRACE`
    for whoever is still alive. `env` is the whole environment, but for the mark. `keeper` sees to it that
    they also die if we are killed. `portable` trusts the process group alone, as must be where there is
    no /proc. Raises OSError when it cannot be started.
    """
    argv = _shell(command, env.get("PATH", os.defpath)) if isinstance(command, str) else list(command)
    mark = process_tree.new_mark(keeper.guard() if keeper else None)
    if not portable:
        process_tree.adopt_orphans()
    child = _start(argv, cwd, process_tree.marked_environment(env, mark), None if portable else mark, link)
    try:
        yield child
    finally:
        await _end(child)


def _start(argv: list[str], cwd: str, env: dict[str, str], mark: int | None, link: Link) -> Child:
    with open_ends(link) as ends:
        if link == "terminal":
            argv = on_terminal(argv, ends.stdin)
        with nullcontext() if mark is None else process_tree.bearing(mark):
            popen = _spawn(argv, cwd, env, ends)
        family = process_tree.Group(popen.pid) if mark is None else process_tree.tree(popen.pid, mark)
        try:
            return Child(popen, ends, family)
        except OSError:  # no descriptor was left to watch it by
            family.kill()
            popen.wait()
            raise


def _spawn(argv: list[str], cwd: str, env: dict[str, str], ends: Ends) -> "subprocess.Popen[bytes]":
    # no preexec_fn: without it the child is made by vfork, in half the time and safe beside threads
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=ends.stdin,
        stdout=ends.stdout,
        stderr=ends.stdout,
        start_new_session=True,
    )


async def _end(child: Child) -> None:
    try:
        child.survivors = len(child.family.living())
        if child.survivors:
            await _stop(child)
    finally:
        child.close()


async def _stop(child: Child) -> None:
    """Ask, then kill, until nobody is left. Cancelled again: ask no longer, and pass that on at the end."""
    clock = asyncio.get_running_loop().time
    grace, patience, pause = clock() + GRACE, clock() + PATIENCE, 0.001
    again: asyncio.CancelledError | None = None
    child.family.tell(signal.SIGTERM)
    for times in count():
        if not child.family.living():
            break
        if clock() >= patience and times >= _LEAST:
            log.error("begun by process %d, and does not die: %s", child.pid, child.family.living())
            break
        if again or clock() >= grace:
            child.family.kill()
        try:
            await asyncio.sleep(pause)
        except asyncio.CancelledError as cancelled:
            again = cancelled
        pause = min(pause * 1.5, 0.005)
    if again:
        raise again


def _shell(line: str, path: str) -> list[str]:
    return [shutil.which("bash", path=path) or "/bin/sh", "-c", line]
