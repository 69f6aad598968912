"""Calls plugins, and keeps what they do wrong away from the turn. Who they are is the loader's to say."""

import asyncio
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast

from alipes.kernel.errors import AlipesError, PluginError
from alipes.kernel.ports import Output
from alipes.kernel.turns import Replied
from alipes.plugins.attribution import HOLDING, PLUGIN
from alipes.plugins.owner import CORE, Owner
from alipes.plugins.registration import USUAL, Act, Entry, Hook, Ways, parameters, wanted
from alipes.plugins.specs import Admission, Verdict
from alipes.plugins.stepped_coroutine import Rest, start
from alipes.runtime.watchdog import LOOP, Interrupted, Watch

__all__ = ["DEADLINE", "Hook", "Hooks", "Relay", "Report", "guard", "parameters"]
log = logging.getLogger(__name__)
Report: TypeAlias = Callable[[str, Mapping[str, object]], None]
"""Told in a sentence what a plugin did wrong, and what it was offered at the time."""
T = TypeVar("T")
Kind: TypeAlias = type | tuple[type, ...]
DEADLINE = 5.0
RELIEF = 0.05
"""Seconds for others, after a hook held everybody up and before the next is called: it may do the same."""
_ANSWERS: Mapping[str, Kind] = {
    "before_message": Admission,
    "before_tool": Verdict,
    "before_answer": Verdict,
    "around_tool": (str, Output),
    "around_request": Replied,
}
_SIDE_BY_SIDE = frozenset({"agent_loop_stopped", "turn_ended", "session_left", "session_reset"})
"""Told by a session itself, which serves nobody meanwhile: the slowest decides, not the sum."""


