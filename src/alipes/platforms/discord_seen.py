"""How far we have listened: after a gap, what was said meanwhile is read where people write to us.

A file, not a row: being behind is harmless, since the store refuses what it has already.
"""

import asyncio
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

EPOCH = 1_420_070_400_000
OLDEST = 86_400.0
"""Seconds after which a message that nobody heard is not answered any more."""
PLACES = 200
HANDED = 2000


class Kept(Struct):
    mark: int = 0
    """Everything up to this message has been handed over."""
    places: dict[str, str] = {}
    """Channels and threads where someone spoke to us, with their guild; the latest last."""


class Seen:
    """Messages are begun in the order they come, and done in any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = _read(path)
        self._open: dict[int, int] = {}
        self._highest = self._kept.mark
        self._handed: dict[str, None] = {}
        self.changed = asyncio.Event()

    @property
    def places(self) -> dict[str, str]:
        return dict(self._kept.places)

    @property
    def mark(self) -> int:
        return min(self._open, default=self._highest + 1) - 1

    def since(self) -> int:
        """The id after which to read; zero when there was nothing before."""
        oldest = (int((time.time() - OLDEST) * 1000) - EPOCH) << 22
        return max(self.mark, oldest) if self.mark else 0

    def hold(self) -> int:
        """Keep the mark where it is until `done` with what this gives: a gap is being read."""
        message = self.mark + 1
        self._open[message] = self._open.get(message, 0) + 1
        return message

    def begin(self, message: int) -> int:
        self._open[message] = self._open.get(message, 0) + 1
        self._highest = max(self._highest, message)
        return message

    def done(self, message: int) -> None:
        left = self._open.pop(message) - 1
        if left:
            self._open[message] = left
        self.changed.set()

    def first(self, name: str) -> bool:
        """Whether this one was not handed over before, by us and lately."""
        if name in self._handed:
            return False
        self._handed[name] = None
        if len(self._handed) > HANDED:
            del self._handed[next(iter(self._handed))]
        return True

    def visit(self, place: str, guild: str) -> None:
        self._kept.places.pop(place, None)
        self._kept.places[place] = guild
        if len(self._kept.places) > PLACES:
            del self._kept.places[next(iter(self._kept.places))]
        self.changed.set()

    def forget(self, place: str) -> None:
        self._kept.places.pop(place, None)
        self.changed.set()

    async def keep(self, pause: float = 1.0) -> None:
        """Write it down now and then, until cancelled."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            await asyncio.to_thread(_write, self._path, self._encoded())
            await asyncio.sleep(pause)

    def flush(self) -> None:
        # Under a name of its own: a thread of `keep` may still be writing.
        _write(self._path, self._encoded(), ".last")

    def _encoded(self) -> bytes:
        return msgspec.json.encode(Kept(self.mark, self._kept.places))


def _read(path: Path) -> Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return Kept()


def _write(path: Path, data: bytes, suffix: str = ".new") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(suffix)
    fresh.write_bytes(data)
    os.replace(fresh, path)
