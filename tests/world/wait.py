"""Polling for conditions without an event."""

import asyncio
from collections.abc import Callable

from tests.world.environment import LIMIT_S


async def until(fact: Callable[[], object], seconds: float = LIMIT_S) -> None:
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.01)
