"""Runs one async test: on a loop of its own, in debug mode, within its time. It collects no tests."""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from alipes.testing.counting import where

DEADLINE = 10.0


class Late(AssertionError):
    """A test took longer than it may; the message says where each of its tasks was waiting."""


def run_test(
    test: Coroutine[Any, Any, object],
    *,
    deadline: float = DEADLINE,
    around: AbstractAsyncContextManager[object] | None = None,
) -> None:
    """Run `test` to its end, inside `around`; raise what it raises, and `Late` after `deadline` seconds."""
    asyncio.run(_within(test, deadline, around or nullcontext()), debug=True)


async def _within(
    test: Coroutine[Any, Any, object], deadline: float, around: AbstractAsyncContextManager[object]
) -> None:
    stood: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_later(deadline, lambda: stood.extend(map(where, asyncio.all_tasks())))
    try:
        async with asyncio.timeout(deadline) as limit, around:
            await test
    except TimeoutError as error:
        if not limit.expired():
            raise
        tasks = "\n".join(f"  {each}" for each in sorted(stood))
        raise Late(f"not done after {deadline:g} s; these were waiting:\n{tasks}") from error
