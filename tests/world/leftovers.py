"""What a test leaves behind outside of this process: in the temporary folder, and as processes that are nobody's
children any more. Each worker has a temporary folder of its own, so what lies there was put there by its tests."""

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

from alipes.testing.leaks import Look, Tell, command

TMPDIR = "TMPDIR"
PREFIX = "alipes-tests-"
LASTING = ExitStack()
"""Closes what all tests share, once the last is done."""


class Leftovers:
    """Looks for what was left in `folder`, and for who was started with it for a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"{TMPDIR}={folder}\0".encode()
        self._faults = -1
        self._ours: list[str] = []
        self._others: set[str] = set()
        self.looks: dict[str, Look] = {"files": self.files, "strays": self.strays}

    def files(self) -> Iterator[tuple[str, Tell]]:
        for name in os.listdir(self.folder):
            yield name, partial(_file, self.folder / name)

    def strays(self) -> Iterator[tuple[str, Tell]]:
        """Who is left by a parent that is gone: its end is counted among what our children have used."""
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
            if given and self._mark not in given:  # with nothing it is on its way to another program
                self._others.add(pid)
            return self._mark in given
        return False

    def _stray(self, pid: str) -> str:
        return f"{pid}: {command(pid)}" if self._is_ours(pid) and not _descends(pid) else ""


def _descends(pid: str) -> bool:
    """Is it of our living family? Who has a parent there is looked after."""
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
    """This process and those it starts put temporary files here. It is gone at the end; where we are killed, the
    next who needs one removes it, as the kernel has let go of its lock then."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, pytest.MonkeyPatch.context() as patch:
        lock = _locked(name)
        os.chmod(name, 0o711)  # servers that give up being root find what is theirs
        patch.setenv("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # folders of tests stay where they are
        patch.setenv(TMPDIR, name)
        patch.setenv("HOME", tempfile.mkdtemp(prefix="home-", dir=name))
        patch.setattr(tempfile, "tempdir", None)
        try:
            yield Path(name)
        finally:
            os.close(lock)


def _sweep(place: Path) -> None:
    long_ago = time.time() - 600  # a younger one may be about to be locked
    for old in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if old.stat().st_mtime < long_ago:
                os.close(_locked(old))
                shutil.rmtree(old, ignore_errors=True)


def _locked(folder: str | Path) -> int:
    """Raises `OSError` when somebody else holds it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
