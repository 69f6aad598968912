"""A file that whole lines are appended to, and that makes room for itself. It waits for the disk."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class Rotating:
    """Appends to `path`; past `largest` bytes the file becomes `.1`, `.1` becomes `.2`, the last is dropped.

    Several processes may write to one path: what is given at once is one append, and whoever finds
    that another has rotated opens the new file. Raises `OSError` only where it is opened.
    """

    def __init__(self, path: Path, *, largest: int, kept: int) -> None:
        self._path, self._largest, self._kept = path, largest, kept
        self._file = self._open()

    def append(self, lines: bytes) -> None:
        # A full disk is told to the person by the store; a log that cannot write has nobody to tell.
        with suppress(OSError):
            self._follow()
            size = os.fstat(self._file).st_size
            if size and size + len(lines) > self._largest:
                self._rotate()
        with suppress(OSError):
            while lines:
                lines = lines[os.write(self._file, lines) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _follow(self) -> None:
        """Open the file that now bears our name, if it is another than the one we hold."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), os.stat(self._path)):
                return
        # in this order: whoever is forked off meanwhile holds a file that is open
        before, self._file = self._file, self._open()
        os.close(before)

    def _rotate(self) -> None:
        # Who holds the lock is rotating this very file: write to it once more, and follow later.
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(self._file), os.stat(self._path)):
            return
        for number in range(self._kept, 1, -1):
            older = f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        os.replace(self._path, f"{self._path}.1")
        self._follow()
