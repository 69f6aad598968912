"""What was opened and not closed: tasks, clients, processes, file descriptors, threads. It closes nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Self, TypeAlias

from msgspec import Struct

from alipes.testing.counting import LOOKS, Kind, Look, Tell

Left: TypeAlias = Mapping[str, tuple[str, ...]]
"""What is left over, by kind, each in a few words."""
WITHIN = 1.0
_PAUSES = (0.0, 0.0, 0.0, 0.001, 0.002, 0.005)
"""At least so many, however slow the machine: what is closing needs turns of the loop, not seconds."""
_PAUSE = 0.01


class Leaked(AssertionError):
    """Something is left over; the message says what, one thing to a line."""


class Census(Struct, frozen=True):
    """What is open now."""

    things: dict[str, Mapping[Hashable, Tell]]

    def beyond(self, before: "Census") -> dict[str, tuple[str, ...]]:
        """What there is now and was not `before`, by kind; kinds without any are left out."""
        new = {kind: [things[each]() for each in left] for kind, things, left in self._new(before)}
        return {kind: tuple(filter(None, told)) for kind, told in new.items() if any(told)}

    def without(self, before: "Census") -> "Census":
        return Census(
            {kind: {each: things[each] for each in left} for kind, things, left in self._new(before)}
        )

    def _new(self, before: "Census") -> Iterator[tuple[str, Mapping[Hashable, Tell], set[Hashable]]]:
        for kind, things in self.things.items():
            yield kind, things, things.keys() - before.things.get(kind, {}).keys()

    def joined(self, other: "Census") -> "Census":
        """What is in either."""
        kinds = self.things.keys() | other.things
        return Census({kind: {**self.things.get(kind, {}), **other.things.get(kind, {})} for kind in kinds})


def census(*without: str, also: Mapping[str, Look] | None = None) -> Census:
    """Count. Without a running loop there are no tasks to count."""
    looks: tuple[tuple[str, Look], ...] = (*LOOKS.items(), *(also or {}).items())
    return Census({kind: dict(look()) for kind, look in looks if kind not in without})


def difference(left: Left) -> str:
    """The diff as a person reads it."""
    lines = [f"  {kind:<9} {told}" for kind, all_told in left.items() for told in sorted(all_told)]
    return "\n".join(["opened here, and not closed:", *lines])


class LeakCheck:
    """Compares what is open at two moments. `allow` says of which kinds something may stay."""

    def __init__(
        self, *allowed: Kind | str, within: float = WITHIN, also: Mapping[str, Look] | None = None
    ) -> None:
        """`within`: seconds that what is just closing may still take; `also`: what else to look for."""
        self.within = within
        self.allowed: set[str] = set(allowed)
        self._also = also
        self._before = Census({})

    def begin(self) -> Self:
        """What is open now is no leak."""
        self._before = self._count()
        return self

    def allow(self, *kinds: Kind | str) -> None:
        self.allowed.update(kinds)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """What is opened inside belongs to somebody who closes it later, and is no leak."""
        began = self._count()
        yield
        self._before = self._before.joined(self._count().without(began))

    def found(self) -> dict[str, tuple[str, ...]]:
        """What is left over at this moment."""
        return self._count().beyond(self._before)

    def verify(self) -> None:
        """Raise `Leaked` unless nothing is left over, or is closed in time: for use without a loop."""
        for pause in self._pauses():
            time.sleep(pause)

    async def settle(self) -> None:
        """The same on a loop, which goes on meanwhile."""
        for pause in self._pauses():
            await asyncio.sleep(pause)

    def _pauses(self) -> Iterator[float]:
        """How long to wait before looking again; raises `Leaked` when it was long enough."""
        began, looks = time.monotonic(), 0
        while left := self.found():
            if looks < len(_PAUSES):
                yield _PAUSES[looks]
            elif time.monotonic() < began + self.within:
                yield _PAUSE
            else:
                raise Leaked(difference(left))
            looks += 1

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Begin on entering; on leaving, unless by an error, raise `Leaked` for what is left over."""
        self.begin()
        yield
        await self.settle()

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        """The same for what is opened and closed within, by a check of its own: it knows the loop's tasks."""
        check = LeakCheck().begin()
        yield
        check.within, check.allowed = self.within, self.allowed
        await check.settle()

    def _count(self) -> Census:
        return census(*self.allowed, also=self._also)


@asynccontextmanager
async def no_leaks(*allowed: Kind, within: float = WITHIN) -> AsyncIterator[LeakCheck]:
    """Whatever is opened inside must be closed there; else `Leaked`, with what is left over."""
    check = LeakCheck(*allowed, within=within)
    async with check.around():
        yield check
