"""Finds out whether this process was started by a running agent, from the process tree and not from variables.

An agent process is recognised by three signs, of which one suffices:
- its name, which no other process can change;
- a living lock in the home's directory `run`, which holds its pid;
- the mark that its children inherit as a resource limit (see process_tree.py), for a caller in a pid namespace.
Orphans become children of the agent again, so `setsid` and a double fork hide nothing.

Not seen: a process that another program starts for the caller, such as cron, at, systemd-run, a running tmux
server or ssh to this machine. Outside Linux there is no /proc and nothing is found.
"""

import fcntl
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

AGENT_NAME = "alipes-agent"
"""Name of a process that runs tools, as in /proc/PID/comm; at most 15 bytes."""
MIN_MARK = 10**17
"""Marks have 18 digits or more; see `process_tree.SCOPES`."""
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the first pid namespace of a machine, the same for every Linux."""
_MAX_DEPTH = 1000


def name_agent_process() -> None:
    """Name this process as an agent, before the first child starts and before `protect_memory` forbids it."""
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write(AGENT_NAME)


def find_agent_ancestor(*runs: Path) -> int | None:
    """The pid of the agent process that started this one, directly or not. `runs`: the directories of homes."""
    if sys.platform != "linux":
        return None
    ancestors = list(list_ancestors())
    for pid in ancestors:
        if _read(f"/proc/{pid}/comm").strip() == AGENT_NAME:
            return pid
    nested = os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE
    for pid in (pid for run in runs for pid in living_agents(run)):
        # a living process that /proc does not show: this process may be its child in a pid namespace
        if pid in ancestors or (nested and not os.path.exists(f"/proc/{pid}")):
            return pid
    if resource.getrlimit(resource.RLIMIT_RTTIME)[0] >= MIN_MARK:
        return ancestors[0] if ancestors else os.getpid()
    return None


def list_ancestors(pid: int | None = None) -> Iterator[int]:
    """The pids of the parent, its parent and so on, of process `pid`, by default of this one."""
    current: int | str = "self" if pid is None else pid  # in a pid namespace, getpid may not fit to /proc
    for _ in range(_MAX_DEPTH):
        parent = read_parent(current)
        if parent == 0:
            return
        yield parent
        current = parent


def read_parent(pid: int | str) -> int:
    """The pid of the parent; 0 if there is none."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name may contain spaces and parentheses
    return int(fields[1]) if len(fields) > 1 else 0


def living_agents(run: Path) -> Iterator[int]:
    """The pids of the living processes of a home: each holds the lock of a file that contains its pid."""
    for file in run.glob("*.lock"):
        try:
            lock = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if pid := _read_pid(file):
                yield pid
        finally:
            os.close(lock)


def _read_pid(file: Path) -> int:
    found = re.search(r'"pid":(\d+)', _read(str(file)))
    return int(found[1]) if found else 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
