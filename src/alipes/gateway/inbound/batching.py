"""What waits to become a message: pictures for their company, voice notes for their words.

Whatever comes after them in the same conversation waits behind them, so that nobody is overtaken. All of
it is kept in the store, so that the platform may forget it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import structs

from alipes.gateway.policy import Group
from alipes.kernel.platform import Arrival
from alipes.store.inbox import SqliteArrivals, Waiting

Become: TypeAlias = Callable[[Sequence[Arrival]], Awaitable[None]]
"""Make one message of these; called for one conversation after the other, in order."""


class _Line:
    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.joined = asyncio.Event()


class Anteroom:
    def __init__(self, arrivals: SqliteArrivals, become: Become, *, burst: float, group: Group) -> None:
        """`burst`: seconds that a picture waits for another."""
        self._arrivals, self._become, self._burst, self._group = arrivals, become, burst, group
        self._lines: dict[str, _Line] = {}
        self._recalled = False
        """Does all stand in line that an earlier process left here?"""

    async def recall(self, platforms: Sequence[str]) -> None:
        """Go on with what an earlier process left here."""
        for platform in platforms:
            for waiting in await self._arrivals.waiting(platform):
                self._join(waiting)
        self._recalled = True

    def wanted(self, arrival: Arrival) -> bool:
        """Does it have to wait here? Something is ahead of it, or it has to be made whole."""
        return arrival.address.key in self._lines or _pictures(arrival) or is_voice(arrival)

    async def take(self, arrival: Arrival) -> None:
        """It is kept once this returns; a second copy is nothing, unless who brought the first was cut off
        before it stood in line."""
        platform, line = arrival.address.platform, self._lines.get(arrival.address.key)
        fresh = await self._arrivals.keep(arrival)
        here = line is not None and any(each.arrival.id == arrival.id for each in line.waiting)
        lost = self._recalled and not fresh and not here
        if fresh or (lost and await self._arrivals.waits(platform, arrival.id)):
            self._join(Waiting(arrival, ""))

    async def amend(self, edit: Arrival) -> bool:
        """Give one that waits the words of its edit; False if it does not wait here."""
        line = self._lines.get(edit.address.key)
        for place, waiting in enumerate(line.waiting if line is not None else ()):
            if line is not None and waiting.arrival.id == edit.edits and not waiting.batch:
                changed = structs.replace(waiting.arrival, text=edit.text, quoted=edit.quoted)
                line.waiting[place] = Waiting(changed, "")
                await self._arrivals.replace(changed)
                return True
        return False

    def _join(self, waiting: Waiting) -> None:
        key = waiting.arrival.address.key
        line = self._lines.get(key)
        if line is None:
            line = _Line()
            if not self._group.start(self._serve(key, line), f"anteroom {key}"):
                return  # we are ending: it is kept for the next start
            self._lines[key] = line
        line.waiting.append(waiting)
        line.joined.set()

    async def _serve(self, key: str, line: _Line) -> None:
        while line.waiting:
            together = await self._company(line)
            ids = tuple(each.arrival.id for each in together)
            platform = together[0].arrival.address.platform
            if len(ids) > 1 and not together[0].batch:
                await self._arrivals.batch(platform, ids[0], ids)
            for place in range(len(ids)):
                line.waiting[place] = structs.replace(together[place], batch=ids[0])
            await self._become([each.arrival for each in together])
            await self._arrivals.settle(platform, *ids)
            del line.waiting[: len(ids)]
        del self._lines[key]

    async def _company(self, line: _Line) -> list[Waiting]:
        """The first, and those that belong to it: waited for as long as they keep coming."""
        while True:
            first = line.waiting[0]
            together = [first]
            for each in line.waiting[1:]:
                if not _belongs(each, first):
                    return together
                together.append(each)
            if first.batch or not _pictures(first.arrival):
                return together
            line.joined.clear()
            try:
                async with asyncio.timeout(self._burst):
                    await line.joined.wait()
            except TimeoutError:
                return together


def is_voice(arrival: Arrival) -> bool:
    return any(file.kind == "voice" for file in arrival.files)


def _pictures(arrival: Arrival) -> bool:
    pictured = any(file.kind in ("image", "video") for file in arrival.files)
    return bool(arrival.album or arrival.images or pictured)


def _belongs(each: Waiting, first: Waiting) -> bool:
    if each.batch or first.batch:
        return each.batch == first.batch
    one, other = each.arrival, first.arrival
    if one.sender != other.sender or one.album != other.album:
        return False
    return _pictures(one) and _pictures(other) and not (one.edits or one.quoted)
