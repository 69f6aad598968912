"""Starts sandboxed commands: keeps a starter (see starter.py) and a spare process that waits for the next command."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from marshal import dumps
from pathlib import Path
from typing import Any, NamedTuple

from alipes.runtime.processes import process_tree
from alipes.runtime.processes.child import Child, Link, open_stream_ends, stop_with_scope
from alipes.runtime.sandbox import starter
from alipes.runtime.sandbox.limits import ControlGroups
from alipes.runtime.sandbox.policy import SandboxLimits

KEEP_SPARE_S, KEEP_STARTER_S = 60.0, 600.0
"""How long a spare and a starter are kept although no command is run."""
ANSWER_TIMEOUT_S = 20.0
_RUN_CODE = (
    "import marshal, os, sys; code, *sys.argv[1:] = marshal.loads(os.pread(int(sys.argv[1]), 1 << 20, 0)); exec(code)"
)


class View:
    """What commands of a conversation are put into, held by descriptors; no process stays."""

    def __init__(self, handles: Sequence[int], made_of: object) -> None:
        """`made_of`: if this changes, another view must be made."""
        self._handles, self.made_of = tuple(handles), made_of
        self._users, self.is_closed = 0, False

    @property
    def handles(self) -> tuple[int, ...]:
        """Raises OSError if it is closed."""
        if not self._handles:
            raise OSError("the sandbox of this conversation is closed")
        return self._handles

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep it open although it may be closed meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self.is_closed:
                self.close()

    def close(self) -> None:
        self.is_closed = True
        if not self._users:
            for handle in self._handles:
                os.close(handle)
            self._handles = ()


class SparePlan(NamedTuple):
    """What a spare is made for. It is never used for anything else."""

    view: View
    wanted: Mapping[str, Any]
    """See starter.py."""


class Launch(NamedTuple):
    """A command for a spare."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    link: Link
    limits: Sequence[tuple[int, int]]


class SpareProcess:
    """A process that we are the parent of, although the starter forked it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its return code if it has ended; then it is reaped."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def end(self) -> None:
        """Kill and reap it."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.returncode = -signal.SIGKILL


class Starter:
    """One starter process, for one command at a time, and its spare."""

    def __init__(self, groups: ControlGroups, limits: SandboxLimits, guard: process_tree.OrphanGuard | None) -> None:
        self.limits, self.guard = limits, guard
        self.is_broken = False
        """True if an answer may be left unread."""
        self.plan: SparePlan | None = None
        """For what a spare was asked for last."""
        self._mark, self._asked, self._spare = 0, False, _Spare()
        self._group = groups.open(limits)
        names = self._group.__enter__()
        process_tree.adopt_orphans()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, _open_program(str(theirs.fileno()), *names) as code:
            # from the thread that runs the loop: what it starts ends with this thread
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _RUN_CODE, str(code)],
                pass_fds=[theirs.fileno(), code],
                env={"PATH": os.defpath},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)
        self._channel = ours

    @property
    def is_usable(self) -> bool:
        return not self.is_broken and self._process.poll() is None

    @property
    def has_spare(self) -> bool:
        return self._asked or bool(self._spare.pid)

    async def make(self, wanted: Mapping[str, Any], handles: Sequence[int] = ()) -> tuple[int, ...]:
        """Let it make something; returns descriptors. Raises OSError with the reason if it cannot be made."""
        if self._asked:
            await self._receive_spare()
        self.is_broken = True
        self._send(wanted, handles)
        text, found = await _receive(self._channel)
        self.is_broken = not text
        if text != b"ok":
            raise OSError(_reason(text))
        return found

    def prepare(self, plan: SparePlan) -> None:
        """Ask for a spare, and do not wait for it."""
        self._mark = process_tree.new_mark(self.guard.guard() if self.guard else None)
        wanted = {"make": "spare", **plan.wanted, "mark": self._mark}
        self._send(wanted, plan.view.handles)
        self.plan, self._asked = plan, True

    @asynccontextmanager
    async def run(self, plan: SparePlan, launch: Launch, *, ends_together: bool) -> AsyncIterator[Child]:
        """Run a command by a spare made for `plan`. Leaving the scope ends it and all its descendants."""
        if self.plan != plan or not self.has_spare:
            self.drop_spare()
            self.prepare(plan)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            if self._asked:
                await self._receive_spare()
            spare, mark = await self._spare.wait_until_ready(), self._mark
        self._spare = _Spare()
        child = spare.start(launch, mark)
        child.ends_together = ends_together
        async with stop_with_scope(child):
            yield child

    def expect(self, plan: SparePlan) -> None:
        """Commands of this plan will follow: the spare is for it as soon as nothing uses the starter."""
        if self.plan != plan:
            self.drop_spare()
            self.plan = plan

    def drop_spare(self) -> None:
        """End the spare."""
        if self._asked:
            self._channel.settimeout(ANSWER_TIMEOUT_S)
            with suppress(OSError):
                self._take_answer(*_receive_now(self._channel))
            self._channel.setblocking(False)
        self._asked = False
        self._spare.close()
        self._spare = _Spare()

    def close(self) -> None:
        if self.is_broken:
            self._spare.close()
        else:
            self.drop_spare()  # also if it was killed: its last answer is there
        self._channel.close()
        if self.is_broken:
            self._process.kill()
        self._process.wait()
        self._group.__exit__(None, None, None)

    def _send(self, wanted: Mapping[str, Any], handles: Sequence[int]) -> None:
        starter.send(self._channel, dumps({**wanted, "handles": len(handles)}), handles)

    async def _receive_spare(self) -> None:
        self._take_answer(*await _receive(self._channel))

    def _take_answer(self, text: bytes, handles: Sequence[int]) -> None:
        self._asked = False
        if not text or not handles:
            self.is_broken = True
            raise OSError(_reason(text))
        assert self.plan is not None
        channel = socket.socket(fileno=handles[0])
        channel.setblocking(False)
        self._spare = _Spare(int(text), channel, is_second=bool(self.plan.wanted["namespaces"]))


