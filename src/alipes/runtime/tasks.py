"""Worker threads for blocking calls; a call that never returns does not block the exit."""

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar


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


T = TypeVar("T")
MAX_THREADS = 256
"""Upper limit; a thread is started only when all others are busy, so that long calls do not delay others."""
JOIN_TIMEOUT_S = 2.0
"""Seconds to wait at exit for busy threads."""


class WorkerPool(ThreadPoolExecutor):
    """Thread pool of `asyncio.to_thread`; its shutdown waits for a limited time."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            _join(list(self._threads))


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` with a `WorkerPool`."""

    async def within() -> T:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(WorkerPool(MAX_THREADS, thread_name_prefix="worker"))
        # The kernel delivers a signal to any thread; a loop with one signal handler is woken by every signal.
        loop.add_signal_handler(signal.SIGURG, lambda: None)
        return await main

    return asyncio.run(within())


def exit_process(status: int) -> NoReturn:
    """Exit without waiting for threads that are still blocked (by a plugin, for example)."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    stuck = _join([thread for thread in others if not thread.daemon])
    if stuck:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _join(threads: list[threading.Thread]) -> list[threading.Thread]:  # noqa: TID251
    """Join the threads; returns those that are still running after the timeout."""
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return [thread for thread in threads if thread.is_alive()]
