"""`gateway.status`: locks by which one process at a time uses an account, and facts about processes."""

import hashlib
import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from alipes.config.paths import make_private
from alipes.runtime.process_lock import AlreadyRunning, hold_process_lock

_HELD: dict[tuple[str, str], ExitStack] = {}


def acquire_scoped_lock(
    scope: str, identity: str, metadata: dict[str, Any] | None = None
) -> tuple[bool, dict[str, Any] | None]:
    """Lock an account for this process, on this machine and for this user.

    Returns False and facts about the holder if another process has it. Released when the process ends.
    """
    if (scope, identity) in _HELD:
        return True, None
    stack = ExitStack()
    try:
        held = stack.enter_context(hold_process_lock(_lock_file(scope, identity)))
    except AlreadyRunning as error:
        return False, {"pid": error.holder.pid, "scope": scope, "started_at": error.holder.started}
    held.write_address(str((metadata or {}).get("platform") or scope))
    _HELD[scope, identity] = stack
    return True, None


def release_scoped_lock(scope: str, identity: str) -> None:
    stack = _HELD.pop((scope, identity), None)
    if stack is not None:
        stack.close()


def _lock_file(scope: str, identity: str) -> Path:
    """Accounts may be secrets, so the name has only their hash."""
    folder = make_private(Path(tempfile.gettempdir()) / f"alipes-locks-{os.getuid()}")
    return folder / f"{hashlib.sha256(f'{scope}:{identity}'.encode()).hexdigest()[:32]}.lock"


def pid_exists(pid: int) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def read_process_cmdline(pid: int) -> str | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return None


def get_process_start_time(pid: int) -> int | None:
    """In clock ticks since boot; None if there is no such process."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return None
