"""A gateway that only keeps what it is handed: for platforms that are tried without the house."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from alipes.kernel.errors import AlipesError
from alipes.kernel.platform import Arrival


class Ears:
    """Take what comes, after `before` let it."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.states: list[tuple[str, str]] = []
        self.before: Callable[[Arrival], Awaitable[Any]] | None = None
        self.trouble: AlipesError | None = None
        """Why they do not listen any more."""
        self._news = asyncio.Event()

    async def take(self, arrival: Arrival) -> None:
        if self.before:
            await self.before(arrival)
        self.arrivals.append(arrival)
        self._news.set()

    def tell(self, state: str, why: str) -> None:
        self.states.append((state, why))
        self._news.set()

    def ended(self, trouble: AlipesError) -> None:
        self.trouble = trouble
        self._news.set()

    def hold(self) -> asyncio.Event:
        """Nothing is taken until this is set."""
        gate = asyncio.Event()

        async def wait(_: Arrival) -> None:
            await gate.wait()

        self.before = wait
        return gate

    @property
    def texts(self) -> list[str]:
        return [arrival.text for arrival in self.arrivals]

    @property
    def ready(self) -> bool:
        return bool(self.states) and self.states[-1][0] == "ready"

    async def heard(self, count: int = 1) -> list[Arrival]:
        await self.until(lambda: len(self.arrivals) >= count)
        return self.arrivals

    async def told(self, state: str, count: int = 1) -> str:
        """Wait until they were told so often; the latest reason."""
        await self.until(lambda: sum(told == state for told, _ in self.states) >= count)
        return next(why for told, why in reversed(self.states) if told == state)

    async def broken(self) -> AlipesError:
        await self.until(lambda: self.trouble)
        assert self.trouble is not None
        return self.trouble

    async def until(self, fact: Callable[[], Any]) -> None:
        while not fact():
            assert self.trouble is None, self.trouble
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def listening(platform: Any, ears: Ears | None = None) -> AsyncIterator[Ears]:
    """Cancelled at the end, as the gateway does it. What ends it before is raised."""
    ears = ears or Ears()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(platform.listen(ears.take, ears.tell))
        try:
            yield ears
        finally:
            task.cancel()


@asynccontextmanager
async def connected(serving: Any, opened: Callable[[Any], Any]) -> AsyncIterator[tuple[Any, Any, Ears]]:
    """A messenger's server, the platform that `opened` makes for it, connected, and ears."""
    async with serving as server:
        platform = opened(server)
        async with listening(platform) as ears:
            await server.until(lambda: ears.ready)
            yield server, platform, ears


@asynccontextmanager
async def listening_once(platform: Any, ears: Ears | None = None) -> AsyncIterator[Ears]:
    """For platforms that end with their connection: then the ears know why."""

    class Once:
        async def listen(self, take: Any, tell: Any) -> None:
            try:
                await platform.listen(take, tell)
            except AlipesError as trouble:
                ears.ended(trouble)

    ears = ears or Ears()
    async with listening(Once(), ears):
        yield ears
