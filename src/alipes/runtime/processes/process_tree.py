"""Whose process is this? Marks a child, finds what descends from it, and ends all of it. It starts nothing.

On Linux a mark is two things a descendant inherits: a variable in its environment, and a soft
limit on realtime CPU time of some centuries, which limits nothing, is read with one system call
(of a zombie too) and survives `setsid`, a double fork and a cleared environment. Elsewhere the
process group is all there is: who leaves it is not found.
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
from typing import NamedTuple, Protocol

LINUX = sys.platform == "linux" and hasattr(os, "pidfd_open")
VARIABLE = "ALIPES_CHILD"
SCOPES = 10**6
"""A mark is `owner * SCOPES + number`; an owner has twelve digits."""
_NUMBERS = count()
_PR_SET_CHILD_SUBREAPER = 36
_PASSES = 50
_LIBC = ctypes.CDLL(None)


class Kin(NamedTuple):
    """One process; its start time tells it from a later one with the same number."""

    pid: int
    start: int


def new_owner() -> int:
    """A number of twelve digits that nobody else has."""
    return 10**11 + secrets.randbelow(9 * 10**11)


_THIS_PROCESS = new_owner()


def new_mark(owner: int | None = None) -> int:
    """A mark for one child and what it begets; unless an `owner` is given, of this process."""
    return (owner or _THIS_PROCESS) * SCOPES + next(_NUMBERS) % SCOPES


class Family(Protocol):
    """What one child scope has begotten."""

    def living(self) -> list[Kin]:
        """Everyone alive, parents before children. Buries on the way."""
        ...

    def bury(self) -> int:
        """Put to rest the zombies that nobody else waits for; how many."""
        ...

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to everyone alive."""
        ...

    def kill(self) -> None:
        """Freeze everyone so that nobody can fork, then end everyone. Does not wait."""
        ...


def adopt_orphans() -> None:
    """From now on a descendant whose parent dies becomes our child, not init's, so it can be found."""
    if LINUX:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def marked_environment(env: Mapping[str, str], mark: int) -> dict[str, str]:
    """`env` with `mark` added to those it already bears: an alipes may run inside an alipes."""
    return {**env, VARIABLE: ":".join(filter(None, (env.get(VARIABLE), str(mark))))}


@contextmanager
def bearing(mark: int) -> Iterator[None]:
    """Who is started inside bears the mark from its first instruction."""
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    with suppress(OSError, ValueError):  # someone has set a lower limit; the environment is marked too
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_RTTIME, before)


def tree(pid: int, mark: int) -> "Tree":
    """The family of `pid`, a child that was just started, `bearing` and with `marked_environment`."""
    ours = {
        os.getpid(),
        threading.get_native_id(),
    }  # orphans come to the first thread, children stay with theirs
    for thread in set(_threads(os.getpid())) - ours:
        for other in _children_of(os.getpid(), thread):
            if _limit(other) == mark:  # that thread started it at the same moment: it is no kin
                with suppress(OSError, ValueError):
                    resource.prlimit(
                        other, resource.RLIMIT_RTTIME, resource.getrlimit(resource.RLIMIT_RTTIME)
                    )
    return Tree(pid, mark)


class Tree:
    """A family on Linux: the child, its descendants, and orphans of theirs that became our children."""

    def __init__(self, pid: int, mark: int) -> None:
        self._root, self._mark = pid, mark

    def living(self) -> list[Kin]:
        dead: set[int] = set()
        for _ in range(_PASSES):
            known = frozenset(dead)
            alive = self._walk(dead)
            # who died while we looked may have had children that we had not seen: they are ours by now
            if alive or dead == known:
                return alive
        return [Kin(pid, 0) for pid in dead - known]  # not settled, so not "nobody"

    def _walk(self, dead: set[int]) -> list[Kin]:
        alive: list[Kin] = []
        children, me = _kinship(), os.getpid()
        queue = [pid for pid in children(me) if pid == self._root or bears(pid, self._mark)]
        adopted = {*queue} - {self._root}
        for pid in queue:
            if pid in adopted and _lay_to_rest(pid):
                dead.add(pid)
            elif (found := _look(pid)) is not None and found.alive:
                alive.append(Kin(pid, found.start))
                queue.extend(children(pid))
            else:
                dead.add(pid)
        return alive

    def bury(self) -> int:
        adopted = (pid for pid in _kinship()(os.getpid()) if pid != self._root)
        return sum(_lay_to_rest(pid) for pid in adopted if bears(pid, self._mark))

    def tell(self, number: signal.Signals) -> None:
        for kin in self.living():
            send(kin, number)

    def kill(self) -> None:
        caught: set[Kin] = set()
        for _ in range(_PASSES):  # a chain of forks may outrun one look, hardly fifty
            fresh = [kin for kin in self.living() if kin not in caught]
            if not fresh:
                break
            if any(_group(kin.pid) == self._root for kin in fresh):  # so the group is still ours
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._root, signal.SIGKILL)  # all at once: no fork escapes it
            for kin in fresh:
                send(kin, signal.SIGSTOP)
            caught.update(fresh)
        for kin in caught:
            send(kin, signal.SIGKILL)


class Group:
    """A family where there is no /proc: the process group, which a child can leave by `setsid`."""

    def __init__(self, pid: int) -> None:
        self._group = pid

    def living(self) -> list[Kin]:
        try:
            os.killpg(self._group, 0)
        except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
            return []
        return [Kin(self._group, 0)]

    def bury(self) -> int:
        return 0  # orphans go to init

    def tell(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)

    def kill(self) -> None:
        self.tell(signal.SIGKILL)


def bears(pid: int, mark: int) -> bool:
    """Does the process bear exactly this mark?"""
    limit = _limit(pid)
    if limit == mark:
        return True
    return limit // SCOPES != mark // SCOPES and str(mark) in _marks(pid)


def descended(owner: int) -> Iterator[Kin]:
    """Every process on this machine that bears a mark of `owner`, and that we may see."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _look(int(name))) and found.alive:
            pid = int(name)
            if _limit(pid) // SCOPES == owner or any(m.startswith(str(owner)) for m in _marks(pid)):
                yield Kin(pid, found.start)


def send(kin: Kin, number: signal.Signals) -> None:
    """Signal exactly this process: never one that was given its number after it died."""
    try:
        handle = os.pidfd_open(kin.pid)
    except OSError:
        return
    try:
        found = _look(kin.pid)
        if found is not None and found.start == kin.start:
            with suppress(ProcessLookupError, PermissionError):  # died meanwhile; or became another user
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


class _Look(NamedTuple):
    alive: bool
    parent: int
    start: int


def _look(pid: int) -> _Look | None:
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold blanks and brackets
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1  # its first thread may die before the others
    return _Look(alive, int(fields[1]), int(fields[19]))


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _kinship() -> Callable[[int], Iterable[int]]:
    """Who are the children of a process? Asked of the kernel where it tells, else found among everyone."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return _children
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _look(int(name))):
            parents.setdefault(found.parent, []).append(int(name))
    return lambda pid: parents.get(pid, ())


def _children(pid: int) -> Iterable[int]:
    return [child for thread in _threads(pid) for child in _children_of(pid, thread)]


def _children_of(pid: int, thread: int) -> Iterable[int]:
    return map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _threads(pid: int) -> Iterable[int]:
    try:
        return map(int, os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return ()


def _lay_to_rest(pid: int) -> bool:
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
