"""What one plugin has open: network clients, tasks, whatever it entered. All of it ends with the plugin."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from alipes.hooks.owners import Owner
from alipes.hooks.relay import guard
from alipes.hooks.tracking import end_tasks, on_behalf_of, tracking
from alipes.kernel.errors import PluginError
from alipes.runtime.clients import ClientScope

GRACE = 3.0
"""Seconds that the closing of what a plugin opened may take."""


class Scope:
    """Made by `open_scope`, and closed there: by the task that opened it, tasks first, then in reverse."""

    def __init__(self, owner: Owner, clients: ClientScope, group: asyncio.TaskGroup) -> None:
        self.clients = clients
        self.stack = AsyncExitStack()
        self._owner, self._group = owner, group
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False

    def run(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Beside the turns, until it is done or the plugin is closed. If it raises, that is a strike."""
        if self._closed:
            work.close()
            raise RuntimeError(f"the plugin {self._owner.name} is closed, and begins nothing any more")
        with on_behalf_of(None):  # the house's own: it lasts until the plugin's work is seen to its end
            task = self._group.create_task(
                self._guarded(work, name), name=f"plugin {self._owner.name}: {name}"
            )
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, object], name: str) -> object:
        with suppress(PluginError):  # it was told, and counted
            return await guard(self._owner, name, work)
        return None

    async def close(self, grace: float) -> None:
        """End the tasks, then close what was entered, the latest first. Nothing here lasts for ever."""
        self._closed = True
        try:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)
        finally:
            await _closing(self._owner, "closing what it opened", self.stack.aclose(), grace)


@asynccontextmanager
async def open_scope(owner: Owner, clients: ClientScope, *, grace: float = GRACE) -> AsyncIterator[Scope]:
    """A plugin's scope. Leave it in the task that entered it."""
    await clients.__aenter__()
    try:
        async with tracking(owner), asyncio.TaskGroup() as group:
            scope = Scope(owner, clients, group)
            try:
                yield scope
            finally:
                await scope.close(grace)
    finally:
        await _closing(owner, "closing its clients", clients.__aexit__(None, None, None), grace)


async def _closing(owner: Owner, what: str, work: Coroutine[Any, Any, object], grace: float) -> None:
    """Also of a plugin that is off: what it opened is closed all the same, whatever goes wrong at it."""
    leaving = Owner(owner.name)
    with suppress(PluginError):
        await guard(leaving, what, work, deadline=grace)
    await end_tasks(leaving)
