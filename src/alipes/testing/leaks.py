"""What was opened and not closed: tasks, clients, processes, file descriptors, threads. It closes nothing."""

import asyncio
import gc
import os
import socket
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["tasks", "clients", "processes", "fds", "threads"]
Things: TypeAlias = Mapping[Hashable, str]
"""What there is of a kind, told in a few words each."""
WITHIN = 1.0
_PAUSE = 0.01
_TURNS = 5
"""At least so many, however slow the machine: what is closing needs turns of the loop, not seconds."""
_CLIENTS = (
    ("httpx2", "AsyncClient"),
    ("httpx2", "Client"),
    ("httpx", "AsyncClient"),
    ("httpx", "Client"),
    ("aiohttp", "ClientSession"),
)
_ASYNCIO = os.path.dirname(asyncio.__file__)
_TRACKER = "multiprocessing.resource_tracker"


class Leaked(AssertionError):
    """Something is left over; the message says what, one thing to a line."""


class Census(Struct, frozen=True):
    """What is open now."""

    things: dict[Kind, Things]

    def beyond(self, before: "Census") -> dict[Kind, tuple[str, ...]]:
        """What there is now and was not `before`, by kind; kinds without any are left out."""
        new = {
            kind: tuple(told for thing, told in things.items() if thing not in before.things.get(kind, {}))
            for kind, things in self.things.items()
        }
        return {kind: told for kind, told in new.items() if told}


def census(*without: Kind) -> Census:
    """Count. Without a running loop there are no tasks to count."""
    return Census({kind: dict(look()) for kind, look in _LOOKS.items() if kind not in without})


def difference(left: Mapping[Kind, tuple[str, ...]]) -> str:
    """The diff as a person reads it."""
    lines = [f"  {kind:<9} {told}" for kind, all_told in left.items() for told in all_told]
    return "\n".join(["opened here, and not closed:", *lines])


class LeakCheck:
    """Compares what is open at two moments. `allow` says of which kinds something may stay."""

    def __init__(self, *allowed: Kind, within: float = WITHIN) -> None:
        """`within`: seconds that what is just closing may still take."""
        self.within = within
        self.allowed: set[Kind] = set(allowed)
        self._before = Census({})

    def begin(self) -> Self:
        """What is open now is no leak."""
        self._before = census(*self.allowed)
        return self

    def allow(self, *kinds: Kind) -> None:
        self.allowed.update(kinds)

    def found(self) -> dict[Kind, tuple[str, ...]]:
        """What is left over at this moment."""
        return census(*self.allowed).beyond(self._before)

    def verify(self) -> None:
        """Raise `Leaked` unless nothing is left over. It waits for nothing: for use without a loop."""
        if left := self.found():
            raise Leaked(difference(left))

    async def settle(self) -> None:
        """The same, after giving what is just closing the time to do so."""
        loop = asyncio.get_running_loop()
        until, looks = loop.time() + self.within, 0
        while left := self.found():
            looks += 1
            if looks > _TURNS and loop.time() > until:
                raise Leaked(difference(left))
            await asyncio.sleep(_PAUSE)

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Begin on entering; on leaving, unless by an error, raise `Leaked` for what is left over."""
        self.begin()
        yield
        await self.settle()


@asynccontextmanager
async def no_leaks(*allowed: Kind, within: float = WITHIN) -> AsyncIterator[LeakCheck]:
    """Whatever is opened inside must be closed there; else `Leaked`, with what is left over."""
    check = LeakCheck(*allowed, within=within)
    async with check.around():
        yield check


def _tasks() -> Iterator[tuple[Hashable, str]]:
    with suppress(RuntimeError):  # no loop, no tasks
        asyncio.get_running_loop()
        current = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not current:
                yield task, where(task)


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


def _clients() -> Iterator[tuple[Hashable, str]]:
    """Among all objects there are: nobody else knows of a client that a library made for itself."""
    loaded = ((sys.modules.get(module), name) for module, name in _CLIENTS)
    kinds = _with_subclasses(getattr(module, name) for module, name in loaded if hasattr(module, name))
    for thing in [each for each in gc.get_objects() if type(each) in kinds] if kinds else ():
        if not getattr(thing, "is_closed", getattr(thing, "closed", True)):
            told = f"{type(thing).__module__.partition('.')[0]}.{type(thing).__name__}"
            base = getattr(thing, "base_url", None)
            yield weakref.ref(thing), f"{told} {base}" if base and str(base) else told


def _with_subclasses(kinds: Iterable[type]) -> set[type]:
    return {each for kind in kinds for each in (kind, *_with_subclasses(kind.__subclasses__()))}


def _processes() -> Iterator[tuple[Hashable, str]]:
    """Our children, and orphans that became ours. Where there is no /proc, none are seen."""
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for pid in file.read_text().split():
                command = _command(pid)
                if _TRACKER not in command:
                    yield pid, f"{pid}: {command or '(ended, and nobody waited for it)'}"


def _command(pid: str) -> str:
    with suppress(OSError):
        words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:100]
    return ""


def _fds() -> Iterator[tuple[Hashable, str]]:
    folder = next((each for each in ("/proc/self/fd", "/dev/fd") if os.path.isdir(each)), "")
    for name in os.listdir(folder) if folder else ():
        with suppress(OSError):  # the descriptor of the listing itself is gone by now
            facts = os.fstat(int(name))
            target = _target(f"{folder}/{name}")
            yield (int(name), facts.st_dev, facts.st_ino), f"{name} -> {_peer(int(name), target)}"


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return "(unknown)"


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


def _threads() -> Iterator[tuple[Hashable, str]]:
    for thread in threading.enumerate():
        if not thread.name.startswith("asyncio_"):  # the loop's own pool: it ends with the loop
            yield thread, f"{thread.name}{' (daemon)' if thread.daemon else ''}"


_LOOKS: Mapping[Kind, Callable[[], Iterator[tuple[Hashable, str]]]] = {
    "tasks": _tasks,
    "clients": _clients,
    "processes": _processes,
    "fds": _fds,
    "threads": _threads,
}
