"""Keeps others out of this process: out of what it was started with, and out of its memory. Linux only.

A child of ours runs as the same user, and by `/proc` it could read both. Root may read every memory: from
that nothing here protects.
"""

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Collection

WANTED = 65_536
"""More than thousands of listeners, and few enough for children that walk through all they might have."""


def make_room(wanted: int = WANTED) -> int:
    """Raise the limit of open files, which is low by default, as far as we may; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reached = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < reached:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
        soft = reached
    return soft


SELDOM = (5_000, 20, 20)
"""New things before the young are looked through; how often that, before the older; and that, before all."""


def stay() -> None:
    """What is there now stays as long as we do: it is not looked through again.

    A look through all that a thousand conversations hold stops the loop for a fifth of a second; most of
    what it finds has stood there since the start.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_ENV_START, _ENV_END = 50, 51
"""Fields of `/proc/PID/stat`, counted from one."""
_STATE = 3
"""The first field after the name, which may have anything in it."""


def wipe_environment(names: Collection[str]) -> bool:
    """Write over the values of these variables in what `/proc/PID/environ` shows; False where it cannot be.

    The variables themselves must have been set anew before, so that they lie elsewhere.
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


def close_memory() -> bool:
    """From now on who is not root can neither read our memory nor attach to us; nor is a core written.

    What we start is not concerned: it is another program.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return bool(libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0)
