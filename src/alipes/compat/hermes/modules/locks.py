"""`gateway.status`: locks by which one process at a time uses an account, and facts about processes."""

import hashlib
import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from alipes.config.paths import current_scope
from alipes.runtime.process_lock import AlreadyRunning, hold_process_lock

_HELD: dict[tuple[str, str, str], ExitStack] = {}
"""By profile, scope and account: another profile in this process does not hold what this one holds."""


def acquire_scoped_lock(
    scope: str, identity: str, metadata: dict[str, Any] | None = None
) -> tuple[bool, dict[str, Any] | None]:
    """Lock an account for this process, on this machine and for this user.

    Returns False and facts about the holder if another process has it. Released when the process ends.
    """
    if (current_scope(), scope, identity) in _HELD:
        return True, None
    file = _lock_file(scope, identity)
    try:
        stack = _lock(file, str((metadata or {}).get("platform") or scope))
    except AlreadyRunning as error:
        return False, {"pid": error.holder.pid, "scope": scope, "started_at": error.holder.started}
    _HELD[current_scope(), scope, identity] = stack
    return True, None


def _lock(file: Path, note: str) -> ExitStack:
    """Raises AlreadyRunning. The file is deleted when the stack is closed."""
    while True:
        stack = ExitStack()
        held = stack.enter_context(hold_process_lock(file))
        if held.is_current():
            stack.callback(file.unlink, missing_ok=True)
            held.write_address(note)
            return stack
        stack.close()  # the holder before us deleted the file that we locked


def release_scoped_lock(scope: str, identity: str) -> None:
    _release(current_scope(), scope, identity)


def _release(*held: str) -> None:
    stack = _HELD.pop((held[0], held[1], held[2]), None)
    if stack is not None:
        stack.close()


def release_all() -> None:
    """Release what plugins did not release; called when the last one is closed."""
    for held in [*_HELD]:
        _release(*held)


def _lock_file(scope: str, identity: str) -> Path:
    """Accounts may be secrets, so the name has only their hash."""
    account = hashlib.sha256(f"{scope}:{identity}".encode()).hexdigest()[:32]
    return Path(tempfile.gettempdir()) / f"alipes-{os.getuid()}-{account}.lock"


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
