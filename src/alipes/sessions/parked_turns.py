"""Resumes turns that wait for the limit of a provider: meanwhile each is a row with a time, and nothing of it runs."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from alipes.store.ports.turns import TurnStore

POLL_S = 10.0
"""How often to look for turns that another process parked before it ended."""


async def resume_parked(
    turns: TurnStore, wake: Callable[[str], Awaitable[None]], parked: asyncio.Event, *, workdir: str
) -> None:
    """Wake sessions whose turns may resume, until cancelled. In a cluster the dispatcher takes them like any other.

    `parked` is set whenever a turn is parked here; `workdir` as in `list_parked`.
    """
    while True:
        parked.clear()
        found = await turns.list_parked(workdir)
        now = time.time()
        for key, until in found:
            if until <= now:
                await wake(key)
        left = min((until - now for _, until in found if until > now), default=math.inf)
        try:
            async with asyncio.timeout(min(left, POLL_S)):
                await parked.wait()
        except TimeoutError:
            continue
