"""The store, for a command that wants to know or change one thing in it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from alipes.config.settings import Settings
from alipes.store.opening import Store, open_store

T = TypeVar("T")


def in_store(settings: Settings, act: Callable[[Store], Awaitable[T]]) -> T:
    """What `act` gives; the store is closed again before anything is printed or asked back."""

    async def within() -> T:
        async with open_store(settings.home) as store:
            return await act(store)

    return asyncio.run(within())
