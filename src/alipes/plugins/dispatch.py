"""Calls plugin hooks and isolates their failures from the turn."""

import asyncio
import logging
import math
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast

from alipes.kernel.errors import AlipesError, PluginError
from alipes.kernel.ports import ToolOutput
from alipes.kernel.turns import ModelReply
from alipes.plugins.interruption.attribution import MAX_BLOCK, PLUGIN
from alipes.plugins.interruption.stepped_coroutine import SteppedCoroutine, start_short, start_task
from alipes.plugins.owner import CORE, PluginOwner
from alipes.plugins.registration import (
    DEFAULT_OPTIONS,
    Hook,
    HookEntry,
    HookOptions,
    WrappedCall,
    check_hook,
    hook_parameters,
)
from alipes.plugins.specs import Admission, Verdict
from alipes.runtime.watchdog import LOOP_ACTIVITY, LoopActivity, LoopBlockInterrupted

__all__ = ["DEADLINE", "Hook", "Hooks", "HookDispatcher", "Report", "guard", "hook_parameters"]
log = logging.getLogger(__name__)
Report: TypeAlias = Callable[[str, Mapping[str, object]], None]
"""Called with a sentence about what a plugin did wrong, and with the arguments it was given."""
T = TypeVar("T")
Kind: TypeAlias = type | tuple[type, ...]
DEADLINE = 5.0
BLOCK_PAUSE = 0.05
"""Pause in seconds after a hook blocked the event loop, before the next one is called."""
FIRST_STEPS = 0.02
"""Seconds for the first steps of all hooks that follow one that blocked, in parallel; each may use half of the rest."""
MIN_FIRST_STEP = 0.001
SWITCH_INTERVAL = 0.0005
"""Seconds after which a hook that spins yields the interpreter to the watchdog, meanwhile. Python's default is ten
times that, for each of them."""
_ANSWER_TYPES: Mapping[str, Kind] = {
    "before_message": Admission,
    "before_tool": Verdict,
    "before_answer": Verdict,
    "around_tool": (str, ToolOutput),
    "around_request": ModelReply,
}
_PARALLEL = frozenset({"agent_loop_stopped", "turn_ended", "session_left", "session_reset"})
"""Called while the session handles nothing else: these hooks run in parallel."""


class _Failed(Exception):
    """A plugin failed; the kind of hook decides what follows."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what)
        self.why = why


def _no_report(_what: str, _offered: Mapping[str, object]) -> None:
    return None


class Hooks:
    """The registered hooks. A turn uses the `dispatcher` of the moment it started."""

    def __init__(
        self,
        deadline: float = DEADLINE,
        report: Report = _no_report,
        *,
        deadlines: Mapping[str, float] = MappingProxyType({}),
        watch: LoopActivity = LOOP_ACTIVITY,
    ) -> None:
        """`deadlines`: by hook, if it differs from the default."""
        self.report = report
        self._deadline, self._deadlines, self._watch = deadline, deadlines, watch
        self._entries: dict[str, list[HookEntry]] = {}
        self._owners: set[PluginOwner] = set()
        self._relay: HookDispatcher | None = None

    def add_owner(self, owner: PluginOwner) -> None:
        """A plugin is open, with or without hooks: turns that start from now on keep it open."""
        self._owners.add(owner)
        self._relay = None

    def add(
        self,
        owner: PluginOwner,
        hook: Hook,
        *,
        name: str = "",
        deadline: float | None = None,
        patient: bool = False,
        options: HookOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Register `hook` as `name`, or under its own name; raises for an unknown name or parameter.

        `deadline`: for this hook alone. `patient`: no time limit, for instance to wait for a person. For a
        wrapping hook, only its own time counts.
        """
        name = name or getattr(hook, "__name__", "")
        entry = HookEntry(owner, hook, check_hook(owner, hook, name), name=name, watch=self._watch)
        usual = self._deadlines.get(name, self._deadline)
        entry.deadline = None if patient else usual if deadline is None else deadline
        entry.options = options
        entries = self._entries.setdefault(name, [])
        before = sum(each.owner is owner and each.title == entry.title for each in entries)
        entry.label = f"{entry.title} #{before + 1}" if before else entry.title
        entries.insert(0 if options.first else len(entries), entry)
        self._relay = None

    def remove(self, owner: PluginOwner) -> None:
        for entries in self._entries.values():
            entries[:] = [entry for entry in entries if entry.owner is not owner]
        self._owners.discard(owner)
        self._relay = None

    @property
    def dispatcher(self) -> "HookDispatcher":
        """The current hooks; later changes do not affect it."""
        if self._relay is None:
            entries = {name: tuple(each) for name, each in self._entries.items() if each}
            self._relay = HookDispatcher(entries, lambda what, offered: self.report(what, offered), self._owners)
        return self._relay


