"""A gateway that only records what it receives, to test platforms alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from alipes.kernel.errors import AlipesError
from alipes.kernel.platform import IncomingMessage


class RecordingGateway:
    """Record messages, after `before` allowed it."""

    def __init__(self) -> None:
        self.arrivals: list[IncomingMessage] = []
        self.states: list[tuple[str, str]] = []
        self.before: Callable[[IncomingMessage], Awaitable[Any]] | None = None
        self.trouble: AlipesError | None = None
        """Why listening ended."""
        self._news = asyncio.Event()

    async def take(self, arrival: IncomingMessage) -> None:
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
        """Messages wait until this is set."""
        gate = asyncio.Event()

        async def wait(_: IncomingMessage) -> None:
            await gate.wait()

        self.before = wait
        return gate

    @property
    def texts(self) -> list[str]:
        return [arrival.text for arrival in self.arrivals]

    @property
    def ready(self) -> bool:
        return bool(self.states) and self.states[-1][0] == "ready"

    async def heard(self, count: int = 1) -> list[IncomingMessage]:
        await self.until(lambda: len(self.arrivals) >= count)
        return self.arrivals

    async def wait_status(self, state: str, count: int = 1) -> str:
        """Wait for so many status reports; returns the latest reason."""
        await self.until(lambda: sum(each == state for each, _ in self.states) >= count)
        return next(why for each, why in reversed(self.states) if each == state)

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
async def receive(platform: Any, ears: RecordingGateway | None = None) -> AsyncIterator[RecordingGateway]:
    """Run the platform; cancelled at the end, as by the gateway. An earlier error is raised."""
    ears = ears or RecordingGateway()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(platform.listen(ears.take, ears.tell))
        try:
            yield ears
        finally:
            task.cancel()


@asynccontextmanager
async def send_only(platform: Any) -> AsyncIterator[RecordingGateway]:
    """Run the platform as in a process that does not receive; returns once it is ready."""
    ears = RecordingGateway()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(platform.run_sender(ears.tell))
        try:
            await ears.wait_status("ready")
            yield ears
        finally:
            task.cancel()


@asynccontextmanager
async def connected(serving: Any, opened: Callable[[Any], Any]) -> AsyncIterator[tuple[Any, Any, RecordingGateway]]:
    """A messenger's server, the connected platform that `opened` creates, and a recording gateway."""
    async with serving as server:
        platform = opened(server)
        async with receive(platform) as ears:
            await server.until(lambda: ears.ready)
            yield server, platform, ears


@asynccontextmanager
async def receive_once(platform: Any, ears: RecordingGateway | None = None) -> AsyncIterator[RecordingGateway]:
    """For platforms that end with their connection; the reason is recorded."""

    class Once:
        async def listen(self, take: Any, tell: Any) -> None:
            try:
                await platform.listen(take, tell)
            except AlipesError as trouble:
                ears.ended(trouble)

    ears = ears or RecordingGateway()
    async with receive(Once(), ears):
        yield ears