class _Spare:
    """A process that is restricted already and waits for its command."""

    def __init__(self, pid: int = 0, channel: socket.socket | None = None, *, is_second: bool = False) -> None:
        """`is_second`: the starter's process makes another one, which is the first in its process namespace."""
        self.pid, self._channel = pid, channel
        self._made_by = 0
        """The process that made it and is gone, but not reaped."""
        self._is_known, self._is_ready = not is_second, False

    async def wait_until_ready(self) -> "_Spare":
        """Raises OSError with the reason if it could not be made."""
        assert self._channel is not None
        while not (self._is_known and self._is_ready):
            text, _ = await _receive(self._channel)
            if not self._understand(text):
                self.close()
                raise OSError(_reason(text))
        return self

    def _understand(self, text: bytes) -> bool:
        """Two processes may speak, in any order."""
        if text.startswith(b"first "):
            self._made_by, self.pid, self._is_known = self.pid, int(text[6:]), True
        elif text == b"ready":
            self._is_ready = True
        else:
            return False
        return True

    def start(self, launch: Launch, mark: int) -> Child:
        """Make it the command."""
        assert self._channel is not None
        request = {
            "argv": [*launch.argv],
            "env": process_tree.marked_environment(launch.env, mark),
            "cwd": launch.cwd,
            "limits": [*launch.limits],
            "terminal": launch.link == "terminal",
        }
        payload = os.memfd_create("command")
        try:
            with open_stream_ends(launch.link) as ends:
                os.write(payload, dumps(request))
                nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if ends.stdin < 0 else -1
                try:
                    stdin = ends.stdin if nothing < 0 else nothing
                    starter.send(self._channel, b"run", (payload, stdin, ends.stdout, ends.stderr))
                finally:
                    if nothing >= 0:
                        os.close(nothing)
                child = Child(SpareProcess(self.pid), ends, process_tree.open_tree(self.pid, mark))
        except OSError:
            self.close()
            raise
        finally:
            os.close(payload)
        self.pid = 0
        self.close()
        return child

    def close(self) -> None:
        """End and reap it, unless it has become a command."""
        if self._channel is not None:
            self._channel.settimeout(ANSWER_TIMEOUT_S)
            text = b"?"
            while text and self.pid and not (self._is_known and self._is_ready):
                text, _ = _receive_now(self._channel)
                self._understand(text)
            self._channel.close()
            self._channel = None
        for pid in filter(None, (self.pid, self._made_by)):
            SpareProcess(pid).end()
        self.pid = self._made_by = 0


class Starters:
    """A starter for each command that runs at the same time; one idle one is kept."""

    def __init__(self) -> None:
        self._groups = ControlGroups()
        self._idle: list[Starter] = []
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def enter(self, limits: SandboxLimits, guard: process_tree.OrphanGuard | None) -> AsyncIterator[Starter]:
        """A starter for one command. Raises OSError if it cannot be started."""
        found = self._find_idle(limits, guard) or Starter(self._groups, limits, guard)
        try:
            yield found
        finally:
            self._leave(found)

    def forget(self, view: View) -> None:
        """The view is closed: nothing may be started in it."""
        for each in self._idle:
            if each.plan is not None and each.plan.view is view:
                each.drop_spare()
                each.plan = None

    def close(self) -> None:
        self._stop_timer()
        while self._idle:
            self._idle.pop().close()

    def _find_idle(self, limits: SandboxLimits, guard: process_tree.OrphanGuard | None) -> Starter | None:
        self._stop_timer()
        while self._idle:
            found = self._idle.pop()
            if found.is_usable and found.limits == limits and found.guard is guard:
                return found
            found.close()
        return None

    def _leave(self, left: Starter) -> None:
        if self._idle or not left.is_usable:
            left.close()
            return
        self._idle.append(left)
        if left.plan is not None and not left.plan.view.is_closed and not left.has_spare:
            try:
                left.prepare(left.plan)  # while the model thinks
            except OSError:
                left.is_broken = True
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(KEEP_SPARE_S, self._drop_spares)

    def _drop_spares(self) -> None:
        for each in self._idle:
            each.drop_spare()
            each.plan = None
        self._timer = asyncio.get_running_loop().call_later(KEEP_STARTER_S - KEEP_SPARE_S, self.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@contextmanager
def _open_program(*arguments: str) -> Iterator[int]:
    """The compiled program and its arguments as a file: commands see the command line of their first process."""
    code = compile(Path(starter.__file__).read_bytes(), starter.__file__, "exec")
    handle = os.memfd_create("starter")
    try:
        os.write(handle, dumps((code, *arguments)))
        yield handle
    finally:
        os.close(handle)


def _reason(text: bytes) -> str:
    return f"the sandbox cannot be made: {text.decode(errors='replace') or 'the program that makes it ended'}"


def _receive_now(channel: socket.socket) -> tuple[bytes, tuple[int, ...]]:
    try:
        return starter.receive(channel)
    except (ConnectionResetError, TimeoutError):
        return b"", ()


async def _receive(channel: socket.socket) -> tuple[bytes, tuple[int, ...]]:
    """The next message; empty if the other side is closed."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return _receive_now(channel)
        except BlockingIOError:
            ready = loop.create_future()
        loop.add_reader(channel, _wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(channel)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