class _Failed(Exception):
    """A plugin broke; the kind of hook decides what that means."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what)
        self.why = why


def _silent(_what: str, _offered: Mapping[str, object]) -> None:
    return None


class Hooks:
    """The registered hooks. What a turn calls is the `relay` of the moment it began."""

    def __init__(
        self,
        deadline: float = DEADLINE,
        report: Report = _silent,
        *,
        deadlines: Mapping[str, float] = MappingProxyType({}),
        watch: Watch = LOOP,
    ) -> None:
        """`deadlines`: by hook, where it is not the usual one."""
        self.report = report
        self._deadline, self._deadlines, self._watch = deadline, deadlines, watch
        self._entries: dict[str, list[Entry]] = {}
        self._owners: set[Owner] = set()
        self._relay: Relay | None = None

    def join(self, owner: Owner) -> None:
        """A plugin is open, whether it has hooks or not: turns that begin from now on hold it."""
        self._owners.add(owner)
        self._relay = None

    def add(
        self,
        owner: Owner,
        hook: Hook,
        *,
        name: str = "",
        deadline: float | None = None,
        patient: bool = False,
        ways: Ways = USUAL,
    ) -> None:
        """Register `hook` as `name`, or under its own; a name or parameter we do not know is refused here.

        `deadline`: for this one alone. `patient`: it may take as long as it likes, for instance to wait
        for a person's word. Of a hook that wraps, its own time counts, not that of what it wraps.
        """
        name = name or getattr(hook, "__name__", "")
        entry = Entry(owner, hook, wanted(owner, hook, name), name=name, watch=self._watch)
        usual = self._deadlines.get(name, self._deadline)
        entry.deadline = None if patient else usual if deadline is None else deadline
        entry.ways = ways
        self._entries.setdefault(name, []).append(entry)
        self._relay = None

    def remove(self, owner: Owner) -> None:
        for entries in self._entries.values():
            entries[:] = [entry for entry in entries if entry.owner is not owner]
        self._owners.discard(owner)
        self._relay = None

    @property
    def relay(self) -> "Relay":
        """The hooks as they are now; what is added or removed later does not change it."""
        if self._relay is None:
            entries = {name: tuple(each) for name, each in self._entries.items() if each}
            self._relay = Relay(entries, lambda what, offered: self.report(what, offered), self._owners)
        return self._relay


class Relay:
    """Calls the hooks, in the order they were registered.

    Gates fail closed, observers and filters fail open; both are logged with the plugin's
    name, and a plugin is switched off after three strikes.
    """

    def __init__(
        self,
        entries: Mapping[str, tuple[Entry, ...]] = MappingProxyType({}),
        report: Report = _silent,
        owners: Iterable[Owner] = (),
    ) -> None:
        self._entries, self._report = entries, report
        self._owners = {*owners, *(entry.owner for each in entries.values() for entry in each)} - {CORE}

    def hold(self) -> None:
        """A turn begins that calls these: its plugins stay open until `release`."""
        for owner in self._owners:
            owner.hold()

    def release(self) -> None:
        for owner in self._owners:
            owner.release()

    def listens(self, *wanted: Callable[..., object]) -> bool:
        """Is there anyone to call? For callers to whom the question itself costs something."""
        return any(spec.__name__ in self._entries for spec in wanted)

    async def tell(self, spec: Callable[..., Awaitable[None]], **offered: object) -> None:
        """Observe: call all of them.

        Each begins at once and in order. Those of a turn's or conversation's end go on side by side.
        """
        entries = self._entries.get(spec.__name__)
        if entries is None:
            return
        if spec.__name__ not in _SIDE_BY_SIDE:
            for entry in entries:
                try:
                    await self._call(entry, offered)
                except _Failed:
                    continue
            return
        async with asyncio.TaskGroup() as group:
            for entry in entries:
                hits = entry.hits
                start(group, self._observe(entry, offered), name=str(entry))
                if entry.hits != hits:
                    await asyncio.sleep(RELIEF)

    async def _observe(self, entry: Entry, offered: Mapping[str, object]) -> None:
        try:
            await self._call(entry, offered)
        except _Failed:
            return

    async def filter(self, spec: Callable[..., Awaitable[T | None]], value: T, **offered: object) -> T:
        """Filter: the value after all of them had it."""
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
        """Decide: the first answer; of a hook that fails, what `closed` makes of the reason, if anything."""
        settled: T | None = None
        for entry in self._entries.get(spec.__name__, ()):
            if settled is not None and not entry.ways.always:
                continue
            try:
                answer: T | None = await self._call(entry, offered, _ANSWERS[entry.name])
            except _Failed as error:
                answer = None if entry.ways.lenient else closed(str(error))
            settled = answer if settled is None else settled
        return settled

    async def wrap(
        self,
        spec: Callable[..., Awaitable[T]],
        go: Callable[..., Awaitable[T]],
        value: object,
        **offered: object,
    ) -> T:
        """Wrap: `go(value)`, inside all of them; the first registered is the outermost.

        A wrapper that breaks is as if it were not there: what `go` gave or raised counts, and it is not
        done twice. Raises `PluginError` where it cut short what it had begun.
        """
        wrapped: Callable[[Any], Awaitable[Any]] = go
        for entry in reversed(self._entries.get(spec.__name__, ())):
            wrapped = partial(self._inside, entry, wrapped, offered)
        return cast(T, await wrapped(value))

    async def _inside(
        self, entry: Entry, go: Callable[[Any], Awaitable[Any]], offered: Mapping[str, object], value: object
    ) -> Any:
        if entry.owner.off:
            return await go(value)
        act = Act(go, entry)
        known = {**offered, "go": act}
        known[entry.second] = value
        try:
            return await self._call(entry, known, _ANSWERS[entry.name], act=act)
        except _Failed:
            return await act.instead(value)

    async def _call(
        self, entry: Entry, offered: Mapping[str, object], kind: Kind | None = None, *, act: Act | None = None
    ) -> Any:
        """What the hook answers, or None where its plugin is off. Raises `_Failed`, and what is not the
        plugin's doing."""
        if entry.owner.off and not entry.even_off:
            return None
        given = {name: offered[name] for name in entry.wanted}
        rest: Rest | None = None
        former = PLUGIN.get()
        PLUGIN.set(entry.owner)
        try:
            answer = entry.begin(given)
            if type(answer) is Rest:
                rest = answer
                answer = await _finished(rest, entry, act)
            if kind is not None:
                _check(answer, kind, act)
        except BaseException as raised:  # bulkhead: a broken plugin must not end the turn
            if _not_its_doing(raised, rest, act):
                raise
            error = raised
            if isinstance(error, Interrupted):
                entry.held = 0.0  # it failed, and that is one strike
        else:
            return answer
        finally:
            PLUGIN.set(former)
            if entry.held:
                self._tell_block(entry, offered)
        why = _why(entry, rest, error)
        failed = _Failed(f"plugin {entry.owner.name} failed in {entry.title}: {why}", why)
        log.error("%s", failed, exc_info=error)
        self._strike(entry, str(failed), why, offered)
        await _after(error, rest)
        raise failed from error

    def _tell_block(self, entry: Entry, offered: Mapping[str, object]) -> None:
        seconds, entry.held = entry.held, 0.0
        why = f"blocked everybody for {seconds:.2f} s"
        self._strike(entry, f"{entry} {why}", f"{entry.title} {why}", offered)

    def _strike(self, entry: Entry, what: str, why: str, offered: Mapping[str, object]) -> None:
        self._report(what, offered)
        if entry.owner.strike(why):
            log.error("plugin %s is %s", entry.owner.name, entry.owner.why)
            self._report(f"plugin {entry.owner.name} is {entry.owner.why}", offered)


