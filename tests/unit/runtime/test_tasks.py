"""How long to wait before asking again, and what is finished in spite of a cancellation."""

import asyncio
import gc
import random

import pytest

from alipes.kernel.errors import StoreError
from alipes.runtime.tasks import FIRST_DELAY_S, MAX_DELAY_S, backoff, run_to_completion


def test_the_wait_doubles_up_to_a_limit():
    waits = [backoff(attempt, lambda: 1.0) for attempt in range(1, 10)]
    assert waits[:4] == [FIRST_DELAY_S, FIRST_DELAY_S * 2, FIRST_DELAY_S * 4, FIRST_DELAY_S * 8]
    assert waits[-1] == MAX_DELAY_S == backoff(10**9, lambda: 1.0)


def test_the_whole_span_is_thrown():
    dice = random.Random(1).random
    throws = [backoff(4, dice) for _ in range(200)]
    assert min(throws) < 0.2 < 3.8 < max(throws) <= FIRST_DELAY_S * 8


def test_an_attempt_before_the_first_waits_like_the_first():
    assert backoff(0, lambda: 1.0) == backoff(-5, lambda: 1.0) == FIRST_DELAY_S


async def test_an_error_of_what_had_to_be_finished_before_a_cancellation_is_logged(caplog):
    begun, go = asyncio.Event(), asyncio.Event()

    async def close() -> None:
        begun.set()
        await go.wait()
        raise StoreError("the disk is full")

    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: unhandled.append(about))
    closing = asyncio.create_task(run_to_completion(close))
    await begun.wait()
    closing.cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait({closing})
    assert closing.cancelled() and "the disk is full" in caplog.text
    gc.collect()
    assert not unhandled


async def test_an_error_of_what_is_finished_without_a_cancellation_is_raised():
    async def close() -> None:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        await run_to_completion(close)
