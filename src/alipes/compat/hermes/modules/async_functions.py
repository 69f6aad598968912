"""`agent.async_utils`: hands coroutines from worker threads to the loop."""

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from alipes.compat.hermes.bridge import ThreadResult
from alipes.compat.hermes.modules.current_app import bridge


def safe_schedule_threadsafe(
    coro: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop | None, **_more: Any
) -> "Future[Any] | None":
    """Run a coroutine on the loop in the plugin's scope. Returns None if the loop is closed."""
    if loop is None or loop.is_closed():
        coro.close()
        return None
    current, outcome = bridge(), ThreadResult[Any]()
    context = current.any_context()
    current.soon(lambda: context.run(outcome.run_coroutine(coro)))
    return outcome.future


def consume_detached_task_result(task: "asyncio.Future[Any]") -> None:
    """A done callback for tasks that nobody awaits: their error is logged."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logging.getLogger(__name__).warning("a background task failed: %r", error)
