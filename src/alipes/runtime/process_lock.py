"""One process at a time: a locked file that says who it is. The kernel releases it, however that one ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.kernel.errors import ConfigError


class Holder(Struct, frozen=True):
    """What the one process says of itself."""

    pid: int
    address: str
    started: float


class Taken(ConfigError):
    """Another living process has the claim."""

    def __init__(self, holder: Holder) -> None:
        where = f" at {holder.address}" if holder.address else ""
        super().__init__(
            f"another `alipes serve` serves this home already: process {holder.pid}{where}. "
            "Say --replace to take over, or leave it to its work"
        )
        self.holder = holder


@contextmanager
def claim(path: Path) -> Iterator["Claim"]:
    """Hold `path` while entered; raises `Taken` where another does, ConfigError where it cannot be had."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Taken(_holder(file)) from None
        held = Claim(file, path)
        held.say("")
        yield held
    finally:
        os.close(file)  # the file itself stays: whoever opened it meanwhile must find the same one locked


class Claim:
    def __init__(self, file: int, path: Path) -> None:
        self._file, self._path, self._started = file, path, time.time()

    def say(self, address: str) -> None:
        """Tell those who come later where we are. Raises ConfigError where that cannot be written."""
        told = msgspec.json.encode(Holder(os.getpid(), address, self._started))
        try:
            os.pwrite(self._file, told, 0)
            os.ftruncate(self._file, len(told))
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}") from error


def holder(path: Path) -> Holder | None:
    """Who holds it now; None when nobody does."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(file)
    finally:
        os.close(file)
    return None


def _holder(file: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=Holder)
    except msgspec.DecodeError:  # it has just begun
        return Holder(0, "", 0.0)
