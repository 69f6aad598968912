"""Waiting for what no event tells, such as a fact of the kernel's."""

import asyncio
from collections.abc import Callable

from tests.world.environment import LIMIT_S


async def until(fact: Callable[[], object], seconds: float = LIMIT_S) -> None:
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.01)
