"""Process setup: file limit, garbage collector, and protection of environment and memory (Linux).

Child processes run as the same user and could otherwise read both through /proc. This does not
protect against root.
"""

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Collection

FILE_LIMIT = 65_536
"""Enough for thousands of clients, and few enough for children that iterate over all possible descriptors."""


TOO_MANY_FILES = "too many files are open; raise the limit, as with `ulimit -n 1024`, and start again"


def has_free_descriptors(count: int = 8) -> bool:
    """False if this process may not open `count` further files."""
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def raise_file_limit(wanted: int = FILE_LIMIT) -> int:
    """Raise the limit of open files as far as allowed. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reached = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < reached:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
        soft = reached
    return soft


GC_THRESHOLDS = (5_000, 20, 20)
"""Thresholds of the three generations for `gc.set_threshold`."""


def tune_garbage_collector() -> None:
    """Exclude everything loaded so far from garbage collection and collect less often.

    A full collection with a thousand conversations stops the loop for 0.2 s, and most of the objects it
    visits have existed since the start.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_ENV_START, _ENV_END = 50, 51
"""Fields of `/proc/PID/stat`, counted from one."""
_STATE = 3
"""The first field after the process name, which may contain anything."""


def wipe_environment(names: Collection[str]) -> bool:
    """Overwrite the values of these variables in `/proc/PID/environ`. Returns False if not possible.

    Set the variables again before calling this, so that their current values are stored elsewhere.
    """
    if sys.platform != "linux":
        return False
    wanted = {os.fsencode(name) for name in names}
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[_ENV_START - _STATE]), int(fields[_ENV_END - _STATE])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            at = start
            for entry in memory.read(end - start).split(b"\0"):
                name, sign, value = entry.partition(b"=")
                if sign and value and name in wanted:
                    memory.seek(at + len(name) + 1)
                    memory.write(b"*" * len(value))
                at += len(entry) + 1
    except (OSError, ValueError, IndexError):
        return False
    return True


def protect_memory() -> bool:
    """Forbid other processes (except root) to read our memory or attach to us. Children are not affected."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return bool(libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0)