class HookDispatcher:
    """Calls the hooks in the order of their registration.

    Gates fail closed, observers and filters fail open. Failures are logged with the plugin's name, and a
    callback is silenced after three strikes.
    """

    def __init__(
        self,
        entries: Mapping[str, tuple[HookEntry, ...]] = MappingProxyType({}),
        report: Report = _no_report,
        owners: Iterable[PluginOwner] = (),
    ) -> None:
        self._entries, self._report = entries, report
        self._owners = {*owners, *(entry.owner for each in entries.values() for entry in each)} - {CORE}

    def hold(self) -> None:
        """A turn starts to use these hooks: their plugins stay open until `release`."""
        for owner in self._owners:
            owner.hold()

    def release(self) -> None:
        for owner in self._owners:
            owner.release()

    def has_hooks(self, *wanted: Callable[..., object]) -> bool:
        """True if any of these hooks is registered, for callers that would do extra work."""
        return any(spec.__name__ in self._entries for spec in wanted)

    async def notify(self, spec: Callable[..., Awaitable[None]], **offered: object) -> None:
        """Observe: call all of them.

        They start at once and in order. At the end of a turn or conversation they run in parallel: each has made
        its first step before the loop yields. One that blocks the loop is interrupted; those after it then share
        `FIRST_STEPS`, so that many which block take hardly longer than one.
        """
        entries = self._entries.get(spec.__name__)
        if entries is None:
            return
        if spec.__name__ not in _PARALLEL:
            for entry in entries:
                try:
                    await self._call(entry, offered)
                except _Failed:
                    continue
            return
        async with asyncio.TaskGroup() as group:
            self._begin_all(group, entries, offered)

    def _begin_all(self, group: asyncio.TaskGroup, entries: Iterable[HookEntry], offered: Mapping[str, object]) -> None:
        """Make the first step of each hook."""
        left, usual = None, sys.getswitchinterval()
        try:
            for entry in entries:
                before = entry.interruptions, entry.watch.clock()
                entry.first_step = None if left is None else max(left / 2, MIN_FIRST_STEP)
                start = start_task if entry.waits else start_short
                start(group, self._observe(entry, offered), name=str(entry))
                entry.first_step = None
                if left is not None:
                    left -= entry.watch.clock() - before[1]
                elif entry.interruptions != before[0]:
                    left = FIRST_STEPS
                    sys.setswitchinterval(SWITCH_INTERVAL)
        finally:
            sys.setswitchinterval(usual)

    async def _observe(self, entry: HookEntry, offered: Mapping[str, object]) -> None:
        try:
            await self._call(entry, offered)
        except _Failed:
            return

    async def filter(self, spec: Callable[..., Awaitable[T | None]], value: T, **offered: object) -> T:
        """Filter: pass the value through all of them."""
        kind = Mapping if isinstance(value, Mapping) else type(value)
        for entry in self._entries.get(spec.__name__, ()):
            offered[entry.first] = value
            try:
                answer = await self._call(entry, offered, kind)
            except _Failed:
                continue
            value = value if answer is None else answer
        return value

    async def decide(
        self, spec: Callable[..., Awaitable[T | None]], closed: Callable[[str], T | None], **offered: object
    ) -> T | None:
        """Decide: the first answer wins; if a hook fails, `closed(reason)` is its answer."""
        settled: T | None = None
        for entry in self._entries.get(spec.__name__, ()):
            if settled is not None and not entry.options.always_ask:
                continue
            try:
                answer: T | None = await self._call(entry, offered, _ANSWER_TYPES[entry.name])
            except _Failed as error:
                answer = None if entry.options.fail_open else closed(str(error))
            settled = answer if settled is None else settled
        return settled

    async def wrap(
        self, spec: Callable[..., Awaitable[T]], go: Callable[..., Awaitable[T]], value: object, **offered: object
    ) -> T:
        """Wrap: `go(value)` inside all of them; the first registered is the outermost.

        A wrapper that fails is ignored: the result or error of `go` counts, and `go` is not repeated. Raises
        `PluginError` if the wrapper cancelled the call it had started.
        """
        wrapped: Callable[[Any], Awaitable[Any]] = go
        for entry in reversed(self._entries.get(spec.__name__, ())):
            wrapped = partial(self._inside, entry, wrapped, offered)
        return cast(T, await wrapped(value))

    async def _inside(
        self, entry: HookEntry, go: Callable[[Any], Awaitable[Any]], offered: Mapping[str, object], value: object
    ) -> Any:
        if entry.owner.disabled or entry.label in entry.owner.silenced:
            return await go(value)
        act = WrappedCall(go, entry)
        known = {**offered, "go": act}
        known[entry.second] = value
        try:
            return await self._call(entry, known, _ANSWER_TYPES[entry.name], act=act)
        except _Failed:
            return await act.instead(value)

    async def _call(
        self,
        entry: HookEntry,
        offered: Mapping[str, object],
        kind: Kind | None = None,
        *,
        act: WrappedCall | None = None,
    ) -> Any:
        """The hook's answer, or None if its plugin is disabled. Raises `_Failed`, and errors that are not the
        plugin's own."""
        if _is_off(entry):
            return None
        given = {name: offered[name] for name in entry.parameters}
        rest: SteppedCoroutine | None = None
        former = PLUGIN.get()
        PLUGIN.set(entry.owner)
        try:
            answer = entry.begin(given)
            if type(answer) is SteppedCoroutine:
                rest = answer
                answer = await _await_rest(rest, entry, act)
            if kind is not None:
                _check_type(answer, kind, act)
        except BaseException as raised:  # bulkhead: a broken plugin must not end the turn
            if _is_foreign_error(raised, rest, act):
                raise
            error = raised
            if isinstance(error, LoopBlockInterrupted):
                entry.blocked_seconds = 0.0  # the failure itself is the strike
        else:
            return answer
        finally:
            PLUGIN.set(former)
            if entry.blocked_seconds:
                self._tell_block(entry, offered)
        why = _describe_error(entry, rest, error)
        failed = _Failed(f"plugin {entry.owner.name} failed in {entry.title}: {why}", why)
        log.error("%s", failed, exc_info=error)
        self._strike(entry, str(failed), why, offered)
        await _after_failure(error, rest)
        raise failed from error

    def _tell_block(self, entry: HookEntry, offered: Mapping[str, object]) -> None:
        seconds, entry.blocked_seconds = entry.blocked_seconds, 0.0
        if entry.owner.permanent:
            return  # part of alipes: the watchdog has logged it, and nobody can switch it off
        why = f"blocked the event loop for {seconds:.2f} s"
        self._strike(entry, f"{entry} {why}", f"{entry.title} {why}", offered)

    def _strike(self, entry: HookEntry, what: str, why: str, offered: Mapping[str, object]) -> None:
        self._report(what, offered)
        if entry.owner.strike(entry.label) and not entry.runs_when_disabled and entry.label not in entry.owner.silenced:
            silenced = entry.owner.silence(entry.label, why)
            log.error("%s", silenced)
            self._report(silenced, offered)


