"""State of messengers in small files, above all the read position.

A lost or old read position is harmless, since the store ignores messages that it already has.
"""

import asyncio
import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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


def write_atomic(path: Path, data: bytes) -> None:
    """Write a private file atomically; writers may overlap. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # tools treat the temporary file of a key as a key because of this name, and backups leave it out
    fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    with open(fresh, "wb", opener=_private) as file:
        file.write(data)
    os.replace(fresh, path)


class StateFile(Generic[T]):
    """A private file with one struct; the default value if it is missing or unreadable."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path, self._kind = path, kind

    def read(self) -> T:
        return read_state(self._path, self._kind)

    def write(self, value: T) -> None:
        write_atomic(self._path, msgspec.json.encode(value))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class ReadState(Struct):
    mark: int = 0
    """All messages up to this one were delivered."""
    places: dict[str, str] = {}
    """Channels and threads (`CHANNEL/THREAD`) where someone wrote to us, with a note of the messenger; the
    latest last."""


S = TypeVar("S", bound=ReadState)
MAX_DELIVERED = 2000
MAX_AGE = 86_400.0
"""Seconds after which a missed message is no longer answered."""


class ReadPosition(Generic[S]):
    """The position up to which all messages were delivered, and the places where people write to us.

    Messages start in order and finish in any order."""

    def __init__(self, path: Path, kind: type[S], max_places: int) -> None:
        self._path, self._max_places = path, max_places
        self._state = read_state(path, kind)
        self._highest = self._state.mark
        self._delivered: dict[str, None] = {}
        self._open: dict[int, int] = {}
        self.changed = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def position(self) -> int:
        """All messages up to this one were delivered."""
        return min(self._open, default=self._highest + 1) - 1

    @property
    def places(self) -> dict[str, str]:
        return dict(self._state.places)

    def was_delivered(self, name: str) -> bool:
        return name in self._delivered

    def mark_delivered(self, name: str) -> bool:
        """Remember a message as delivered. Returns False if it already was."""
        new = name not in self._delivered
        put_bounded(self._delivered, name, None, MAX_DELIVERED)
        return new

    def remember_place(self, place: str, note: str) -> bool:
        """Returns True if the place is new. It must be saved then: after a kill nothing else would name it."""
        new = place not in self._state.places
        put_bounded(self._state.places, place, note, self._max_places)
        self.changed.set()
        return new

    def forget(self, channel: str) -> None:
        """Forget a channel and its threads."""
        for known in [place for place in self._state.places if place.partition("/")[0] == channel]:
            del self._state.places[known]
        self.changed.set()

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
        write_atomic(self._path, self._encoded())

    def _encoded(self) -> bytes:
        return msgspec.json.encode(replace(self._state, mark=self.position))
