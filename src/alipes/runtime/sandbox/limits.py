"""Resource limits of sandboxed commands: memory, processes, file size, CPU time.

Limits of the kernel per process (`setrlimit`) work everywhere, but memory is counted for each process by itself, and
root may start any number of processes. A control group limits all processes of a command together; it is used where
this process may create one, as root or in a service of the user's systemd.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from alipes.runtime.sandbox.policy import SandboxLimits

_PREFIX = "alipes-"


def resource_limits(limits: SandboxLimits, *, other_processes: int = 0) -> list[tuple[int, int]]:
    """The limits as numbers of `setrlimit` and their values.

    Memory is what a process writes (RLIMIT_DATA): Java and Node reserve gigabytes of addresses that they never use.
    `other_processes`: how many processes and threads the user has already, if they are counted as well.
    """
    found = {
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_NPROC: limits.processes and limits.processes + other_processes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_CPU: limits.cpu_seconds,
    }
    return [(kind, limit) for kind, limit in found.items() if limit]


def count_processes() -> int:
    """Processes and threads on this machine."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


class ControlGroups:
    """Makes control groups for commands: memory and processes in version 2, only processes in version 1."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> None:
        self._root, self._membership = root, membership
        self._numbers = count()
        self._parent: tuple[Path, frozenset[str]] | None = None
        self._left: list[Path] = []
        """Groups whose last process was not yet gone."""

    @contextmanager
    def open(self, limits: SandboxLimits) -> Iterator[tuple[str, ...]]:
        """A new group for one command at a time: the files into which it writes 0 to join. Empty if none can be made.

        Leave it when the processes of the command have ended.
        """
        self._left = [group for group in self._left if not _remove(group)]
        group = self._create(limits)
        try:
            yield (str(group / "cgroup.procs"),) if group else ()
        finally:
            if group is not None and not _remove(group):
                self._left.append(group)

    def _create(self, limits: SandboxLimits) -> Path | None:
        parent, controllers = self._find_parent()
        values: dict[str, int] = {}
        if limits.memory_bytes and "memory" in controllers:
            values |= {"memory.max": limits.memory_bytes, "memory.swap.max": 0}
        if limits.processes and "pids" in controllers and os.getuid() == 0:  # for others the kernel counts them
            values["pids.max"] = limits.processes
        if not values:
            return None
        group = parent / f"{_PREFIX}{_process_namespace()}-{os.getpid()}-{next(self._numbers)}"
        try:
            group.mkdir()
        except OSError:
            return None
        for name, value in values.items():
            with suppress(FileNotFoundError):  # a kernel without swap
                (group / name).write_text(str(value))
        return group

    def _find_parent(self) -> tuple[Path, frozenset[str]]:
        """Where to create groups, and which limits they can have."""
        if self._parent is None:
            self._parent = next(self._candidates(), (self._root, frozenset()))
            _remove_old(self._parent[0])
        return self._parent

    def _candidates(self) -> Iterator[tuple[Path, frozenset[str]]]:
        try:
            lines = [line.split(":", 2) for line in self._membership.read_text().splitlines()]
        except OSError:  # not Linux
            return
        for number, kinds, path in lines:
            if number == "0":
                own = self._root / path.lstrip("/")
                # a group with processes cannot have limited groups below it, except for the root
                parent = own.parent if path != "/" else own
                enabled = frozenset(_read(parent / "cgroup.subtree_control").split()) & {"memory", "pids"}
            else:
                parent = self._root / kinds / path.lstrip("/")
                enabled = frozenset({"pids"} & set(kinds.split(",")))
            if enabled and os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK):
                yield parent, enabled


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _remove(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # it still has processes
        return False
    return True


def _remove_old(parent: Path) -> None:
    """Remove groups of processes that were killed. Those of other process namespaces are left alone: their processes
    are not ours to see."""
    for group in parent.glob(f"{_PREFIX}{_process_namespace()}-*-*"):
        owner = group.name.split("-")[2]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            _remove(group)


def _process_namespace() -> str:
    try:
        return f"p{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "p"