async def guard(
    owner: PluginOwner, what: str, work: Awaitable[T], *, deadline: float | None = None, max_block: float = MAX_BLOCK
) -> T:
    """Await plugin code that is not a hook, such as its setup, a command or a background task.

    It runs on the plugin's behalf and is watched. If it fails, takes longer than `deadline`, or blocks the
    loop longer than `max_block`, that is a strike and `PluginError` is raised. It is never silenced, and a
    disabled plugin may still close what it opened.
    """
    entry = _PluginWork(owner, lambda: work, (), name=what, watch=LOOP_ACTIVITY)
    entry.deadline, entry.holding, entry.label = deadline, max_block, what
    try:
        return cast(T, await HookDispatcher()._call(entry, {}))
    except _Failed as failed:
        if isinstance(failed.__cause__, PluginError):
            raise failed.__cause__ from None
        raise PluginError(owner.name, what, failed.why) from failed.__cause__


class _PluginWork(HookEntry):
    """Plugin code outside hooks. Blocking is logged; it is a strike only if it had to be interrupted."""

    __slots__ = ("holding",)
    runs_when_disabled = True
    holding: float

    @property
    def patience(self) -> float:
        return math.inf if self.owner is CORE else self.holding

    def blocked(self, seconds: float) -> None:
        return None


