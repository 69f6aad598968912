"""What the Hermes door's parts share: the host, the loop, who is open. It translates nothing itself."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from alipes.compat.hermes.call import Fit
from alipes.compat.hermes.loop_access import close_to_guests, open_to_guests
from alipes.compat.hermes.state import Lending, Notes, PlatformEntry, ToolEntry
from alipes.config.settings import Settings
from alipes.kernel.turns import Inbound
from alipes.plugins.attribution import PLUGIN, as_coroutine
from alipes.plugins.context import Context, Host
from alipes.plugins.owner import Owner

T = TypeVar("T")
PACKAGE = "hermes_plugins"
"""Folder plugins are imported as `hermes_plugins.<slug>`."""
WORKERS = 32
"""Threads in which plain callbacks and handlers may block at the same time."""


class Gateway:
    """What plugins know as the gateway's runner. The gateway fills it when it serves."""

    def __init__(self) -> None:
        self.adapters: dict[Any, Any] = {}
        """By `Platform`, the adapters that are connected."""
        self.session_store: Any = None
        self.config: Any = None


class Remembers(Protocol):
    name: str
    owner: Owner


class Bridge:
    """One per app. All of it may be called from any thread, except where it says otherwise."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self.host, self.settings = host, settings
        self.gateway = Gateway()
        self.notes = Notes()
        self.tools: dict[str, ToolEntry] = {}
        """By name, what Hermes plugins offer now; add with `tools.offer`, take back with `tools.withdraw`."""
        self.platforms: dict[str, PlatformEntry] = {}
        self.memory: Remembers | None = None
        """The one memory provider that is attached."""
        self.profile_name = "default"
        self.event_of: Callable[[Inbound], Any] = lambda inbound: inbound
        """A message as plugins know it (`MessageEvent`); set by whoever brings that word along."""
        self.lending = Lending(settings.paths.env)
        self._contexts: dict[Owner, tuple[Context, str]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._workers: ThreadPoolExecutor | None = None
        """Not those of the house: a plugin that blocks all of its own keeps nobody else waiting."""

    @property
    def home(self) -> Path:
        return self.settings.home

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The host's, the only one there is."""
        if self._loop is None:
            raise RuntimeError("no Hermes plugin is open")
        return self._loop

    def variable(self, name: str) -> str:
        """Of the environment, else of the home's `.env`; empty where neither has it."""
        return self.lending.now().get(name)

    def enter(self, context: Context, module: str) -> None:
        """A plugin is being opened, on the loop's thread; its code lives in `module` and below."""
        if not self._contexts:
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            open_to_guests(self._loop, self._waited)
        self._contexts[context.owner] = context, module

    def leave(self, owner: Owner) -> bool:
        """A plugin was closed; True if none is left."""
        self._contexts.pop(owner, None)
        self.tools = {name: each for name, each in self.tools.items() if each.owner is not owner}
        self.platforms = {name: each for name, each in self.platforms.items() if each.owner is not owner}
        if self._contexts:
            return False
        self.lending.end()
        if self._workers is not None:
            self._workers.shutdown(wait=False)
            self._workers = None
        close_to_guests(self.loop, self._waited)
        return True

    def context(self, *things: object) -> Context:
        """Of the plugin that is calling us: as the task knows it, else as the module of `things` tells."""
        owner = PLUGIN.get()
        if owner is not None and owner in self._contexts:
            return self._contexts[owner][0]
        modules = [getattr(thing, "__module__", None) or "" for thing in things]
        for context, module in reversed(self._contexts.values()):
            if any(f"{each}.".startswith(f"{module}.") for each in modules):
                return context
        if len(self._contexts) == 1:
            return next(iter(self._contexts.values()))[0]
        raise RuntimeError(
            "it cannot be told which plugin is calling: call it from a hook, a tool or register()"
        )

    def on_loop(self) -> bool:
        """Are we on the loop's own thread?"""
        return threading.get_ident() == self._thread

    async def off_loop(self, act: Callable[[], T]) -> T:
        """What `act` gives or raises, done in a worker thread; there the host's loop is the current one."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="hermes")
        guest = partial(copy_context().run, self._as_guest, act)
        return await self.loop.run_in_executor(self._workers, guest)

    def _as_guest(self, act: Callable[[], T]) -> T:
        asyncio.set_event_loop(self.loop)  # so that asyncio.get_event_loop() finds it, as plugins expect
        try:
            return act()
        finally:
            asyncio.set_event_loop(None)

    async def run(self, fit: Fit, *given: Any, **offered: Any) -> Any:
        """What a callback gives: an async one awaited here, a plain one called in a worker thread."""
        if fit.is_async:
            return await fit(*given, **offered)
        answer = await self.off_loop(lambda: fit(*given, **offered))
        return await answer if inspect.isawaitable(answer) else answer

    def soon(self, act: Callable[[], object]) -> None:
        """Have `act` done on the loop's thread: now if we are there, else as soon as it comes to it."""
        if self.on_loop():
            act()
        else:
            self.loop.call_soon_threadsafe(act)

    def call(self, act: Callable[[], T]) -> T:
        """What `act` gives or raises, done on the loop's thread."""
        if self.on_loop():
            return act()
        outcome: Outcome[T] = Outcome()
        self.loop.call_soon_threadsafe(outcome.of, act)
        return outcome.future.result()

    def _waited(self, work: Awaitable[T]) -> T:
        return self.wait(self.context(), as_coroutine(work))

    def wait(self, context: Context, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """From a worker thread: what `work` gives or raises, run on the loop in the plugin's scope.

        On the loop's own thread nobody may wait: there it raises `RuntimeError`.
        """
        if self.on_loop():
            work.close()
            raise RuntimeError(
                "this would wait on the loop's own thread for something that needs the loop: "
                "await the async form of it, or call it inside asyncio.to_thread(...)"
            )
        outcome: Outcome[T] = Outcome()
        self.loop.call_soon_threadsafe(lambda: context.run(outcome.awaited(work)))
        return outcome.future.result(timeout)


class Outcome(Generic[T]):
    """Carries what happens on the loop to the thread that waits for it."""

    def __init__(self) -> None:
        self.future: Future[T] = Future()

    def of(self, act: Callable[[], T]) -> None:
        with self:
            self.future.set_result(act())

    async def awaited(self, work: Coroutine[Any, Any, T]) -> None:
        with self:
            self.future.set_result(await work)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        self.future.set_exception(error)
        return isinstance(error, Exception)  # whoever waits has it now; a cancellation goes on its way
