"""What is open in this process now, kind by kind. It tells of a thing only when asked, and closes nothing."""

import asyncio
import gc
import os
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["tasks", "clients", "processes", "fds", "threads"]
Tell: TypeAlias = Callable[[], str]
"""A thing in a few words. None at all: seen from near, there is nothing."""
Look: TypeAlias = Callable[[], Iterable[tuple[Hashable, Tell]]]
_CLIENTS = (
    ("httpx2", "AsyncClient"),
    ("httpx2", "Client"),
    ("httpx", "AsyncClient"),
    ("httpx", "Client"),
    ("aiohttp", "ClientSession"),
)
_ASYNCIO = os.path.dirname(asyncio.__file__)
_POOLS = ("asyncio_", "AnyIO worker thread")
"""How threads of a loop's own pool are named; they end with the loop."""
_TRACKER = "multiprocessing.resource_tracker"
_TASKS = "/proc/self/task"
_FDS = next((each for each in ("/proc/self/fd", "/dev/fd") if os.path.isdir(each)), "")


def tasks() -> Iterator[tuple[Hashable, Tell]]:
    """Those of the running loop; without one there are none."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        current = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not current:
                yield task, partial(where, task)


def where(task: asyncio.Task[Any]) -> str:
    """A task, and the line it waits at: the innermost that is not of asyncio itself."""
    work: Any = task.get_coro()
    name = getattr(work, "__qualname__", None) or repr(work)
    place = ""
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        if frame is not None and not (place and frame.f_code.co_filename.startswith(_ASYNCIO)):
            place = f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return f"{task.get_name()} ({name}){place}"


class Clients:
    """Among all objects there are: nobody else knows of a client that a library made for itself.

    Each object holds its class. While a class is held as often as before, but for those that are gone, there
    is no new client, and what was found the last time is still all there is.
    """

    def __init__(self) -> None:
        self._holds: dict[type, int] = {}
        self._known: list[tuple[type, weakref.ref[Any]]] = []

    def __call__(self) -> Iterator[tuple[Hashable, Tell]]:
        loaded = ((sys.modules.get(module), name) for module, name in _CLIENTS)
        kinds = _with_subclasses(getattr(module, name) for module, name in loaded if hasattr(module, name))
        if self._changed(kinds):
            self._known = self._search(kinds)
            self._holds = _holds(kinds)
        for _, known in self._known:
            client = known()
            if client is not None and not getattr(client, "is_closed", getattr(client, "closed", True)):
                yield known, partial(_client, known)

    def _search(self, kinds: set[type]) -> list[tuple[type, weakref.ref[Any]]]:
        """Also what was known and is not found again: the collector does not tell what is frozen."""
        known = [each for _, known in self._known if (each := known()) is not None]
        there = {id(each): each for each in (*known, *_instances(kinds))}
        return [(type(each), weakref.ref(each)) for each in there.values()]

    def _changed(self, kinds: set[type]) -> bool:
        gone = Counter(kind for kind, known in self._known if known() is None)
        if gone:
            self._known = [each for each in self._known if each[1]() is not None]  # each held its class twice
            self._holds = {kind: held - 2 * gone[kind] for kind, held in self._holds.items()}
            gone.clear()  # it held classes, too
        return self._holds != _holds(kinds)


def _holds(kinds: set[type]) -> dict[type, int]:
    return {kind: sys.getrefcount(kind) for kind in kinds}


def _instances(kinds: set[type]) -> list[Any]:
    there = gc.get_objects()
    return list(compress(there, map(kinds.__contains__, map(type, there))))


def _client(known: "weakref.ref[Any]") -> str:
    client = known()
    told = f"{type(client).__module__.partition('.')[0]}.{type(client).__name__}"
    base = getattr(client, "base_url", None)
    return f"{told} {base}" if base and str(base) else told


def _with_subclasses(kinds: Iterable[type]) -> set[type]:
    return {each for kind in kinds for each in (kind, *_with_subclasses(kind.__subclasses__()))}


def processes() -> Iterator[tuple[Hashable, Tell]]:
    """Our children, and orphans that became ours. Where there is no /proc, none are seen."""
    for thread in os.listdir(_TASKS) if os.path.isdir(_TASKS) else ():
        with suppress(OSError), open(f"{_TASKS}/{thread}/children", "rb", buffering=0) as children:
            for pid in children.read().split():
                yield pid, partial(_child, pid.decode())


def _child(pid: str) -> str:
    told = command(pid)
    return "" if _TRACKER in told else f"{pid}: {told or '(ended, and nobody waited for it)'}"


def command(pid: str) -> str:
    """What a process was started as; of one that has ended, nothing."""
    with suppress(OSError):
        words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:100]
    return ""


def descriptors() -> Iterator[tuple[Hashable, Tell]]:
    for name in os.listdir(_FDS) if _FDS else ():
        with suppress(OSError):  # the descriptor of the listing itself is gone by now
            facts = os.fstat(int(name))
            yield (int(name), facts.st_dev, facts.st_ino), partial(_descriptor, int(name))


def _descriptor(number: int) -> str:
    try:
        target = os.readlink(f"{_FDS}/{number}")
    except OSError:
        target = "(unknown)"
    return f"{number} -> {_peer(number, target)}"


def _peer(number: int, target: str) -> str:
    """A socket with its two ends, where it has names for them."""
    if not target.startswith("socket:"):
        return target
    try:
        with socket.socket(fileno=os.dup(number)) as copy:
            ends = [str(copy.getsockname() or "")]
            with suppress(OSError):
                ends.append(f"to {copy.getpeername() or '(unnamed)'}")
    except OSError:
        return target
    return f"{target} {' '.join(filter(None, ends))}"


def threads() -> Iterator[tuple[Hashable, Tell]]:
    """Those of Python; a library's own in C are not ours to end."""
    for thread in threading.enumerate():
        if not thread.name.startswith(_POOLS):
            yield thread, partial(_thread, thread.name, thread.daemon)


