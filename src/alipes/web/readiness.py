"""Can we receive and answer? Asked of every part that must work for it; each that does not says why."""

import time
from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from alipes.hooks.owners import CORE
from alipes.hooks.relay import Hooks
from alipes.kernel.errors import AlipesError, ProviderError, Refused, Transient

FRESH = 60.0
"""Seconds for which it counts that the model was reached, or not."""
WRITTEN = 5.0
"""Seconds for which it counts that the store could be written: who asks often costs little."""
Probe = Callable[[], Awaitable[str]]
"""Looks whether something is there: empty, or why it is not."""


class Line(Struct, frozen=True):
    """How a platform stands."""

    name: str
    ready: bool
    why: str = ""


class Reach:
    """Whether the model was reachable lately: by what turns found out, else by a look at its server."""

    def __init__(self, probe: Probe, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._probe, self._clock = probe, clock
        self._known, self._why, self._stays = -FRESH, "", False

    def listen(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_answered)
        hooks.add(CORE, self.request_failed)

    async def request_answered(self) -> None:
        self._learn("")

    async def request_failed(self, error: ProviderError, again: bool) -> None:
        if again or isinstance(error, Refused):
            return  # a refusal is an answer
        # A wrong key or an empty purse is not mended by a server that can be connected to.
        self._learn(str(error), stays=not isinstance(error, Transient))

    async def trouble(self) -> str:
        if self._stays or self._clock() - self._known < FRESH:
            return self._why
        self._learn(await self._probe())
        return self._why

    def _learn(self, why: str, *, stays: bool = False) -> None:
        self._known, self._why, self._stays = self._clock(), why, stays


class Readiness:
    def __init__(
        self,
        *,
        lines: Callable[[], Iterable[Line]],
        write: Callable[[], Awaitable[None]],
        reach: Reach,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write`: puts something on the store's disk, and raises where that fails."""
        self.lines, self._write, self._reach, self._clock = lines, write, reach, clock
        self._written = -WRITTEN
        self.leaving = ""
        """Why nothing more is taken in; empty while we serve."""

    async def troubles(self) -> dict[str, str]:
        """What does not work, and why; empty when we can receive and answer."""
        found = {"serve": self.leaving} if self.leaving else {}
        found |= {line.name: line.why or "not ready" for line in self.lines() if not line.ready}
        if why := await self._store():
            found["store"] = why
        if why := await self._reach.trouble():
            found["model"] = why
        return found

    async def _store(self) -> str:
        if self._clock() - self._written < WRITTEN:
            return ""
        try:
            await self._write()
        except AlipesError as error:
            return str(error)
        self._written = self._clock()
        return ""
