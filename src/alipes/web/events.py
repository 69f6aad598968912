"""What a run tells, numbered, so that a listener who lost the line goes on where it was. It sends nothing.

A number is `MESSAGES`, or `MESSAGES.PLACE.TELLER` for what was told since that many messages were said.
Messages are in the journal and are told again by any process; the rest is told once, and only until the
message that it belongs to is said whole.
"""

import asyncio
import os
import re
from collections.abc import Iterable

from msgspec import Struct

from alipes.kernel.messages import Message
from alipes.kernel.turns import (
    Event,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from alipes.store import rows
from alipes.web.sse import frame

END = "end"
"""The number of the last event."""
NO_PIECES = -1
"""The place of one who goes on with the next message, not with its pieces."""
RESTARTED = "the process that lived the run was restarted"
_NUMBER = re.compile(r"(?P<said>[0-9]{1,9})(?:\.(?P<place>[0-9]{1,9})\.(?P<teller>[0-9a-f]{1,16}))?")


class Mark(Struct, frozen=True):
    """How far somebody has listened."""

    said: int = 0
    """Messages they have heard."""
    place: int = 0
    """What they have heard since the last of them."""
    teller: str = ""
    """Who told it."""


def mark(number: str) -> Mark:
    """From `Last-Event-ID`; what is no number of ours counts as the beginning."""
    found = _NUMBER.fullmatch(number.strip())
    if found is None:
        return Mark()
    return Mark(int(found["said"]), int(found["place"] or 0), found["teller"] or "")


def written(event: Event, number: str) -> bytes:
    return frame(rows.encode(event), event=str(event.__struct_config__.tag), id=number)


def from_journal(said: Iterable[Message], ended: TurnEnded, since: Mark) -> bytes:
    """The rest of a run that is over, for who has heard it up to there."""
    numbered = list(enumerate(said, 1))
    heard = since.said if since.said <= len(numbered) else 0
    return b"".join(written(Said(each), str(n)) for n, each in numbered[heard:]) + written(ended, END)


class Chronicle:
    """Of one run, while it lives. Whoever listens reads on from their mark, each at their own pace."""

    def __init__(self) -> None:
        self._teller = os.urandom(4).hex()
        self._said: list[bytes] = []
        self._since: list[bytes] = []
        """Told since the last message: not told again after the next one, which says it whole."""
        self._before: list[bytes] = []
        """The same before the last message, for who listened then and has not read it yet."""
        self._ended = b""
        self._waiting: set[asyncio.Future[None]] = set()
        self._headless = False
        """A message was begun before we came: its pieces would not make a text."""
        self.closed = False
        """Nothing more is told here, whether the run has ended or not."""
        self.listeners = 0

    def join_late(self) -> None:
        """The run may be in the middle of a message."""
        self._headless = True

    def add(self, event: Event, *, old: bool = False) -> None:
        """`old`: it was read from the journal, and did not happen just now."""
        if isinstance(event, TextDelta | ThinkingDelta):
            if self._headless:
                return
        elif not old and isinstance(event, Said | TurnStarted | Retracted | ToolStarted | ToolFinished):
            self._headless = False
        if isinstance(event, Said):
            self._before, self._since = self._since, []
            self._said.append(written(event, str(len(self._said) + 1)))
        elif isinstance(event, TurnEnded):
            self._ended = written(event, END)
            self.closed = True
        else:
            number = f"{len(self._said)}.{len(self._since) + 1}.{self._teller}"
            self._since.append(written(event, number))
        self._wake()

    def close(self) -> None:
        """Listeners are to go; they may ask again."""
        self.closed = True
        self._wake()

    def resumed(self, since: Mark) -> tuple[bytes, Mark]:
        """Where to go on, and what to say first: pieces that another teller began will not be finished."""
        if since.said > len(self._said):  # never told by us
            since = Mark()
        if since.said < len(self._said):
            return b"", Mark(since.said, NO_PIECES)
        if since.place and since.teller != self._teller:
            return written(Retracted(RESTARTED), str(since.said)), Mark(since.said)
        return b"", since

    def after(self, since: Mark) -> tuple[bytes, Mark, bool]:
        """Everything told since then, how far that goes, and whether that is all."""
        unread, place = [], max(since.place, 0)
        if since.said == len(self._said) - 1 and since.place != NO_PIECES:
            unread = self._before[place:]
        pieces = self._since[place:] if since.said == len(self._said) else self._since
        frames = (*unread, *self._said[since.said :], *pieces, self._ended)
        return b"".join(frames), Mark(len(self._said), len(self._since), self._teller), self.closed

    async def news(self) -> None:
        """Wait until something more is told, or nothing will be."""
        if self.closed:
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(told)
        try:
            await told
        finally:
            self._waiting.discard(told)

    def _wake(self) -> None:
        for told in self._waiting:
            if not told.done():
                told.set_result(None)