def _thread(name: str, daemon: bool) -> str:
    return f"{name}{' (daemon)' if daemon else ''}"


LOOKS: Mapping[Kind, Look] = {
    "tasks": tasks,
    "clients": Clients(),
    "processes": processes,
    "fds": descriptors,
    "threads": threads,
}


Left: TypeAlias = Mapping[str, tuple[str, ...]]
"""What is left over, by kind, each in a few words."""
WITHIN = 1.0
_PAUSES = (0.0, 0.0, 0.0, 0.001, 0.002, 0.005)
"""At least so many, however slow the machine: what is closing needs turns of the loop, not seconds."""
_PAUSE = 0.01


class Leaked(AssertionError):
    """Something is left over; the message says what, one thing to a line."""


class Census(Struct, frozen=True):
    """What is open now."""

    things: dict[str, Mapping[Hashable, Tell]]

    def beyond(self, before: "Census") -> dict[str, tuple[str, ...]]:
        """What there is now and was not `before`, by kind; kinds without any are left out."""
        new = {kind: [things[each]() for each in left] for kind, things, left in self._new(before)}
        return {kind: tuple(filter(None, told)) for kind, told in new.items() if any(told)}

    def without(self, before: "Census") -> "Census":
        return Census(
            {kind: {each: things[each] for each in left} for kind, things, left in self._new(before)}
        )

    def _new(self, before: "Census") -> Iterator[tuple[str, Mapping[Hashable, Tell], set[Hashable]]]:
        for kind, things in self.things.items():
            yield kind, things, things.keys() - before.things.get(kind, {}).keys()

    def joined(self, other: "Census") -> "Census":
        """What is in either."""
        kinds = self.things.keys() | other.things
        return Census({kind: {**self.things.get(kind, {}), **other.things.get(kind, {})} for kind in kinds})


def census(*without: str, also: Mapping[str, Look] | None = None) -> Census:
    """Count. Without a running loop there are no tasks to count."""
    looks: tuple[tuple[str, Look], ...] = (*LOOKS.items(), *(also or {}).items())
    return Census({kind: dict(look()) for kind, look in looks if kind not in without})


def difference(left: Left) -> str:
    """The diff as a person reads it."""
    lines = [f"  {kind:<9} {told}" for kind, all_told in left.items() for told in sorted(all_told)]
    return "\n".join(["opened here, and not closed:", *lines])


class LeakCheck:
    """Compares what is open at two moments. `allow` says of which kinds something may stay."""

    def __init__(
        self, *allowed: Kind | str, within: float = WITHIN, also: Mapping[str, Look] | None = None
    ) -> None:
        """`within`: seconds that what is just closing may still take; `also`: what else to look for."""
        self.within = within
        self.allowed: set[str] = set(allowed)
        self._also = also
        self._before = Census({})

    def begin(self) -> Self:
        """What is open now is no leak."""
        self._before = self._count()
        return self

    def allow(self, *kinds: Kind | str) -> None:
        self.allowed.update(kinds)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """What is opened inside belongs to somebody who closes it later, and is no leak."""
        began = self._count()
        yield
        self._before = self._before.joined(self._count().without(began))

    def found(self) -> dict[str, tuple[str, ...]]:
        """What is left over at this moment."""
        return self._count().beyond(self._before)

    def verify(self) -> None:
        """Raise `Leaked` unless nothing is left over, or is closed in time: for use without a loop."""
        for pause in self._pauses():
            time.sleep(pause)

    async def settle(self) -> None:
        """The same on a loop, which goes on meanwhile."""
        for pause in self._pauses():
            await asyncio.sleep(pause)

    def _pauses(self) -> Iterator[float]:
        """How long to wait before looking again; raises `Leaked` when it was long enough."""
        began, looks = time.monotonic(), 0
        while left := self.found():
            if looks < len(_PAUSES):
                yield _PAUSES[looks]
            elif time.monotonic() < began + self.within:
                yield _PAUSE
            else:
                raise Leaked(difference(left))
            looks += 1

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Begin on entering; on leaving, unless by an error, raise `Leaked` for what is left over."""
        self.begin()
        yield
        await self.settle()

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        """The same for what is opened and closed within, by a check of its own: it knows the loop's tasks."""
        check = LeakCheck().begin()
        yield
        check.within, check.allowed = self.within, self.allowed
        await check.settle()

    def _count(self) -> Census:
        return census(*self.allowed, also=self._also)


@asynccontextmanager
async def no_leaks(*allowed: Kind, within: float = WITHIN) -> AsyncIterator[LeakCheck]:
    """Whatever is opened inside must be closed there; else `Leaked`, with what is left over."""
    check = LeakCheck(*allowed, within=within)
    async with check.around():
        yield check
