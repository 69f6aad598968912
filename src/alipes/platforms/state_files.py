"""State of messengers in small files, above all the read position.

A lost or old read position is harmless, since the store ignores messages that it already has.
"""

import asyncio
import os
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def put_bounded(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Put `key` at the end and drop the first entry if there are more than `most`."""
    table.pop(key, None)
    table[key] = value
    if len(table) > most:
        del table[next(iter(table))]


def read_state(path: Path, kind: type[T]) -> T:
    """Read a state file; a default value if it is missing or unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return kind()


def write_atomic(path: Path, data: bytes, beside: str = "") -> None:
    """Write a private file atomically. `beside`: suffix of the temporary file, for a writer that may
    overlap another. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # tools treat the temporary file of a key as a key because of this name, and backups leave it out
    fresh = path.with_name(f".{path.name}{beside}.part")
    with open(fresh, "wb", opener=_private) as file:
        file.write(data)
    os.replace(fresh, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class ReadPosition:
    """The position up to which all messages were delivered. Messages start in order and finish in any
    order."""

    def __init__(self, path: Path, mark: int) -> None:
        self._path, self._highest = path, mark
        self._open: dict[int, int] = {}
        self.changed = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def position(self) -> int:
        """All messages up to this one were delivered."""
        return min(self._open, default=self._highest + 1) - 1

    def hold(self) -> int:
        """Keep the position where it is until `finish` is called with the result: a gap is being read."""
        return self.start(self.position + 1, moves=False)

    def start(self, message: int, *, moves: bool = True) -> int:
        self._open[message] = self._open.get(message, 0) + 1
        if moves:
            self._highest = max(self._highest, message)
        return message

    def finish(self, message: int) -> None:
        left = self._open.pop(message) - 1
        if left:
            self._open[message] = left
        self.changed.set()

    async def save_periodically(self, pause: float = 1.0) -> None:
        """Save now and then, until cancelled."""
        while True:
            await self.changed.wait()
            await self.save()
            await asyncio.sleep(pause)

    async def save(self) -> None:
        """Save now, so that it survives a kill."""
        async with self._writing:
            self.changed.clear()
            await asyncio.to_thread(write_atomic, self._path, self._encoded())

    def flush(self) -> None:
        # a suffix of its own: the thread of `save_periodically` may still be writing
        write_atomic(self._path, self._encoded(), ".last")

    def _encoded(self) -> bytes:
        """Content of the file."""
        raise NotImplementedError
