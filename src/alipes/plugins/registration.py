"""One hook of one plugin: what it asks for, and how it is begun. What its answer means is the relay's."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import PluginError
from alipes.plugins import specs
from alipes.plugins.attribution import PLUGIN, as_coroutine, on_behalf_of
from alipes.plugins.owner import CORE, Owner
from alipes.plugins.stepped_coroutine import Rest, Watched
from alipes.runtime.watchdog import Watch, edge

Hook: TypeAlias = Callable[..., Any]


class Ways(Struct, frozen=True):
    """How a hook is treated otherwise than usual: doors to older plugins keep what those rely on."""

    title: str = ""
    """By which its author knows it; empty: the name of the spec."""
    always: bool = False
    """A decision: it is asked also when the matter is settled; its answer counts no more then."""
    lenient: bool = False
    """A decision: where it fails, it has said nothing."""


USUAL = Ways()


class Entry:
    """A hook as it was registered. As a deed it is watched: to block the loop is a strike."""

    __slots__ = (
        "deadline",
        "first",
        "held",
        "hits",
        "hook",
        "name",
        "off_loop",
        "owner",
        "second",
        "sync",
        "wanted",
        "watch",
        "ways",
    )
    even_off = False
    """It is called also when its plugin is switched off."""

    def __init__(self, owner: Owner, hook: Hook, wanted: tuple[str, ...], *, name: str, watch: Watch) -> None:
        self.owner, self.hook, self.wanted, self.name, self.watch = owner, hook, wanted, name, watch
        self.first, self.second = ((*(parameters(name) or ()), "", ""))[:2]
        self.deadline: float | None = None
        self.ways = USUAL
        self.sync = not inspect.iscoroutinefunction(hook)
        self.off_loop = False
        """It blocked the loop once, or had to be interrupted: from then on it runs in a worker thread."""
        self.held = 0.0
        """Seconds for which it blocked the loop, until the relay has dealt with it."""
        self.hits = 0
        """How often it was interrupted."""

    def __str__(self) -> str:
        return f"plugin {self.owner.name} in {self.title}"

    @property
    def title(self) -> str:
        return self.ways.title or self.name

    @property
    def patience(self) -> float:
        return math.inf if self.owner is CORE else self.watch.patience

    def blocked(self, seconds: float) -> None:
        self.held = seconds

    def interrupted(self, seconds: float) -> None:
        self.held = seconds
        self.hits += 1

    @edge
    def begin(self, given: Mapping[str, object]) -> Any:
        """Call it, on the loop's thread, up to its end or to where it waits: its answer, or a `Rest`."""
        watch, before = self.watch, self.watch.begin(None if self.off_loop else self)
        if self.sync:
            if self.off_loop:
                work = _threaded(partial(self.hook, **given))
            else:
                try:
                    answer = self.hook(**given)
                finally:
                    watch.end(before)
                    self.off_loop = bool(self.held)
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
        rest = Rest(work, waits_for, self, watch)
        rest.lasting = self.owner.lasting
        return rest


async def _threaded(call: Callable[[], Any]) -> Any:
    answer = await asyncio.to_thread(call)
    return await answer if inspect.isawaitable(answer) else answer


def wanted(owner: Owner, hook: Hook, name: str) -> tuple[str, ...]:
    """What the hook asks for by name. Raises `PluginError` for what no such hook is offered."""
    known = parameters(name)
    if known is None:
        raise PluginError(owner.name, name or repr(hook), "no such hook")
    if inspect.isasyncgenfunction(hook) or inspect.isgeneratorfunction(hook):
        raise PluginError(owner.name, name, "a hook returns its answer, it does not yield")
    taken = inspect.signature(hook).parameters.values()
    if any(each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL) for each in taken):
        raise PluginError(owner.name, name, "a hook takes its parameters by name")
    names = tuple(each.name for each in taken if each.kind is not each.VAR_KEYWORD)
    if unknown := set(names) - set(known):
        raise PluginError(owner.name, name, f"unknown parameters {sorted(unknown)}")
    return names if len(names) == len(taken) else known


def parameters(name: str) -> tuple[str, ...] | None:
    """What the hook `name` is offered, in order; None if there is no such hook."""
    spec = getattr(specs, name, None)
    if not inspect.iscoroutinefunction(spec):
        return None
    return tuple(inspect.signature(spec).parameters)


class Act:
    """`go`: done at most once, however often it is asked for. Who asks again is given the same."""

    def __init__(self, act: Callable[[Any], Awaitable[Any]], entry: Entry) -> None:
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
                self._given = await Watched(work, None, self._entry.watch)
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
        """May the wrapper answer this? What it was given it may pass on, whatever it is."""
        return isinstance(answer, kind) or (self._over.is_set() and answer is self._given)

    def raised(self, error: BaseException) -> bool:
        """Is the error not the wrapper's own, but what it stands around raised? Alone, or in a group."""
        own = self._error
        if own is None or isinstance(own, asyncio.CancelledError):
            return False
        if isinstance(error, BaseExceptionGroup):
            return error.split(lambda each: each is own)[1] is None
        return error is own

    async def instead(self, value: object) -> Any:
        """What counts after the wrapper broke: the act as if nobody stood around it."""
        return await (self._outcome() if self._begun else self(value))

    async def _outcome(self) -> Any:
        await self._over.wait()
        if isinstance(self._error, asyncio.CancelledError):
            why = "it cut short what it stands around, which is not done twice"
            raise PluginError(self._entry.owner.name, self._entry.name, why)
        if self._error is not None:
            raise self._error
        return self._given
