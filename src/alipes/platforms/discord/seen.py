"""How far we have listened to Discord: after a gap, what was said is read where people write to us."""

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.platforms.kept import put, read
from alipes.platforms.progress import Progress

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


class Seen(Progress):
    """And where people write to us."""

    def __init__(self, path: Path) -> None:
        self._kept = read(path, Kept)
        super().__init__(path, self._kept.mark)
        self._handed: dict[str, None] = {}

    @property
    def places(self) -> dict[str, str]:
        return dict(self._kept.places)

    def since(self) -> int:
        """The id after which to read; zero when there was nothing before."""
        oldest = (int((time.time() - OLDEST) * 1000) - EPOCH) << 22
        return max(self.mark, oldest) if self.mark else 0

    def first(self, name: str) -> bool:
        """Whether this one was not handed over before, by us and lately."""
        if name in self._handed:
            return False
        put(self._handed, name, None, HANDED)
        return True

    async def visit(self, place: str, guild: str) -> None:
        """A place that is new is written down at once: after a kill nobody else would tell us of it."""
        new = place not in self._kept.places
        put(self._kept.places, place, guild, PLACES)
        self.changed.set()
        if new:
            await self.write()

    def forget(self, place: str) -> None:
        self._kept.places.pop(place, None)
        self.changed.set()

    def _encoded(self) -> bytes:
        return msgspec.json.encode(Kept(self.mark, self._kept.places))
