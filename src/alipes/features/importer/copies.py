"""The temporary folder for copies of an import, and the lock that keeps a second import of the same home out."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from alipes.config.paths import make_private_tree
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.runtime.process_lock import AlreadyRunning, hold_process_lock

_PREFIX, _LOCK = "alipes-import-", ".lock"
_NEW_S = 60.0
"""A folder without a lock that is younger may be another import that has just begun."""


@contextmanager
def open_copies() -> Iterator[Path]:
    """A folder of our own. Those of imports that were killed are removed: whole conversations may be in them."""
    _remove_left()
    made = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    with made as name, open(Path(name, _LOCK), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def _remove_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            if found.st_uid != os.geteuid() or not folder.is_dir() or folder.is_symlink():
                continue
            if not (folder / _LOCK).exists() and time.time() - found.st_mtime < _NEW_S:
                continue
            with open(folder / _LOCK, "ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_imports(settings: Settings) -> Iterator[None]:
    """Raises ConfigError while another process imports into this home, or takes an import back."""
    make_private_tree(settings.paths.run)
    try:
        with hold_process_lock(settings.paths.run / "import.lock"):
            yield
    except AlreadyRunning as running:
        why = f"Another import of {settings.home} is running (process {running.holder.pid}): wait until it has ended."
        raise ConfigError(why) from running
