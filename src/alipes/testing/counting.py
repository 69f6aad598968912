"""What is open in this process now, kind by kind. It tells of a thing only when asked, and closes nothing."""

import asyncio
import gc
import os
import socket
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Literal, TypeAlias

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
