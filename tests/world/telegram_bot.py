"""Our Telegram platform on the loopback Bot API, with a gateway that only keeps what it is handed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.kernel.endpoints import Secret
from alipes.kernel.platforms import Arrival
from alipes.kernel.turns import Address
from alipes.platforms.telegram import Telegram, TelegramSettings, open_telegram
from alipes.runtime.clients import ClientScope
from tests.world.telegram_server import TOKEN, TelegramServer

CHAT = Address("telegram", "7")


class Ears:
    """Takes what comes, after `before` let it."""

    def __init__(self) -> None:
        self.taken: list[Arrival] = []
        self.states: list[tuple[str, str]] = []
        self.before: Callable[[Arrival], Awaitable[None]] | None = None
        self._news: asyncio.Event = asyncio.Event()

    async def take(self, arrival: Arrival) -> None:
        if self.before:
            await self.before(arrival)
        self.taken.append(arrival)
        self._news.set()

    def tell(self, state: str, why: str) -> None:
        self.states.append((state, why))
        self._news.set()

    async def heard(self, count: int = 1) -> list[Arrival]:
        await self.until(lambda: len(self.taken) >= count)
        return self.taken

    async def told(self, state: str, count: int = 1) -> str:
        """Wait until it was told so often; the latest reason."""
        await self.until(lambda: sum(told == state for told, _ in self.states) >= count)
        return next(why for told, why in reversed(self.states) if told == state)

    async def until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def bot(server: TelegramServer, folder: Path, **more: Any) -> AsyncIterator[Telegram]:
    """It can speak, and does not listen."""
    settings = {"token": Secret(TOKEN), "folder": folder, "base_url": server.url, **more}
    async with ClientScope() as scope:
        yield open_telegram(TelegramSettings(**settings), scope)


@asynccontextmanager
async def listening(telegram: Telegram, ears: Ears | None = None) -> AsyncIterator[Ears]:
    ears = ears or Ears()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(telegram.listen(ears.take, ears.tell))
        try:
            yield ears
        finally:
            task.cancel()
