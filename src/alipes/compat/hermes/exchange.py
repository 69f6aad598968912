"""Between plain code in a worker thread and a coroutine it stands around: the coroutine runs in our task."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from alipes.compat.hermes.bridge import Bridge, Outcome


class Exchange:
    """Runs `work(ask)` in a worker thread; each `ask(value)` there is `await go(value)` here.

    So what is wrapped belongs to the turn that waits for it: it is cancelled with it, and a thread
    that asks after that gets `CancelledError` as its answer.
    """

    def __init__(self, bridge: Bridge, go: Callable[[Any], Awaitable[Any]]) -> None:
        self._bridge, self._go = bridge, go
        self._asks: asyncio.Queue[tuple[Any, Outcome[Any]] | None] = asyncio.Queue()
        self._closed = False

    async def run(self, work: Callable[[Callable[[Any], Any]], Any]) -> Any:
        """What `work` gives or raises."""
        outcome: Outcome[Any] = Outcome()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(work, outcome))
                while (asked := await self._asks.get()) is not None:
                    value, answer = asked
                    await answer.awaited(self._wrapped(value))
        finally:
            self._close()
        return outcome.future.result()

    async def _work(self, work: Callable[[Callable[[Any], Any]], Any], outcome: Outcome[Any]) -> None:
        await self._bridge.off_loop(lambda: outcome.of(lambda: work(self._ask)))
        self._asks.put_nowait(None)

    async def _wrapped(self, value: Any) -> Any:
        return await self._go(value)

    def _ask(self, value: Any) -> Any:
        """In the worker thread."""
        answer: Outcome[Any] = Outcome()
        self._bridge.soon(lambda: self._put(value, answer))
        return answer.future.result()

    def _put(self, value: Any, answer: Outcome[Any]) -> None:
        if self._closed:
            answer.future.set_exception(asyncio.CancelledError())
        else:
            self._asks.put_nowait((value, answer))

    def _close(self) -> None:
        self._closed = True
        while not self._asks.empty():
            if (asked := self._asks.get_nowait()) is not None:
                asked[1].future.set_exception(asyncio.CancelledError())
