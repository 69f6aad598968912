"""Hands a running `alipes serve` over to another version: it drains, then starts that version in its place."""

import asyncio
import os
import signal
import time
from pathlib import Path

from alipes.config.paths import LOCK_NAME, VERSIONS, all_homes, find_root
from alipes.config.settings import Settings
from alipes.features.update.environment import Show
from alipes.runtime.process_lock import LockHolder, find_holder

GRACE_S = 30.0
"""For the start of the new version, after the drain."""


async def hand_over(settings: Settings, python: Path, show: Show) -> tuple[str, ...]:
    """Restart the `alipes serve` of this home and its profiles with the environment of `python`.

    Returns what the person has to do about those that cannot be restarted from here, as sentences.
    """
    steps: list[str] = []
    for home in all_homes(settings.home):
        lock = home / "run" / LOCK_NAME
        if (holder := find_holder(lock)) is None or not holder.pid:
            continue
        if not _restarts_itself(holder, python, find_root(settings.home)):
            steps.append(f"`alipes serve` (process {holder.pid}) runs the old version until you restart it.")
            continue
        show(f"handing over `alipes serve` (process {holder.pid})")
        os.kill(holder.pid, signal.SIGHUP)
        if not await _wait_until_restarted(lock, holder, settings.serve.drain + GRACE_S):
            steps.append(f"`alipes serve` (process {holder.pid}) has not restarted yet: see {settings.paths.log}.")
    return tuple(steps)


def _restarts_itself(holder: LockHolder, python: Path, root: Path) -> bool:
    """Whether a restart starts the current version: it runs one of the home, or is of the same environment."""
    try:
        words = Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    environment = Path(os.fsdecode(words[0])).parent.parent
    return environment.parent == root / VERSIONS or environment == python.parent.parent


async def _wait_until_restarted(lock: Path, before: LockHolder, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = find_holder(lock)
        if now is not None and now.started > before.started and now.address:
            return True
        await asyncio.sleep(0.05)
    return False
