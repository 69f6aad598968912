"""A gateway that only keeps what it is handed: for platforms that are tried without the house."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from alipes.kernel.errors import AlipesError
from alipes.kernel.platforms import Arrival


class Ears:
    """Takes what comes, after `before` let it."""

    def __init__(self) -> None:
        self.taken: list[Arrival] = []
        self.states: list[tuple[str, str]] = []
        self.before: Callable[[Arrival], Awaitable[None]] | None = None
        self.trouble: AlipesError | None = None
        """Why it does not listen any more."""
        self._news = asyncio.Event()

    async def take(self, arrival: Arrival) -> None:
        if self.before:
            await self.before(arrival)
        self.taken.append(arrival)
        self._news.set()

    def tell(self, state: str, why: str) -> None:
        self.states.append((state, why))
        self._news.set()

    def ended(self, trouble: AlipesError) -> None:
        self.trouble = trouble
        self._news.set()

    async def heard(self, count: int = 1) -> list[Arrival]:
        await self.until(lambda: len(self.taken) >= count)
        return self.taken

    async def ready(self, count: int = 1) -> None:
        await self.until(lambda: sum(state == "ready" for state, _ in self.states) >= count)

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
    """`listen` once, until it breaks or we leave."""
    ears = ears or Ears()

    async def listen() -> None:
        try:
            await platform.listen(ears.take, ears.tell)
        except AlipesError as trouble:
            ears.ended(trouble)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listen())
        try:
            yield ears
        finally:
            task.cancel()