async def guard(
    owner: Owner, what: str, work: Awaitable[T], *, deadline: float | None = None, holding: float = HOLDING
) -> T:
    """Await something of a plugin's that is no hook, such as its setup, a command or a task beside turns.

    It is done in the plugin's name, and watched. If it breaks, or takes longer than `deadline`, that is
    a strike, and `PluginError` is raised; also if one step of it holds the loop longer than `holding`.
    A plugin that is off may still close what it has open.
    """
    entry = _Work(owner, lambda: work, (), name=what, watch=LOOP)
    entry.deadline, entry.holding = deadline, holding
    try:
        return cast(T, await Relay()._call(entry, {}))
    except _Failed as failed:
        if isinstance(failed.__cause__, PluginError):
            raise failed.__cause__ from None
        raise PluginError(owner.name, what, failed.why) from failed.__cause__


class _Work(Entry):
    """What a plugin does outside hooks. To block is named, and a strike only where it must be interrupted."""

    __slots__ = ("holding",)
    even_off = True
    holding: float

    @property
    def patience(self) -> float:
        return math.inf if self.owner is CORE else self.holding

    def blocked(self, seconds: float) -> None:
        return None


async def _finished(rest: Rest, entry: Entry, act: Act | None) -> Any:
    if act is not None:
        rest.busy = act.running
    answer = await rest.within(entry.deadline)
    if rest.cancelled_meanwhile():
        raise asyncio.CancelledError  # it kept to itself that the turn was stopped
    if rest.overran:
        raise TimeoutError
    return answer


def _check(answer: object, kind: Kind, act: Act | None) -> None:
    fits = act.accepts(answer, kind) if act else answer is None or isinstance(answer, kind)
    if not fits:
        names = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise TypeError(f"it gave {type(answer).__name__}, not {names}")


def _not_its_doing(error: BaseException, rest: Rest | None, act: Act | None) -> bool:
    if isinstance(error, asyncio.CancelledError):
        return _stopped(error, rest) and rest is not None and not rest.overran
    return isinstance(error, KeyboardInterrupt | GeneratorExit) or (act is not None and act.raised(error))


def _stopped(error: BaseException, rest: Rest | None) -> bool:
    """Was it cancelled because we were? Where it never waited, nobody else can have cancelled it."""
    return isinstance(error, asyncio.CancelledError) and rest is not None and rest.cancelled_meanwhile()


async def _after(error: BaseException, rest: Rest | None) -> None:
    """It is told what went wrong; now for those whom that concerns."""
    if isinstance(error, Interrupted):
        await asyncio.sleep(RELIEF)
    if _stopped(error, rest):
        raise error  # the turn is stopped all the same


def _why(entry: Entry, rest: Rest | None, error: BaseException) -> str:
    if rest is not None and rest.overran:
        late = "did not end when it was cancelled"
        return late if entry.deadline is None else f"took longer than {entry.deadline:g} s"
    if isinstance(error, asyncio.CancelledError):
        return "was cancelled from inside"
    if isinstance(error, AlipesError | Interrupted):
        return str(error)
    # Not `repr`: that is the plugin's own code, and may break.
    return " ".join("".join(traceback.format_exception_only(error)).split())
