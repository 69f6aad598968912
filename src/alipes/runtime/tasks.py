"""Helpers for asyncio tasks: error groups, uninterruptible cleanup, retry delays."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def unwrap_error_group() -> Iterator[None]:
    """Wrap an `async with TaskGroup()`: raises the first error itself instead of a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise_if_cancelled()
        raise first_error(group) from group


def raise_if_cancelled() -> None:
    """Raise a cancellation that was swallowed: until Python 3.13, a `TaskGroup` that is cancelled while a
    child fails raises only the child's error."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def first_error(error: BaseException) -> BaseException:
    """The first error inside nested error groups."""
    return first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def run_to_completion(close: Callable[[], Awaitable[object]]) -> None:
    """Await `close()` even if cancelled meanwhile; the cancellation is raised afterwards."""
    ended = asyncio.Event()

    async def close_and_signal() -> None:
        try:
            await close()
        finally:
            ended.set()

    try:
        await asyncio.shield(close_and_signal())
    except asyncio.CancelledError:
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await ended.wait()
        raise


FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0


def backoff(attempt: int, dice: Callable[[], float] = random.random) -> float:
    """Seconds before retry number `attempt` (the first is 1): doubling, capped, with full jitter.

    `dice` returns a number in [0, 1). Full jitter keeps clients that failed together from retrying together.
    """
    doublings = min(max(attempt, 1), 32) - 1
    return dice() * min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**doublings)
