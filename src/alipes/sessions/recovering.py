"""Takes up what an earlier process left unfinished: at once, or alone where it may be what ended it."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from alipes.sessions.claiming import MAX_ATTEMPTS

SHAKEN = MAX_ATTEMPTS - 1
"""Begun so often, and each time the process ended: it may be the cause, or only have stood beside it."""
ALONE = 5.0
"""Seconds that each of them has for itself; what kills a process does so soon."""


async def one_by_one(
    keys: Iterable[str], take: Callable[[str], None], busy: Collection[str], rested: asyncio.Event
) -> None:
    """Take them up one after the other. Whoever kills us takes nobody along who would be given up with it."""
    for key in keys:
        take(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(ALONE):
                while key in busy:
                    rested.clear()
                    await rested.wait()
