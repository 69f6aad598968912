"""How far we have listened to Slack: after a gap, what was said meanwhile is read."""

import time
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from alipes.platforms.kept import put, read
from alipes.platforms.progress import Progress

OLDEST = 86_400.0
"""Seconds after which a message that nobody heard is not answered any more."""
OVERLAP = 30.0
"""Seconds by which messages of different channels may overtake each other on their way to us."""
PLACES = 300
HANDED = 2000
SAID = 500
Part: TypeAlias = Literal["", "hangs", "ours", "called"]
"""What we have to do with a place: it is a channel; a thread that hangs from what was said to us, and nobody
spoke in it yet; the same, and someone did; a thread of others into which we were called."""


class Kept(Struct):
    mark: int = 0
    """Everything up to this moment (in millionths of a second, as Slack names messages) was handed over."""
    began: int = 0
    """Before this we were not there at all."""
    places: dict[str, Part] = {}
    """Channels, and threads (`CHANNEL/THREAD`), where someone spoke to us; the latest last."""
    said: dict[str, str] = {}
    """What people's own programs call a message, and what we do: Slack may tell of one twice, as of two."""


class Seen(Progress):
    """And where people write to us, and under which names."""

    def __init__(self, path: Path) -> None:
        self._kept = read(path, Kept)
        self._kept.began = self._kept.began or int(time.time() * 1_000_000)
        super().__init__(path, self._kept.mark)
        self._handed: dict[str, None] = {}
        self.changed.set()

    @property
    def places(self) -> dict[str, Part]:
        return dict(self._kept.places)

    def since(self) -> int:
        """The moment after which to read: nothing from before we were there, and nothing that is too old."""
        oldest = int((time.time() - OLDEST) * 1_000_000)
        return max(self.mark - int(OVERLAP * 1_000_000), oldest, self._kept.began)

    def handed(self, name: str) -> bool:
        """Was this one handed over before, by us and lately?"""
        return name in self._handed

    def hand(self, name: str) -> None:
        put(self._handed, name, None, HANDED)

    def said_as(self, client: str, name: str) -> str:
        """What we called the message first that someone's own program calls `client`."""
        if client and client not in self._kept.said:
            put(self._kept.said, client, name, SAID)
        return self._kept.said.get(client, name)

    def visit(self, place: str, part: Part = "") -> None:
        fresh = not part and place not in self._kept.places
        put(self._kept.places, place, part, PLACES)
        self.changed.set()
        if fresh:  # a channel that is known when the next line is up is read before what comes by it
            self.flush()

    def forget(self, place: str) -> None:
        for known in [each for each in self._kept.places if each.partition("/")[0] == place]:
            del self._kept.places[known]
        self.changed.set()

    def _encoded(self) -> bytes:
        kept = self._kept
        return msgspec.json.encode(Kept(self.mark, kept.began, kept.places, kept.said))


def moment(ts: str) -> int:
    """`1731686400.123456` as a number of millionths."""
    seconds, _, rest = ts.partition(".")
    return int(seconds) * 1_000_000 + int(f"{rest:0<6.6}" or 0)


def stamp(moment: int) -> str:
    return f"{moment // 1_000_000}.{moment % 1_000_000:06d}"