def _is_off(entry: HookEntry) -> bool:
    """True if it is switched off. Raises `_Failed` for a callback of a required plugin."""
    owner = entry.owner
    if entry.label not in owner.silenced:
        return owner.disabled and not entry.runs_when_disabled
    if owner.required:
        raise _Failed(f"{entry.label} of plugin {owner.name}, which is required, is off", "it is off")
    return True


async def _await_rest(rest: SteppedCoroutine, entry: HookEntry, act: WrappedCall | None) -> Any:
    if act is not None:
        rest.busy = act.running
    answer = await rest.with_deadline(entry.deadline)
    if rest.task_was_cancelled():
        raise asyncio.CancelledError  # the hook swallowed the cancellation of the turn
    if rest.timed_out:
        raise TimeoutError
    return answer


def _check_type(answer: object, kind: Kind, act: WrappedCall | None) -> None:
    fits = act.accepts(answer, kind) if act else answer is None or isinstance(answer, kind)
    if not fits:
        names = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise TypeError(f"it returned {type(answer).__name__}, not {names}")


def _is_foreign_error(error: BaseException, rest: SteppedCoroutine | None, act: WrappedCall | None) -> bool:
    if isinstance(error, asyncio.CancelledError):
        return _was_stopped(error, rest) and rest is not None and not rest.timed_out
    return isinstance(error, KeyboardInterrupt | GeneratorExit) or (act is not None and act.raised(error))


def _was_stopped(error: BaseException, rest: SteppedCoroutine | None) -> bool:
    """True if it was cancelled because the turn was. If it never waited, only the plugin can have cancelled
    it."""
    return isinstance(error, asyncio.CancelledError) and rest is not None and rest.task_was_cancelled()


async def _after_failure(error: BaseException, rest: SteppedCoroutine | None) -> None:
    """After a failure was reported: let others run, and pass on a stop of the turn."""
    if isinstance(error, LoopBlockInterrupted):
        await asyncio.sleep(BLOCK_PAUSE)
    if _was_stopped(error, rest):
        raise error  # the turn is stopped in any case


def _describe_error(entry: HookEntry, rest: SteppedCoroutine | None, error: BaseException) -> str:
    if rest is not None and rest.timed_out:
        late = "did not end when it was cancelled"
        return late if entry.deadline is None else f"took longer than {entry.deadline:g} s"
    if isinstance(error, asyncio.CancelledError):
        return "cancelled itself"
    if isinstance(error, AlipesError | LoopBlockInterrupted):
        return str(error)
    # Not `repr`: that is the plugin's own code and may fail.
    return " ".join("".join(traceback.format_exception_only(error)).split())
