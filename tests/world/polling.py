"""Waiting for what no event tells, such as a fact of the kernel's."""

import asyncio
from collections.abc import Callable


async def until(fact: Callable[[], object], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.01)
