"""A lock file held by one process at a time; the kernel releases it when the process ends."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.kernel.errors import ConfigError


class LockHolder(Struct, frozen=True):
    """What the lock file says about its holder."""

    pid: int
    address: str
    started: float


class AlreadyRunning(ConfigError):
    """Another running process holds the lock."""

    def __init__(self, holder: LockHolder) -> None:
        where = f" at {holder.address}" if holder.address else ""
        super().__init__(
            f"another `alipes serve` is already running for this home: process {holder.pid}{where}. "
            "Use --replace to take over"
        )
        self.holder = holder


@contextmanager
def hold_process_lock(path: Path) -> Iterator["ProcessLock"]:
    """Hold the lock on `path`. Raises AlreadyRunning or, if it cannot be written, ConfigError."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(_read_holder(file)) from None
        held = ProcessLock(file, path)
        held.write_address("")
        yield held
    finally:
        os.close(file)  # the file is kept: another process may have opened it and must find the same file locked


class ProcessLock:
    def __init__(self, file: int, path: Path) -> None:
        self._file, self._path, self._started = file, path, time.time()

    def write_address(self, address: str) -> None:
        """Write our address into the file. Raises ConfigError if it cannot be written."""
        text = msgspec.json.encode(LockHolder(os.getpid(), address, self._started))
        try:
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}") from error

    def is_current(self) -> bool:
        """False if the file was deleted meanwhile, so that another process may lock a new one."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False


def find_holder(path: Path) -> LockHolder | None:
    """The current holder; None if there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(file)
    finally:
        os.close(file)
    return None


def _read_holder(file: int) -> LockHolder:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=LockHolder)
    except msgspec.DecodeError:  # the holder has only just started
        return LockHolder(0, "", 0.0)


MAX_PATH_BYTES = 100
"""The kernel allows 107 bytes; a longer path is addressed through its directory's descriptor."""


@contextmanager
def short_socket_path(path: str | Path) -> Iterator[str]:
    """A name for `path`, valid inside the context. Raises OSError if there is no short one."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    if not os.path.isdir("/proc/self/fd"):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    folder, name = os.path.split(path)
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{number}/{name}"
    finally:
        os.close(number)
