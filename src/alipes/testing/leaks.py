"""Leak checks: compares open tasks, clients, processes, file descriptors and threads before and after."""

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
Describe: TypeAlias = Callable[[], str]
"""Describes a resource; an empty string means it can be ignored."""
LeakProbe: TypeAlias = Callable[[], Iterable[tuple[Hashable, Describe]]]
_CLIENTS = (
    ("httpx2", "AsyncClient"),
    ("httpx2", "Client"),
    ("httpx", "AsyncClient"),
    ("httpx", "Client"),
    ("aiohttp", "ClientSession"),
    ("alipes.runtime.http.clients", "HttpClient"),
)
_ASYNCIO = os.path.dirname(asyncio.__file__)
_POOLS = ("asyncio_", "AnyIO worker thread")
"""Names of pool threads that end with the loop."""
_TRACKER = "multiprocessing.resource_tracker"
_TASKS = "/proc/self/task"
_FDS = next((each for each in ("/proc/self/fd", "/dev/fd") if os.path.isdir(each)), "")


def tasks() -> Iterator[tuple[Hashable, Describe]]:
    """Tasks of the running loop."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        current = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not current:
                yield task, partial(describe_task, task)


def describe_task(task: asyncio.Task[Any]) -> str:
    """A task and the line where it waits: the innermost one outside asyncio."""
    work: Any = task.get_coro()
    name = getattr(work, "__qualname__", None) or repr(work)
    place = ""
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        if frame is not None and not (place and frame.f_code.co_filename.startswith(_ASYNCIO)):
            place = f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return f"{task.get_name()} ({name}){place}"


class ClientProbe:
    """Finds HTTP clients among all objects, since libraries create their own.

    Every object holds a reference to its class. If the reference counts are unchanged, there are no new
    clients and the last result is still valid.
    """

    def __init__(self) -> None:
        self._holds: dict[type, int] = {}
        self._known: list[tuple[type, weakref.ref[Any]]] = []

    def __call__(self) -> Iterator[tuple[Hashable, Describe]]:
        loaded = ((sys.modules.get(module), name) for module, name in _CLIENTS)
        kinds = _with_subclasses(getattr(module, name) for module, name in loaded if hasattr(module, name))
        if self._changed(kinds):
            self._known = self._search(kinds)
            self._holds = _reference_counts(kinds)
        for _, reference in self._known:
            client = reference()
            if client is not None and not getattr(client, "is_closed", getattr(client, "closed", True)):
                yield reference, partial(_describe_client, reference)

    def _search(self, kinds: set[type]) -> list[tuple[type, weakref.ref[Any]]]:
        """Keeps known clients too: the garbage collector does not list frozen objects."""
        reference = [each for _, reference in self._known if (each := reference()) is not None]
        there = {id(each): each for each in (*reference, *_instances(kinds))}
        return [(type(each), weakref.ref(each)) for each in there.values()]

    def _changed(self, kinds: set[type]) -> bool:
        vanished = Counter(kind for kind, reference in self._known if reference() is None)
        if vanished:
            self._known = [each for each in self._known if each[1]() is not None]
            # each held two references to its class
            self._holds = {kind: held - 2 * vanished[kind] for kind, held in self._holds.items()}
            vanished.clear()  # it held references, too
        return self._holds != _reference_counts(kinds)


def _reference_counts(kinds: set[type]) -> dict[type, int]:
    return {kind: sys.getrefcount(kind) for kind in kinds}


def _instances(kinds: set[type]) -> list[Any]:
    there = gc.get_objects()
    return list(compress(there, map(kinds.__contains__, map(type, there))))


def _describe_client(reference: "weakref.ref[Any]") -> str:
    client = reference()
    text = f"{type(client).__module__.partition('.')[0]}.{type(client).__name__}"
    base = getattr(client, "base_url", None)
    return f"{text} {base}" if base and str(base) else text


def _with_subclasses(kinds: Iterable[type]) -> set[type]:
    return {each for kind in kinds for each in (kind, *_with_subclasses(kind.__subclasses__()))}


def processes() -> Iterator[tuple[Hashable, Describe]]:
    """Our child processes, including adopted orphans. Empty without /proc."""
    for thread in os.listdir(_TASKS) if os.path.isdir(_TASKS) else ():
        with suppress(OSError), open(f"{_TASKS}/{thread}/children", "rb", buffering=0) as children:
            for pid in children.read().split():
                yield pid, partial(_describe_child, pid.decode())


def _describe_child(pid: str) -> str:
    text = command_line(pid)
    return "" if _TRACKER in text else f"{pid}: {text or '(exited, but not waited for)'}"


def command_line(pid: str) -> str:
    """The command line of a process; empty if it has exited."""
    with suppress(OSError):
        words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:100]
    return ""


def descriptors() -> Iterator[tuple[Hashable, Describe]]:
    for name in os.listdir(_FDS) if _FDS else ():
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
            facts = os.fstat(int(name))
            yield (int(name), facts.st_dev, facts.st_ino), partial(_describe_descriptor, int(name))


def _describe_descriptor(number: int) -> str:
    try:
        target = os.readlink(f"{_FDS}/{number}")
    except OSError:
        target = "(unknown)"
    return f"{number} -> {_describe_socket(number, target)}"


def _describe_socket(number: int, target: str) -> str:
    """A socket with both of its addresses, if it has any."""
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


def threads() -> Iterator[tuple[Hashable, Describe]]:
    for thread in threading.enumerate():
        if not thread.name.startswith(_POOLS):
            yield thread, partial(str, f"{thread.name}{' (daemon)' if thread.daemon else ''}")


PROBES: Mapping[Kind, LeakProbe] = {
    "tasks": tasks,
    "clients": ClientProbe(),
    "processes": processes,
    "fds": descriptors,
    "threads": threads,
}


Leftovers: TypeAlias = Mapping[str, tuple[str, ...]]
"""Descriptions of what is left, by kind."""
GRACE_S = 1.0
_PAUSES = (0.0, 0.0, 0.0, 0.001, 0.002, 0.005)
"""Always waited for, even on slow machines: closing needs loop iterations, not seconds."""
_PAUSE = 0.01


class LeakError(AssertionError):
    """Something was not closed; the message lists it line by line."""


class ResourceSnapshot(Struct, frozen=True):
    """Open resources by kind."""

    resources: dict[str, Mapping[Hashable, Describe]]

    def new_since(self, before: "ResourceSnapshot") -> dict[str, tuple[str, ...]]:
        """Descriptions of what is open now and was not `before`, by kind."""
        new = {
            kind: [describe() for describe in things.values()] for kind, things in self.minus(before).resources.items()
        }
        return {kind: tuple(filter(None, text)) for kind, text in new.items() if any(text)}

    def minus(self, before: "ResourceSnapshot") -> "ResourceSnapshot":
        left = ResourceSnapshot({})
        for kind, things in self.resources.items():
            known = before.resources.get(kind, {})
            left.resources[kind] = {each: things[each] for each in things.keys() - known.keys()}
        return left

    def merge(self, other: "ResourceSnapshot") -> "ResourceSnapshot":
        """Resources of either snapshot."""
        kinds = self.resources.keys() | other.resources
        return ResourceSnapshot(
            {kind: {**self.resources.get(kind, {}), **other.resources.get(kind, {})} for kind in kinds}
        )


def take_snapshot(*without: str, also: Mapping[str, LeakProbe] | None = None) -> ResourceSnapshot:
    """Take a snapshot. Tasks are included only on a running loop."""
    looks: tuple[tuple[str, LeakProbe], ...] = (*PROBES.items(), *(also or {}).items())
    return ResourceSnapshot({kind: dict(look()) for kind, look in looks if kind not in without})


def format_leaks(left: Leftovers) -> str:
    lines = [f"  {kind:<9} {text}" for kind, texts in left.items() for text in sorted(texts)]
    return "\n".join(["opened and not closed:", *lines])


class LeakCheck:
    """Compares open resources at two times. `allow` exempts kinds."""

    def __init__(
        self, *allowed: Kind | str, within: float = GRACE_S, also: Mapping[str, LeakProbe] | None = None
    ) -> None:
        """`within`: seconds that closing may take; `also`: further probes by kind."""
        self.within = within
        self.allowed: set[str] = set(allowed)
        self._also = also
        self._before = ResourceSnapshot({})

    def begin(self) -> Self:
        """What is open now is not a leak."""
        self._before = self._count()
        return self

    def allow(self, *kinds: Kind | str) -> None:
        self.allowed.update(kinds)

    @contextmanager
    def ignore_opened(self) -> Iterator[None]:
        """What is opened inside is closed later by somebody else, and is not a leak."""
        began = self._count()
        yield
        self._before = self._before.merge(self._count().minus(began))

    def find_leaks(self) -> dict[str, tuple[str, ...]]:
        """What is open at this moment and should not be."""
        return self._count().new_since(self._before)

    def verify(self) -> None:
        """Raise `LeakError` unless everything is closed in time. For use without a loop."""
        for pause in self._pauses():
            time.sleep(pause)

    async def settle(self) -> None:
        """The same on a running loop."""
        for pause in self._pauses():
            await asyncio.sleep(pause)

    def _pauses(self) -> Iterator[float]:
        """Pauses between checks; raises `LeakError` when the time is up."""
        began, looks = time.monotonic(), 0
        while left := self.find_leaks():
            if looks < len(_PAUSES):
                yield _PAUSES[looks]
            elif time.monotonic() < began + self.within:
                yield _PAUSE
            else:
                raise LeakError(format_leaks(left))
            looks += 1

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Start on entering; on leaving without an error, raise `LeakError` for what is left."""
        self.begin()
        yield
        await self.settle()

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        """The same with a separate check inside the loop, which also sees its tasks."""
        check = LeakCheck().begin()
        yield
        check.within, check.allowed = self.within, self.allowed
        await check.settle()

    def _count(self) -> ResourceSnapshot:
        return take_snapshot(*self.allowed, also=self._also)


@asynccontextmanager
async def no_leaks(*allowed: Kind, within: float = GRACE_S) -> AsyncIterator[LeakCheck]:
    """Everything opened inside must be closed there; otherwise raises `LeakError`."""
    check = LeakCheck(*allowed, within=within)
    async with check.around():
        yield check
