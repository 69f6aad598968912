"""Process trees: mark a child, find its descendants, kill them all.

On Linux a mark is two things that descendants inherit: an environment variable, and a soft limit on
realtime CPU time of some centuries, which limits nothing, can be read with one system call (also for
a zombie) and survives `setsid`, a double fork and a cleared environment. Elsewhere only the process
group is available: a process that leaves it is not found.
"""

import ctypes
import os
import resource
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import NamedTuple, TypeAlias

LINUX = sys.platform == "linux" and hasattr(os, "pidfd_open")
VARIABLE = "ALIPES_CHILD"
SCOPES = 10**6
"""A mark is `owner * SCOPES + number`; an owner has twelve digits."""
_NUMBERS = count()
_PR_SET_CHILD_SUBREAPER = 36
_PASSES = 50
_LIBC = ctypes.CDLL(None)


class ProcessId(NamedTuple):
    """One process; the start time distinguishes it from a later one with the same pid."""

    pid: int
    start: int


def new_owner() -> int:
    """A unique number of twelve digits."""
    return 10**11 + secrets.randbelow(9 * 10**11)


_THIS_PROCESS = new_owner()


def new_mark(owner: int | None = None) -> int:
    """A mark for one child and its descendants; `owner` defaults to this process."""
    return (owner or _THIS_PROCESS) * SCOPES + next(_NUMBERS) % SCOPES


def adopt_orphans() -> None:
    """Make descendants whose parent dies our children instead of init's, so that they can be found."""
    if LINUX:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def marked_environment(env: Mapping[str, str], mark: int) -> dict[str, str]:
    """`env` with `mark` added to existing ones: alipes may run inside alipes."""
    return {**env, VARIABLE: ":".join(filter(None, (env.get(VARIABLE), str(mark))))}


@contextmanager
def inherit_mark(mark: int) -> Iterator[None]:
    """Processes started inside carry the mark from their first instruction."""
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    with suppress(OSError, ValueError):  # a lower limit is in force; the environment is marked as well
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_RTTIME, before)


def open_tree(pid: int, mark: int) -> "LinuxProcessTree":
    """The tree of `pid`, a child just started inside `inherit_mark` with `marked_environment`."""
    # orphans are adopted by the main thread, children belong to their thread
    ours = {os.getpid(), threading.get_native_id()}
    for thread in set(_threads(os.getpid())) - ours:
        for other in _children_of(os.getpid(), thread):
            if _limit(other) == mark:  # started by another thread at the same moment: not in this tree
                with suppress(OSError, ValueError):
                    resource.prlimit(other, resource.RLIMIT_RTTIME, resource.getrlimit(resource.RLIMIT_RTTIME))
    return LinuxProcessTree(pid, mark)


class LinuxProcessTree:
    """On Linux: the child, its descendants, and their orphans that became our children."""

    def __init__(self, pid: int, mark: int) -> None:
        self._root, self._mark = pid, mark

    def living(self) -> list[ProcessId]:
        """Living processes, parents before children. Reaps zombies on the way."""
        dead: set[int] = set()
        for _ in range(_PASSES):
            known = frozenset(dead)
            alive = self._walk(dead)
            # a process that died meanwhile may have had unseen children: they are our children by now
            if alive or dead == known:
                return alive
        return [ProcessId(pid, 0) for pid in dead - known]  # still changing, so do not report an empty tree

    def _walk(self, dead: set[int]) -> list[ProcessId]:
        alive: list[ProcessId] = []
        children, me = _children_lookup(), os.getpid()
        queue = [pid for pid in children(me) if pid == self._root or has_mark(pid, self._mark)]
        adopted = {*queue} - {self._root}
        for pid in queue:
            if pid in adopted and _reap(pid):
                dead.add(pid)
            elif (found := _read_stat(pid)) is not None and found.alive:
                alive.append(ProcessId(pid, found.start))
                queue.extend(children(pid))
            else:
                dead.add(pid)
        return alive

    def reap_zombies(self) -> int:
        """Reap adopted zombies. Returns their number."""
        adopted = (pid for pid in _children_lookup()(os.getpid()) if pid != self._root)
        return sum(_reap(pid) for pid in adopted if has_mark(pid, self._mark))

    def tell(self, number: signal.Signals) -> None:
        for kin in self.living():
            send_signal(kin, number)

    def kill(self) -> None:
        """Stop all processes so that none can fork, then kill them. Does not wait."""
        caught: set[ProcessId] = set()
        for _ in range(_PASSES):  # a fork chain may outrun one pass, but hardly fifty
            fresh = [kin for kin in self.living() if kin not in caught]
            if not fresh:
                break
            if any(_group(kin.pid) == self._root for kin in fresh):  # the group id is still in use by our child
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._root, signal.SIGKILL)  # atomic: no fork escapes it
            for kin in fresh:
                send_signal(kin, signal.SIGSTOP)
            caught.update(fresh)
        for kin in caught:
            send_signal(kin, signal.SIGKILL)


class ProcessGroup:
    """Without /proc: the process group, which a child can leave by `setsid`."""

    def __init__(self, pid: int) -> None:
        self._group = pid

    def living(self) -> list[ProcessId]:
        try:
            os.killpg(self._group, 0)
        except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
            return []
        return [ProcessId(self._group, 0)]

    def reap_zombies(self) -> int:
        return 0  # orphans belong to init

    def tell(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    def kill(self) -> None:
        self.tell(signal.SIGKILL)


ProcessTree: TypeAlias = LinuxProcessTree | ProcessGroup
"""The processes of one child scope."""


def has_mark(pid: int, mark: int) -> bool:
    """True if the process carries exactly this mark."""
    limit = _limit(pid)
    if limit == mark:
        return True
    return limit // SCOPES != mark // SCOPES and str(mark) in _marks(pid)


def find_marked(owner: int) -> Iterator[ProcessId]:
    """Every visible process on this machine with a mark of `owner`."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _read_stat(int(name))) and found.alive:
            pid = int(name)
            if _limit(pid) // SCOPES == owner or any(m.startswith(str(owner)) for m in _marks(pid)):
                yield ProcessId(pid, found.start)


def send_signal(kin: ProcessId, number: signal.Signals) -> None:
    """Signal exactly this process, never a later one with the same pid."""
    try:
        handle = os.pidfd_open(kin.pid)
    except OSError:
        return
    try:
        found = _read_stat(kin.pid)
        if found is not None and found.start == kin.start:
            with suppress(ProcessLookupError, PermissionError):  # it died, or changed its user
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


class _ProcessStat(NamedTuple):
    alive: bool
    parent: int
    start: int


def _read_stat(pid: int) -> _ProcessStat | None:
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may contain spaces and parentheses
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1  # its main thread may exit before the others
    return _ProcessStat(alive, int(fields[1]), int(fields[19]))


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _children_lookup() -> Callable[[int], Iterable[int]]:
    """A function from pid to child pids: by the kernel's lists if available, else by a scan."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return lambda pid: [child for thread in _threads(pid) for child in _children_of(pid, thread)]
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _read_stat(int(name))):
            parents.setdefault(found.parent, []).append(int(name))
    return lambda pid: parents.get(pid, ())


def _children_of(pid: int, thread: int) -> Iterable[int]:
    return map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _threads(pid: int) -> Iterable[int]:
    try:
        return map(int, os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return ()


def _reap(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def _limit(pid: int) -> int:
    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0]
    except OSError:
        return 0


def _marks(pid: int) -> list[str]:
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(VARIABLE.encode() + b"="):
            return entry.partition(b"=")[2].decode(errors="replace").split(":")
    return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
