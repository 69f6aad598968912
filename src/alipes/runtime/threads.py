"""Threads for blocking calls that may never return: they keep nobody from leaving."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
THREADS = 256
"""At most, each made when all others are at work: who blocks some for long must not make others wait."""
PATIENCE = 2.0
"""Seconds we wait at the end for a thread that is still at work."""


class Workers(ThreadPoolExecutor):
    """The pool of `asyncio.to_thread`; at its end it waits a little, not for ever."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            _join(list(self._threads))


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, with `Workers`."""

    async def within() -> T:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Workers(THREADS, thread_name_prefix="worker"))
        # The kernel gives a signal to any thread; a loop that handles one signal is woken by all of them.
        loop.add_signal_handler(signal.SIGURG, lambda: None)
        return await main

    return asyncio.run(within())


def leave(status: int) -> NoReturn:
    """End the process. Python would wait for every thread; who still blocks one (a plugin, say) is left."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    stuck = _join([thread for thread in others if not thread.daemon])
    if stuck:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _join(threads: list[threading.Thread]) -> list[threading.Thread]:  # noqa: TID251
    """Those that are still at work when patience is used up. Idle ones end when nobody needs them."""
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return [thread for thread in threads if thread.is_alive()]
