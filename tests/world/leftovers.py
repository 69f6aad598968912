"""Finds what a test leaves behind outside of this process: temporary files, and orphaned processes.

Each worker has its own temporary folder, so that its leftovers can be attributed to its tests.
"""

import fcntl
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from alipes.testing.leaks import Describe, LeakProbe, command_line

TMPDIR = "TMPDIR"
PREFIX = "alipes-tests-"
LASTING = ExitStack()
"""Closes resources shared by all tests, after the last."""


class Leftovers:
    """Finds files left in `folder`, and processes that have it as TMPDIR."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"{TMPDIR}={folder}\0".encode()
        self._faults = -1
        self._ours: list[str] = []
        self._others: set[str] = set()
        self.looks: dict[str, LeakProbe] = {"files": self.files, "strays": self.strays}

    def files(self) -> Iterator[tuple[str, Describe]]:
        for name in os.listdir(self.folder):
            yield name, partial(_file, self.folder / name)

    def strays(self) -> Iterator[tuple[str, Describe]]:
        """Processes whose parent has exited. Checked only if a child exited since the last check (its page faults count)."""
        faults = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        if faults != self._faults and os.path.isdir("/proc/self"):
            self._faults = faults
            there = {name for name in os.listdir("/proc") if name.isdecimal()}
            self._others &= there
            self._ours = [pid for pid in there - self._others if self._is_ours(pid)]
        for pid in self._ours:
            yield pid, partial(self._stray, pid)

    def _is_ours(self, pid: str) -> bool:
        with suppress(OSError):
            given = Path("/proc", pid, "environ").read_bytes()
            if given and self._mark not in given:  # an empty environment: it is just starting another program
                self._others.add(pid)
            return self._mark in given
        return False

    def _stray(self, pid: str) -> str:
        return f"{pid}: {command_line(pid)}" if self._is_ours(pid) and not _is_descendant(pid) else ""


def _is_descendant(pid: str) -> bool:
    """True for a descendant of this process: its parent takes care of it."""
    while pid not in ("", "0", "1"):
        if pid == str(os.getpid()):
            return True
        pid = _parent(pid)
    return False


def _parent(pid: str) -> str:
    with suppress(OSError):
        return Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
    return ""


def _file(path: Path) -> str:
    inside = sorted(each.name for each in path.iterdir()) if path.is_dir() else ()
    return f"{path} {' '.join(inside)}"[:200].strip()


@contextmanager
def own_temporary_folder() -> Iterator[Path]:
    """A temporary folder for this process and its children. It is removed at the end; if this process is killed,
    the next run removes it."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, pytest.MonkeyPatch.context() as patch:
        lock = _lock(name)
        os.chmod(name, 0o711)  # readable for servers that drop root
        patch.setenv("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # keeps the test folders elsewhere
        patch.setenv(TMPDIR, name)
        patch.setenv("HOME", tempfile.mkdtemp(prefix="home-", dir=name))
        patch.setattr(tempfile, "tempdir", None)
        try:
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned(place: Path) -> None:
    long_ago = time.time() - 600  # a newer one may not be locked yet
    for old in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if old.stat().st_mtime < long_ago:
                os.close(_lock(old))
                shutil.rmtree(old, ignore_errors=True)


def _lock(folder: str | Path) -> int:
    """Raises `OSError` if another process holds the lock."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
