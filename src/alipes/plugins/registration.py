"""One hook of one plugin: its parameters and how it is called."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from opcode import opmap
from types import TracebackType
from typing import Any, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.plugins import specs
from alipes.plugins.interruption.attribution import PLUGIN, as_coroutine, on_behalf_of
from alipes.plugins.interruption.stepped_coroutine import SteppedCoroutine, WatchedCoroutine
from alipes.plugins.owner import CORE, PluginOwner
from alipes.runtime.watchdog import LoopActivity, plugin_boundary

Hook: TypeAlias = Callable[..., Any]


class HookOptions(Struct, frozen=True):
    """Deviations from the usual treatment."""

    title: str = ""
    """The name its author knows it by; empty: the name of the spec."""
    always_ask: bool = False
    """For decisions: call it even if the decision is made; its answer is then ignored."""
    fail_open: bool = False
    """For decisions: if it fails, it has no say."""
    first: bool = False
    """It is called before those that were added earlier."""


DEFAULT_OPTIONS = HookOptions()


_SEND = opmap["SEND"]
"""The instruction of `await`, `async with` and `async for`."""


class HookEntry:
    """A registered hook. It is watched: blocking the loop is a strike."""

    __slots__ = (
        "blocked_seconds",
        "deadline",
        "first",
        "first_step",
        "hook",
        "interruptions",
        "label",
        "name",
        "off_loop",
        "options",
        "owner",
        "parameters",
        "second",
        "sync",
        "waits",
        "watch",
    )
    runs_when_disabled = False
    """Called even if its plugin is disabled."""

    def __init__(
        self, owner: PluginOwner, hook: Hook, wanted: tuple[str, ...], *, name: str, watch: LoopActivity
    ) -> None:
        self.owner, self.hook, self.parameters, self.name, self.watch = owner, hook, wanted, name, watch
        self.first, self.second = ((*(hook_parameters(name) or ()), "", ""))[:2]
        self.deadline: float | None = None
        self.options = DEFAULT_OPTIONS
        self.label = name
        """Names it among the callbacks of its plugin."""
        self.sync = not inspect.iscoroutinefunction(hook)
        code = getattr(hook, "__code__", None)
        self.waits = self.sync or not owner.permanent or code is None or _SEND in code.co_code[::2]
        """It may wait for something. Hooks of plugins are taken to."""
        self.off_loop = False
        """It blocked the event loop once or was interrupted: from then on it runs in a worker thread."""
        self.blocked_seconds = 0.0
        """Seconds for which it blocked the event loop, until the dispatcher has handled it."""
        self.interruptions = 0
        """How often it was interrupted."""
        self.first_step: float | None = None
        """Seconds that its next step may block the loop, if another hook has just blocked it."""

    def __str__(self) -> str:
        return f"plugin {self.owner.name} in {self.title}"

    @property
    def title(self) -> str:
        return self.options.title or self.name

    @property
    def patience(self) -> float:
        if self.owner is CORE:
            return math.inf
        return self.watch.patience if self.first_step is None else self.first_step

    def blocked(self, seconds: float) -> None:
        self.blocked_seconds = seconds

    def interrupted(self, seconds: float) -> None:
        self.blocked_seconds = seconds
        self.interruptions += 1

    @plugin_boundary
    def begin(self, given: Mapping[str, object]) -> Any:
        """Call it on the loop's thread until it ends or waits: its answer, or a `SteppedCoroutine`."""
        watch, before = self.watch, self.watch.begin(None if self.off_loop else self)
        if self.first_step is not None:
            watch.wake()
        if self.sync:
            if self.off_loop:
                work = _run_in_thread(partial(self.hook, **given))
            else:
                try:
                    answer = self.hook(**given)
                finally:
                    watch.end(before)
                    self.off_loop = bool(self.blocked_seconds) and self.first_step is None
                if answer is None or not inspect.isawaitable(answer):
                    return answer
                work = as_coroutine(answer)
                before = watch.begin(self)
        else:
            work = self.hook(**given)
        try:
            waits_for = work.send(None)
        except StopIteration as over:
            return over.value
        finally:
            watch.end(before)
        rest = SteppedCoroutine(work, waits_for, self, watch)
        rest.permanent = self.owner.permanent
        return rest


async def _run_in_thread(call: Callable[[], Any]) -> Any:
    answer = await asyncio.to_thread(call)
    return await answer if inspect.isawaitable(answer) else answer


def check_hook(owner: PluginOwner, hook: Hook, name: str) -> tuple[str, ...]:
    """The parameters the hook asks for. Raises `PluginError` for unknown ones."""
    known = hook_parameters(name)
    if known is None:
        raise PluginError(owner.name, name or repr(hook), "no such hook")
    if inspect.isasyncgenfunction(hook) or inspect.isgeneratorfunction(hook):
        raise PluginError(owner.name, name, "a hook must return its answer, not yield")
    taken = inspect.signature(hook).parameters.values()
    if any(each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL) for each in taken):
        raise PluginError(owner.name, name, "a hook must take its parameters by name")
    names = tuple(each.name for each in taken if each.kind is not each.VAR_KEYWORD)
    if unknown := sorted(set(names) - set(known)):
        what = " ".join(f"unknown parameter {each}.{did_you_mean(each, known)}" for each in unknown)
        raise PluginError(owner.name, name, f"{what} It may take {', '.join(known)}")
    return names if len(names) == len(taken) else known


def hook_parameters(name: str) -> tuple[str, ...] | None:
    """The parameters of the hook `name`, in order; None if no such hook."""
    spec = getattr(specs, name, None)
    if not inspect.iscoroutinefunction(spec):
        return None
    return tuple(inspect.signature(spec).parameters)


class WrappedCall:
    """`go`: runs at most once. Later calls return the same result."""

    def __init__(self, act: Callable[[Any], Awaitable[Any]], entry: HookEntry) -> None:
        self._act, self._entry = act, entry
        self._around = PLUGIN.get()
        self._begun = False
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self._given: Any = None

    async def __call__(self, value: object) -> Any:
        if not self._begun:
            self._begun = True
            with self, on_behalf_of(self._around):
                work = as_coroutine(self._act(value))
                self._given = await WatchedCoroutine(work, None, self._entry.watch)
        return await self._outcome()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._error = error
        self._over.set()

    def running(self) -> bool:
        return self._begun and not self._over.is_set()

    def accepts(self, answer: object, kind: type | tuple[type, ...]) -> bool:
        """May the wrapper return this? The result of `go` may always be passed on."""
        return isinstance(answer, kind) or (self._over.is_set() and answer is self._given)

    def raised(self, error: BaseException) -> bool:
        """True if the error came from the wrapped call and not from the wrapper; alone or in a group."""
        own = self._error
        if own is None or isinstance(own, asyncio.CancelledError):
            return False
        if isinstance(error, BaseExceptionGroup):
            return error.split(lambda each: each is own)[1] is None
        return error is own

    async def instead(self, value: object) -> Any:
        """The result after the wrapper failed: that of the wrapped call, as if there were no wrapper."""
        return await (self._outcome() if self._begun else self(value))

    async def _outcome(self) -> Any:
        await self._over.wait()
        if isinstance(self._error, asyncio.CancelledError):
            why = "it cancelled the wrapped call, which is not repeated"
            raise PluginError(self._entry.owner.name, self._entry.name, why)
        if self._error is not None:
            raise self._error
        return self._given
