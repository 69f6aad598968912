"""In whose course does this code run? The turn, and the plugin; both travel with the task.

A task that a plugin's code begins is the plugin's: it is remembered here, and ends with the plugin.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from typing import Any, TypeVar, cast

from alipes.kernel.errors import PluginError
from alipes.kernel.turns import Turn
from alipes.plugins.owner import Owner
from alipes.plugins.stepped_coroutine import Rest, Watched
from alipes.runtime.watchdog import LOOP, Interrupted, Watch, edge

log = logging.getLogger(__name__)
T = TypeVar("T")

TURN: ContextVar[Turn | None] = ContextVar("alipes_turn", default=None)
"""Set by the session that lives it."""
PLUGIN: ContextVar[Owner | None] = ContextVar("alipes_plugin", default=None)
"""Set around every call of plugin code."""
PATIENCE = 1.0
"""Seconds for a plugin's tasks to end after they were cancelled."""
HOLDING = 1.0
"""Seconds for which a tool, a command or a task may hold the loop; a hook may not so long."""
_ROUNDS = 3


class Doing:
    """Something that a plugin does on the loop, by name. To block that is told in the log, and is no strike
    unless it had to be interrupted."""

    patience = HOLDING

    def __init__(self, owner: Owner, what: str) -> None:
        self._owner, self._what = owner, what

    def __str__(self) -> str:
        return f"plugin {self._owner.name} in {self._what}"

    def blocked(self, seconds: float) -> None:
        return None

    def interrupted(self, seconds: float) -> None:
        if self._owner.strike(f"{self._what} blocked everybody for {seconds:.2f} s, and was interrupted"):
            log.error("plugin %s is %s", self._owner.name, self._owner.why)


@contextmanager
def on_behalf_of(owner: Owner | None) -> Iterator[None]:
    """What runs inside is the plugin's doing; with None, the house's own again."""
    token = PLUGIN.set(owner)
    try:
        yield
    finally:
        PLUGIN.reset(token)


@edge
async def done_by(owner: Owner, what: str, work: Awaitable[T], *, watch: Watch = LOOP) -> T:
    """Await something of a plugin's in its name, watched at every step. What it raises is raised: see
    `relay.guard` where nobody else catches that. When it is cancelled and does not end, it is closed; when
    it holds the loop it is interrupted, and raises `PluginError`."""
    with on_behalf_of(owner):
        coroutine, deed = as_coroutine(work), Doing(owner, what)
        try:
            before = watch.begin(deed)
            try:
                waits_for = coroutine.send(None)
            except StopIteration as over:
                return cast(T, over.value)
            finally:
                watch.end(before)
            return cast(T, await Rest(coroutine, waits_for, deed, watch))
        except Interrupted as error:
            raise PluginError(owner.name, what, str(error)) from error


@edge
def called_by(owner: Owner, what: str, act: Callable[[], T], *, watch: Watch = LOOP) -> T:
    """The same of a plain call, in which nobody can wait."""
    with on_behalf_of(owner):
        before = watch.begin(Doing(owner, what))
        try:
            return act()
        except Interrupted as error:
            raise PluginError(owner.name, what, str(error)) from error
        finally:
            watch.end(before)


def as_coroutine(work: Awaitable[T]) -> Coroutine[Any, Any, T]:
    """The same, if it was none."""
    return work if isinstance(work, Coroutine) else _awaited(work)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def tasks_of(owner: Owner) -> frozenset[asyncio.Task[Any]]:
    """The tasks that its code began and that are not done."""
    return frozenset(task for task in owner.tasks if not task.done())


@asynccontextmanager
async def tracking(owner: Owner) -> AsyncIterator[None]:
    """As long as this is open, the owner's tasks are known; when it is left they are ended."""
    loop = asyncio.get_running_loop()
    current = loop.get_task_factory()
    factory = current if isinstance(current, _Factory) else _Factory(current)
    loop.set_task_factory(factory)
    factory.users += 1
    try:
        yield
    finally:
        try:
            await end_tasks(owner)
        finally:
            factory.users -= 1
            if not factory.users and loop.get_task_factory() is factory:  # else somebody stands on ours
                loop.set_task_factory(factory.former)


async def end_tasks(owner: Owner, patience: float = PATIENCE) -> tuple[str, ...]:
    """Cancel what it began, and wait for it. The names of those that would not end, also logged.

    What they begin while they end is cancelled too. Never the task that calls this.
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
        _tell_errors(owner, done)
        stubborn = frozenset(pending)
    names = tuple(sorted(task.get_name() for task in tasks_of(owner) - here))
    if names:
        log.error("plugin %s: tasks that do not end when cancelled: %s", owner.name, ", ".join(names))
    return names


def _tell_errors(owner: Owner, done: set[asyncio.Task[Any]]) -> None:
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("plugin %s: task %s broke", owner.name, task.get_name(), exc_info=error)


class _Factory:
    """Makes tasks as they were made before, and remembers and watches those of plugins."""

    def __init__(self, former: Any) -> None:
        self.former = former
        self.users = 0

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None, **more: Any
    ) -> Any:
        owner = PLUGIN.get() if context is None else context.get(PLUGIN)
        if owner is not None and asyncio.iscoroutine(coro):
            coro = Watched(coro, Doing(owner, f"task {getattr(coro, '__qualname__', '')}"))
        if context is not None:
            more["context"] = context
        task = (
            asyncio.Task(coro, loop=loop, **more) if self.former is None else self.former(loop, coro, **more)
        )
        if owner is not None:
            owner.tasks.add(task)
        return task
