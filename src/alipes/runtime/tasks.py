"""Tasks and their ends: the one error that a group raised, and what must be done to its end."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def ungrouped() -> Iterator[None]:
    """Around an `async with TaskGroup()` that one child or the body ends: its error, and no group."""
    try:
        yield
    except BaseExceptionGroup as group:
        heed()
        raise first(group) from group


def heed() -> None:
    """For who goes on after an error: be cancelled, if that was asked for and got lost. A `TaskGroup` that is
    cancelled while a child of it fails raises what the child did, and no more (until Python 3.13)."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def first(error: BaseException) -> BaseException:
    """What really happened: the group is an accident of running side by side."""
    return first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def to_the_end(close: Callable[[], Awaitable[object]]) -> None:
    """Await `close()` to its end however often we are cancelled meanwhile, and only then be cancelled."""
    ended = asyncio.Event()

    async def closing() -> None:
        try:
            await close()
        finally:
            ended.set()

    try:
        await asyncio.shield(closing())
    except asyncio.CancelledError:
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await ended.wait()
        raise


FIRST = 0.5
LONGEST = 30.0


def backoff(attempt: int, dice: Callable[[], float] = random.random) -> float:
    """Seconds before retry number `attempt` (the first is 1): doubling, capped, with full jitter.

    `dice` gives a number in [0, 1); the whole span is thrown, so that many who failed together
    do not come back together.
    """
    doublings = min(max(attempt, 1), 32) - 1
    return dice() * min(LONGEST, FIRST * 2.0**doublings)
