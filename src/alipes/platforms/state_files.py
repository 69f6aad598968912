"""How far we have listened to a messenger that numbers what is said, kept in a small file.

A file, not a row: being behind is harmless, since the store refuses what it has already.
"""

import asyncio
import os
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def put(table: dict[K, V], key: K, value: V, most: int) -> None:
    """At the end; what is at the beginning goes when there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > most:
        del table[next(iter(table))]


def read(path: Path, kind: type[T]) -> T:
    """What was written down; a new one where nothing was, or nothing that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return kind()


def write(path: Path, data: bytes, beside: str = "") -> None:
    """Whole, or not at all; only we may read it. Who writes while another may be writing does it `beside`
    that one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # By this name tools know it for a key's, where it is one, and backups leave it out.
    fresh = path.with_name(f".{path.name}{beside}.part")
    with open(fresh, "wb", opener=_private) as file:
        file.write(data)
    os.replace(fresh, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Progress:
    """Messages are begun in the order they come, and done in any."""

    def __init__(self, path: Path, mark: int) -> None:
        self._path, self._highest = path, mark
        self._open: dict[int, int] = {}
        self.changed = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def mark(self) -> int:
        """Everything up to this one has been handed over."""
        return min(self._open, default=self._highest + 1) - 1

    def hold(self) -> int:
        """Keep the mark where it is until `done` with what this gives: a gap is being read."""
        return self.begin(self.mark + 1, moves=False)

    def begin(self, message: int, *, moves: bool = True) -> int:
        self._open[message] = self._open.get(message, 0) + 1
        if moves:
            self._highest = max(self._highest, message)
        return message

    def done(self, message: int) -> None:
        left = self._open.pop(message) - 1
        if left:
            self._open[message] = left
        self.changed.set()

    async def keep(self, pause: float = 1.0) -> None:
        """Write it down now and then, until cancelled."""
        while True:
            await self.changed.wait()
            await self.write()
            await asyncio.sleep(pause)

    async def write(self) -> None:
        """At once: what must be known after a kill, too."""
        async with self._writing:
            self.changed.clear()
            await asyncio.to_thread(write, self._path, self._encoded())

    def flush(self) -> None:
        # Under a name of its own: a thread of `keep` may still be writing.
        write(self._path, self._encoded(), ".last")

    def _encoded(self) -> bytes:
        """What is written down."""
        raise NotImplementedError
