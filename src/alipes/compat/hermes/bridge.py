"""State that all Hermes compatibility modules share: the host, the event loop, the open plugins."""

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

from alipes.compat.hermes.call import PluginCallback
from alipes.compat.hermes.loop_access import allow_threads, disallow_threads
from alipes.compat.hermes.state import HookState, PlatformEntry, PluginEnvironment, ToolEntry
from alipes.config.paths import has_own_environ
from alipes.config.settings import Settings
from alipes.plugins.context import Context, Host
from alipes.plugins.foreign_loaders import FindFeature
from alipes.plugins.interruption.attribution import PLUGIN, as_coroutine
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import Contributions
from alipes.runtime.http.clients import ClientScope

T = TypeVar("T")
PACKAGE = "hermes_plugins"
"""Package of folder plugins: they are imported as `hermes_plugins.<slug>`."""
MAX_WORKERS = 32
"""Maximum number of sync callbacks and handlers that may block at the same time."""


class GatewayRunner:
    """The object that plugins know as the gateway's runner. Filled while the gateway is running."""

    def __init__(self) -> None:
        self.adapters: dict[Any, Any] = {}
        """Connected adapters by `Platform`."""
        self.session_store: Any = None
        self.config: Any = None


class MemoryOwner(Protocol):
    name: str
    owner: PluginOwner


class Bridge:
    """One per app. Methods may be called from any thread unless they say otherwise."""

    def __init__(self, host: Host, settings: Settings, find_feature: FindFeature | None = None) -> None:
        self.host, self.settings, self.find_feature = host, settings, find_feature
        self.gateway = GatewayRunner()
        self.state = HookState()
        self.tools: dict[str, ToolEntry] = {}
        """Tools of Hermes plugins by name; change it with `tools.register_tool` and
        `tools.unregister_tool`."""
        self.platforms: dict[str, PlatformEntry] = {}
        self.memory: MemoryOwner | None = None
        """The attached memory provider; there is at most one."""
        self.profile_name = settings.profile
        self.is_one_of_several = has_own_environ()
        """True if this process serves other profiles too."""
        self.environment = PluginEnvironment(settings.paths.env)
        self._contexts: dict[PluginOwner, tuple[Context, str]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._workers: ThreadPoolExecutor | None = None
        """Separate from the host's pool, so that blocking plugins do not hold up anything else."""

    @property
    def home(self) -> Path:
        return self.settings.home

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The host's event loop."""
        if self._loop is None:
            raise RuntimeError("no Hermes plugin is open")
        return self._loop

    def variable(self, name: str) -> str:
        """From the environment or the home's `.env`; empty if it is in neither."""
        return self.environment.read().get(name)

    def enter(self, context: Context, module: str) -> None:
        """Add a plugin whose code is in `module` and below. Call it on the loop's thread."""
        if not self._contexts:
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            allow_threads(self._loop, self._wait_in_plugin)
        self._contexts[context.owner] = context, module

    def leave(self, owner: PluginOwner) -> bool:
        """Remove a plugin; True if it was the last one."""
        self._contexts.pop(owner, None)
        self.tools = {name: each for name, each in self.tools.items() if each.owner is not owner}
        self.platforms = {name: each for name, each in self.platforms.items() if each.owner is not owner}
        if self._contexts:
            return False
        self.environment.restore()
        if self._workers is not None:
            self._workers.shutdown(wait=False)
            self._workers = None
        disallow_threads(self.loop, self._wait_in_plugin)
        return True

    def context(self, *things: object) -> Context:
        """The context of the calling plugin, from the current task or from the modules of `things`."""
        owner = PLUGIN.get()
        if owner is not None and owner in self._contexts:
            return self._contexts[owner][0]
        modules = [getattr(thing, "__module__", None) or "" for thing in things]
        for context, module in reversed(self._contexts.values()):
            if any(f"{each}.".startswith(f"{module}.") for each in modules):
                return context
        if len(self._contexts) == 1:
            return next(iter(self._contexts.values()))[0]
        raise RuntimeError("cannot determine which plugin is calling: call it from a hook, a tool or register()")

    def any_context(self) -> Context:
        """The context of the calling plugin, or of the latest one if that is unknown."""
        owner = PLUGIN.get()
        contexts = [context for context, _ in self._contexts.values()]
        if not contexts:
            raise RuntimeError("no Hermes plugin is open")
        return next((each for each in contexts if each.owner is owner), contexts[-1])

    def clients(self) -> ClientScope:
        """The network clients of the calling plugin."""
        return self.any_context().clients

    def contributions(self) -> Contributions:
        """What all plugins contribute."""
        return self.any_context().contributions

    def on_loop(self) -> bool:
        """True on the loop's own thread."""
        return threading.get_ident() == self._thread

    async def off_loop(self, act: Callable[[], T]) -> T:
        """Run `act` in a worker thread in which the host's loop is the current one."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="hermes")
        guest = partial(copy_context().run, self._run_in_thread, act)
        return await self.loop.run_in_executor(self._workers, guest)

    def _run_in_thread(self, act: Callable[[], T]) -> T:
        asyncio.set_event_loop(self.loop)  # so that asyncio.get_event_loop() finds it, as plugins expect
        try:
            return act()
        finally:
            asyncio.set_event_loop(None)

    async def run(self, callback: PluginCallback, *args: Any, **offered: Any) -> Any:
        """Call a callback: an async one is awaited here, a sync one runs in a worker thread."""
        if callback.is_async:
            return await callback(*args, **offered)
        answer = await self.off_loop(lambda: callback(*args, **offered))
        return await answer if inspect.isawaitable(answer) else answer

    def soon(self, act: Callable[[], object]) -> None:
        """Run `act` on the loop's thread: now if we are there, otherwise as soon as possible."""
        if self.on_loop():
            act()
        else:
            self.loop.call_soon_threadsafe(act)

    def call(self, act: Callable[[], T]) -> T:
        """Run `act` on the loop's thread and return its result."""
        if self.on_loop():
            return act()
        outcome: ThreadResult[T] = ThreadResult()
        self.loop.call_soon_threadsafe(outcome.run, act)
        return outcome.future.result()

    def _wait_in_plugin(self, work: Awaitable[T]) -> T:
        return self.wait(self.context(), as_coroutine(work))

    def wait(self, context: Context, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """From a worker thread: run `work` on the loop in the plugin's scope and return its result.

        Raises `RuntimeError` on the loop's own thread.
        """
        if self.on_loop():
            work.close()
            raise RuntimeError(
                "this would block the event loop: await the async variant, or call it inside asyncio.to_thread(...)"
            )
        outcome: ThreadResult[T] = ThreadResult()
        self.loop.call_soon_threadsafe(lambda: context.run(outcome.run_coroutine(work)))
        return outcome.future.result(timeout)


class ThreadResult(Generic[T]):
    """Hands a result from one thread to another that waits for it."""

    def __init__(self) -> None:
        self.future: Future[T] = Future()

    def run(self, act: Callable[[], T]) -> None:
        with self:
            self.future.set_result(act())

    async def run_coroutine(self, work: Coroutine[Any, Any, T]) -> None:
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
        return isinstance(error, Exception)  # the waiting thread has it now; cancellation still propagates
