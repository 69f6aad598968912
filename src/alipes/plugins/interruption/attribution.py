"""Which turn and which plugin the current code runs for; both travel with the task.

Tasks started by a plugin's code belong to the plugin and are cancelled when it closes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from typing import Any, TypeVar, cast

from alipes.kernel.errors import PluginError
from alipes.kernel.turns import Turn
from alipes.plugins.interruption.stepped_coroutine import SteppedCoroutine, WatchedCoroutine
from alipes.plugins.owner import PluginOwner
from alipes.runtime.watchdog import LOOP_ACTIVITY, LoopActivity, LoopBlockInterrupted, plugin_boundary

log = logging.getLogger(__name__)
T = TypeVar("T")

TURN: ContextVar[Turn | None] = ContextVar("alipes_turn", default=None)
"""Set by the session that runs the turn."""
PLUGIN: ContextVar[PluginOwner | None] = ContextVar("alipes_plugin", default=None)
"""Set around every call of plugin code."""
CANCEL_GRACE = 1.0
"""Seconds for a plugin's tasks to end after they were cancelled."""
MAX_BLOCK = 1.0
"""Seconds for which a tool, a command or a task may block the loop; the limit for hooks is lower."""
_ROUNDS = 3


class PluginActivity:
    """One named activity of a plugin on the loop. Blocking the loop is logged; it is a strike only if it had
    to be interrupted. The third disables the plugin: there is no callback to silence."""

    patience = MAX_BLOCK

    def __init__(self, owner: PluginOwner, what: str) -> None:
        self._owner, self._what = owner, what

    def __str__(self) -> str:
        return f"plugin {self._owner.name} in {self._what}"

    def blocked(self, seconds: float) -> None:
        return None

    def interrupted(self, seconds: float) -> None:
        if self._owner.strike(self._what):
            self._owner.disable(f"disabled: {self._what} blocked the event loop three times, last for {seconds:.2f} s")
            log.error("plugin %s is %s", self._owner.name, self._owner.disabled_reason)


@contextmanager
def on_behalf_of(owner: PluginOwner | None) -> Iterator[None]:
    """Code inside runs on behalf of the plugin; with None, on behalf of alipes itself."""
    token = PLUGIN.set(owner)
    try:
        yield
    finally:
        PLUGIN.reset(token)


@plugin_boundary
async def run_as(owner: PluginOwner, what: str, work: Awaitable[T], *, watch: LoopActivity = LOOP_ACTIVITY) -> T:
    """Await a plugin's coroutine on its behalf, watching every step. Errors are passed on; use
    `dispatch.guard` where nothing else catches them. If it is cancelled and does not end, it is closed; if it
    blocks the loop, it is interrupted and raises `PluginError`."""
    with on_behalf_of(owner):
        coroutine, deed = as_coroutine(work), PluginActivity(owner, what)
        try:
            before = watch.begin(deed)
            try:
                waits_for = coroutine.send(None)
            except StopIteration as over:
                return cast(T, over.value)
            finally:
                watch.end(before)
            return cast(T, await SteppedCoroutine(coroutine, waits_for, deed, watch))
        except LoopBlockInterrupted as error:
            raise PluginError(owner.name, what, str(error)) from error


@plugin_boundary
def call_as(owner: PluginOwner, what: str, act: Callable[[], T], *, watch: LoopActivity = LOOP_ACTIVITY) -> T:
    """The same for a plain function call."""
    with on_behalf_of(owner):
        before = watch.begin(PluginActivity(owner, what))
        try:
            return act()
        except LoopBlockInterrupted as error:
            raise PluginError(owner.name, what, str(error)) from error
        finally:
            watch.end(before)


def as_coroutine(work: Awaitable[T]) -> Coroutine[Any, Any, T]:
    """Wrap an awaitable in a coroutine if it is not one."""
    return work if isinstance(work, Coroutine) else _awaited(work)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def tasks_of(owner: PluginOwner) -> frozenset[asyncio.Task[Any]]:
    """The unfinished tasks that its code started."""
    return frozenset(task for task in owner.tasks if not task.done())


@asynccontextmanager
async def track_tasks(owner: PluginOwner) -> AsyncIterator[None]:
    """Track the owner's tasks while this is open; cancel them when it is left."""
    loop = asyncio.get_running_loop()
    current = loop.get_task_factory()
    factory = current if isinstance(current, _TaskFactory) else _TaskFactory(current)
    loop.set_task_factory(factory)
    factory.users += 1
    try:
        yield
    finally:
        try:
            await cancel_tasks(owner)
        finally:
            factory.users -= 1
            if not factory.users and loop.get_task_factory() is factory:  # otherwise another factory wraps ours
                loop.set_task_factory(factory.former)


async def cancel_tasks(owner: PluginOwner, patience: float = CANCEL_GRACE) -> tuple[str, ...]:
    """Cancel its tasks and wait for them. Returns and logs the names of those that did not end.

    Tasks started meanwhile are cancelled too, but never the calling task.
    """
    here = {asyncio.current_task()}
    stubborn: frozenset[asyncio.Task[Any]] = frozenset()
    for _ in range(_ROUNDS):
        living = tasks_of(owner) - here
        if living <= stubborn:
            break
        for task in living:
            task.cancel()
        done, pending = await asyncio.wait(living, timeout=patience)
        _log_errors(owner, done)
        stubborn = frozenset(pending)
    names = tuple(sorted(task.get_name() for task in tasks_of(owner) - here))
    if names:
        log.error("plugin %s: tasks that do not end when cancelled: %s", owner.name, ", ".join(names))
    return names


def _log_errors(owner: PluginOwner, done: set[asyncio.Task[Any]]) -> None:
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("plugin %s: task %s broke", owner.name, task.get_name(), exc_info=error)


class _TaskFactory:
    """Creates tasks as before, and tracks and watches those of plugins."""

    def __init__(self, former: Any) -> None:
        self.former = former
        self.users = 0

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None, **more: Any
    ) -> Any:
        owner = PLUGIN.get() if context is None else context.get(PLUGIN)
        if owner is not None and asyncio.iscoroutine(coro):
            coro = WatchedCoroutine(coro, PluginActivity(owner, f"task {getattr(coro, '__qualname__', '')}"))
        if context is not None:
            more["context"] = context
        task = asyncio.Task(coro, loop=loop, **more) if self.former is None else self.former(loop, coro, **more)
        if owner is not None:
            owner.tasks.add(task)
            task.add_done_callback(owner.tasks.discard)
        return task
