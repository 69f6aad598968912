"""Ends child processes when this process is killed, and orphans of earlier processes at start (Linux)."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from alipes.runtime.processes import process_tree

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


class OrphanGuard:
    """Keeps children from outliving this process. Idle until the first child."""

    def __init__(self, records: Path) -> None:
        self.owner = process_tree.new_owner()
        self._record, self._files = records / str(self.owner), records / f"of-{self.owner}"
        self._lock = -1
        self._watchdog: subprocess.Popen[bytes] | None = None

    def guard(self) -> int:
        """Call before starting a child. Returns the owner number for its mark."""
        if process_tree.LINUX:
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
    if process_tree.LINUX:
        await asyncio.to_thread(kill_orphans, run)
    keeper = OrphanGuard(run / "children")
    try:
        yield keeper
    finally:
        keeper.close()


@contextmanager
def scratch_directory(keeper: OrphanGuard | None) -> Iterator[Path]:
    """A temporary directory; with a guard it is removed even if this process is killed."""
    kept = keeper.folder() if keeper is not None and process_tree.LINUX else None
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
    ended: set[process_tree.ProcessId] = set()
    for _ in range(100):
        left = list(process_tree.find_marked(owner))
        if not left:
            break
        for one in left:
            process_tree.send_signal(one, signal.SIGKILL)
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
