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


async def hand_over(settings: Settings, environment: Path, command: str, show: Show) -> tuple[str, ...]:
    """Restart the `alipes serve` of this home and its profiles with the version in `environment`.

    `command`: starts that version. Returns what the person has to do about those that cannot be restarted from here,
    as sentences.
    """
    steps: list[str] = []
    for home in all_homes(settings.home):
        lock = home / "run" / LOCK_NAME
        if (holder := find_holder(lock)) is None or not holder.pid:
            continue
        who = f"`alipes serve` (process {holder.pid})"
        if _runs_in_terminal(holder):
            steps.append(f"{who} runs in a terminal: stop it there with Ctrl-C, then start `{command} serve`.")
            continue
        if _find_environment(holder) in (environment, *_list_versions(settings.home)):
            show(f"handing over {who}")
            os.kill(holder.pid, signal.SIGHUP)
            if (now := await _wait_until_restarted(lock, holder, settings.serve.drain + GRACE_S)) is None:
                steps.append(f"{who} has not restarted yet: see {settings.paths.log}.")
                continue
            holder = now
        if _find_environment(holder) != environment:
            steps.append(
                f"{who} still runs the other version: stop it, then start `{command} serve` (with systemd: "
                f"`{command} serve install --write`, then restart the service)."
            )
    return tuple(steps)


def _list_versions(home: Path) -> list[Path]:
    folder = find_root(home) / VERSIONS
    return [folder / each.name for each in folder.iterdir()]


def _find_environment(holder: LockHolder) -> Path | None:
    """The environment of the Python that runs it."""
    try:
        words = Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return Path(os.fsdecode(words[0])).parent.parent


def _runs_in_terminal(holder: LockHolder) -> bool:
    """There a restart from outside means that the terminal was closed."""
    try:
        return os.readlink(f"/proc/{holder.pid}/fd/0").startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False


async def _wait_until_restarted(lock: Path, before: LockHolder, seconds: float) -> LockHolder | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = find_holder(lock)
        if now is not None and now.started > before.started and now.address:
            return now
        await asyncio.sleep(0.05)
    return None
