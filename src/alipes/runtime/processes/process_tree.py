"""Process trees: mark a child, find its descendants, kill them all, also if this process is killed.

On Linux a mark is two things that descendants inherit: an environment variable, and a soft limit on
realtime CPU time of some centuries, which limits nothing, can be read with one system call (also for
a zombie) and survives `setsid`, a double fork and a cleared environment. Elsewhere only the process
group is available: a process that leaves it is not found.
"""

import asyncio
import ctypes
import fcntl
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeAlias

LINUX = sys.platform == "linux" and hasattr(os, "pidfd_open")
VARIABLE = "ALIPES_CHILD"
SCOPES = 10**6
"""A mark is `owner * SCOPES + number`; an owner has twelve digits."""
WRAPPERS = frozenset((b"bwrap", b"nsenter"))
"""Programs that start a sandbox and end with what they run."""
_NUMBERS = count()
_PR_SET_CHILD_SUBREAPER = 36
_PASSES = 50
_LIBC = ctypes.CDLL(None)
_WATCHDOG = """
trap '' HUP INT TERM
read -r _
try=0
while [ $((try += 1)) -le 50 ]; do
  found=$(grep -lsE -e "ALIPES_CHILD=[0-9:]*$1" -e "realtime timeout +$1" \\
    /proc/[0-9]*/environ /proc/[0-9]*/limits | cut -d/ -f3)
  [ "$found" ] || exit
  kill -9 $found
done
"""
"""Waits on a pipe that only we hold open, so it wakes when we die. On a normal exit we kill it first."""


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
        """Send a signal to all processes, except to wrappers: when one ends, its whole sandbox is killed."""
        for kin in self.living():
            if _read(f"/proc/{kin.pid}/comm").strip() not in WRAPPERS:
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


class OrphanGuard:
    """Keeps children from outliving this process. Idle until the first child."""

    def __init__(self, records: Path) -> None:
        self.owner = new_owner()
        self._record, self._files = records / str(self.owner), records / f"of-{self.owner}"
        self._lock = -1
        self._watchdog: subprocess.Popen[bytes] | None = None

    def guard(self) -> int:
        """Call before starting a child. Returns the owner number for its mark."""
        if LINUX:
            self._hold()
            if self._watchdog is None or self._watchdog.poll() is not None:
                self._dismiss()
                self._watchdog = subprocess.Popen(
                    ["/bin/sh", "-c", _WATCHDOG, "alipes-watchdog", str(self.owner)],
                    env={"PATH": os.defpath},
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self.owner

    def folder(self) -> Path:
        """A directory that is removed with this process, at the latest when the next one starts."""
        self._hold()
        self._files.mkdir(0o700, exist_ok=True)
        return self._files

    def close(self) -> None:
        """Stop guarding, after every child scope is closed."""
        self._dismiss()
        if self._lock >= 0:
            shutil.rmtree(self._files, ignore_errors=True)
            self._record.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def _hold(self) -> None:
        if self._lock < 0:
            self._lock = _create_locked(self._record)

    def _dismiss(self) -> None:
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None


@asynccontextmanager
async def open_orphan_guard(run: Path) -> AsyncIterator[OrphanGuard]:
    """Kill the orphans of earlier processes of this home; then guard the children of this one.

    `run` is the home's directory for per-process files. Enter it before the first child scope.
    """
    if LINUX:
        await asyncio.to_thread(kill_orphans, run)
    keeper = OrphanGuard(run / "children")
    try:
        yield keeper
    finally:
        keeper.close()


@contextmanager
def scratch_directory(keeper: OrphanGuard | None) -> Iterator[Path]:
    """A temporary directory; with a guard it is removed even if this process is killed."""
    kept = keeper.folder() if keeper is not None and LINUX else None
    with tempfile.TemporaryDirectory(prefix="alipes-", dir=kept) as name:
        yield Path(name)


def kill_orphans(run: Path) -> int:
    """Kill the orphans of every dead process recorded under `run`, remove its files; returns their number."""
    ended = 0
    for record in (run / "children").glob("[0-9]*"):
        try:
            lock = os.open(record, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ended += _end_all(int(record.name))
            shutil.rmtree(record.with_name(f"of-{record.name}"), ignore_errors=True)
            record.unlink(missing_ok=True)
        except BlockingIOError:  # its process is alive and holds the lock
            continue
        finally:
            os.close(lock)
    return ended


def _end_all(owner: int) -> int:
    ended: set[ProcessId] = set()
    for _ in range(100):
        left = list(find_marked(owner))
        if not left:
            break
        for one in left:
            send_signal(one, signal.SIGKILL)
        ended.update(left)
        time.sleep(0.005)
    return len(ended)


def _create_locked(record: Path) -> int:
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = record.with_name(f"new-{record.name}")
    lock = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(record)  # renamed after locking, so that nobody finds it unlocked and takes us for dead
    return lock
