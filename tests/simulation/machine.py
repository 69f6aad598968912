"""The simulated machine: its clock, its disk, its one thread per pool, its processes. SQLite itself is real.

Inside `install` production code gets its time, randomness, disk and threads from it; nothing else is replaced.
"""

import atexit
import gc
import logging
import os
import random
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from alipes.platforms.telegram import markup
from alipes.store.sqlite import database, store
from alipes.store.sqlite.peers import Processes
from tests.simulation.loop import DROPPED_TASKS, SeededLoop, Thread

EPOCH = 1_800_000_000.0
_REAL = {time.time: "time", time.monotonic: "monotonic"}


class Machine:
    """What survives a process: the clock, the disk, the random generator."""

    def __init__(self, seed: int) -> None:
        self.clock = [100.0]
        self.rng = random.Random(f"machine {seed}")
        self.disk = Disk(":memory:", isolation_level=None)
        self.disk.begin(self)
        self.alive = ""
        """The name of the running process."""
        self.loop: SeededLoop
        self.trace: list[tuple[Any, ...]] = []
        self.violations: list[str] = []
        self.full_at = 0
        self.writes = 0
        self.slow_disk = self.rng.choice((0.002, 0.002, 0.1, 0.5))
        self.changes = 0
        """Number of changes outside the process."""

    def record(self, *what: Any) -> None:
        self.changes += 1
        self.trace.append((round(self.clock[0], 6), self.loop.steps, *what))

    def report(self, what: str) -> None:
        self.violations.append(f"{what} (at {self.clock[0] - 100:.3f} s, step {self.loop.steps})")

    def time(self) -> float:
        return EPOCH + self.clock[0]

    def monotonic(self) -> float:
        return self.clock[0]

    def urandom(self, size: int) -> bytes:
        return self.rng.randbytes(size)

    def thread(self, *_args: Any, **_more: Any) -> Thread:
        rng, slow = self.rng, self.slow_disk
        return Thread(self.loop, lambda: rng.random() * slow)

    def connect(self, *_args: Any, **_more: Any) -> "Disk":
        return self.disk

    def sync(self, *_args: Any) -> None:
        self.disk.sync()

    def processes(self, _home: Path, *, timeout_s: float) -> "SoleProcess":
        return SoleProcess(self, timeout_s)


class Disk(sqlite3.Connection):
    """A database that outlives the process. After a crash it has everything committed, after a power cut
    everything synced."""

    machine: Machine

    def begin(self, machine: Machine) -> None:
        self.machine = machine
        self.deserialize(_empty_database())
        self.execute("PRAGMA foreign_keys = ON")
        self.durable = _empty_database()
        self.cuts = False
        """True if there will be a power cut; then the synced state is tracked."""
        self._waits, self._before = True, self.total_changes

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            return self._commit()
        if sql.startswith("BEGIN"):
            self._before = self.total_changes
        if sql.startswith("PRAGMA synchronous"):
            self._waits = sql.endswith("FULL")
        return super().execute(sql, *values)

    def _commit(self) -> sqlite3.Cursor:
        machine, changed = self.machine, self.total_changes - self._before
        if not changed:
            return super().execute("COMMIT")
        machine.writes += 1
        if machine.writes == machine.full_at:
            machine.record("full")
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        done = super().execute("COMMIT")
        machine.record("commit", changed)
        if self._waits:
            self.sync()
        return done

    def sync(self) -> None:
        """Committed data is synced to disk."""
        if self.cuts:
            self.durable = self.serialize()

    def close(self) -> None:
        self.halt()

    def halt(self) -> None:
        """The process is gone, with what it had not committed."""
        if self.in_transaction:
            super().execute("ROLLBACK")

    def cut_power(self) -> None:
        self.halt()
        self.deserialize(self.durable)
        super().execute("PRAGMA foreign_keys = ON")
        self._before = self.total_changes

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """A query by the checks, not by the process."""
        return super().execute(sql, values).fetchall()


class SoleProcess(Processes):
    """The processes of a home, without files and locks: all earlier ones are dead."""

    def __init__(self, machine: Machine, timeout_s: float) -> None:
        super().__init__(Path("run"), timeout_s)
        self._machine = machine

    def is_alive(self, host: str | None) -> bool:
        return host is not None and host == self._machine.alive

    def list_peers(self) -> list[Any]:
        return []

    def open_socket(self) -> Any:
        return None

    @contextmanager
    def register(self) -> Iterator[None]:
        self._machine.alive = self.own_name
        try:
            yield
        finally:
            if self._machine.alive == self.own_name:
                self._machine.alive = ""

    def remove_socket(self, server: Any) -> None:
        return None


_pieces = lru_cache(maxsize=4096)(markup.format_markdown)
"""The same texts are formatted again in seed after seed."""
_images: list[bytes] = []


def _empty_database() -> bytes:
    """A new database; made once."""
    if not _images:
        made = sqlite3.connect(":memory:", isolation_level=None)
        database._prepare(made, time.monotonic() + 10)
        _images.append(made.serialize())
        made.close()
    return _images[0]


_clock_defaults: list[tuple[Any, str, Any]] = []


def _clocks() -> list[tuple[Any, str, Any]]:
    """Functions of alipes with a clock as a default argument, found once: (function, where, defaults)."""
    if not _clock_defaults:
        modules = [each for name, each in list(sys.modules.items()) if name.startswith("alipes.") and each]
        for module in modules:
            for thing in list(vars(module).values()):
                for function in (thing, *(vars(thing).values() if isinstance(thing, type) else ())):
                    _find(function)
    return _clock_defaults


def _find(function: Any) -> None:
    if any(function is known for known, _, _ in _clock_defaults):
        return
    by_name = getattr(function, "__kwdefaults__", None)
    if isinstance(by_name, dict) and any(_clock(each) for each in by_name.values()):
        _clock_defaults.append((function, "__kwdefaults__", by_name))
    by_place = getattr(function, "__defaults__", None)
    if isinstance(by_place, tuple) and any(_clock(each) for each in by_place):
        _clock_defaults.append((function, "__defaults__", by_place))


def _clock(value: Any) -> str:
    return _REAL.get(value, "") if callable(value) and getattr(value, "__module__", "") == "time" else ""


@contextmanager
def install(machine: Machine) -> Iterator[None]:
    """Make production code use the time, randomness, disk and threads of this machine."""
    ours: list[tuple[Any, str, Any]] = [
        (time, "time", machine.time),
        (time, "monotonic", machine.monotonic),
        (os, "urandom", machine.urandom),
        (sqlite3, "connect", machine.connect),
        (database, "ThreadPoolExecutor", machine.thread),
        (database, "_create_file", lambda _path: None),
        (database.WalFile, "sync", machine.sync),
        (database, "WAL_BYTES", 0),
        (store, "open_processes", machine.processes),
        (markup, "format_markdown", _pieces),
    ]
    for function, where, defaults in _clocks():
        ours.append((function, where, _virtual(defaults, machine)))
    before = [(thing, name, getattr(thing, name)) for thing, name, _ in ours]
    state, collecting = random.getstate(), gc.isenabled()
    gc.disable()
    try:
        for thing, name, value in ours:
            setattr(thing, name, value)
        random.seed(machine.rng.random())
        with _watch_errors(machine):
            yield
    finally:
        for thing, name, value in before:
            setattr(thing, name, value)
        random.setstate(state)
        if collecting:
            gc.enable()


def _virtual(defaults: Any, machine: Machine) -> Any:
    def swap(value: Any) -> Any:
        return getattr(machine, name) if (name := _clock(value)) else value

    if isinstance(defaults, tuple):
        return tuple(map(swap, defaults))
    return {name: swap(value) for name, value in defaults.items()}


class _Listener(logging.Handler):
    def __init__(self, machine: Machine) -> None:
        super().__init__(logging.ERROR)
        self._machine = machine

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        slow = self._machine.slow_disk >= 0.1 and "was abandoned" in text  # each write is slow
        if not slow and not text.startswith("plugin ") and "as planned" not in _cause(record):
            self._machine.report(f"error in the log: {text} {_cause(record)}")


def _cause(record: logging.LogRecord) -> str:
    return repr(record.exc_info[1]) if record.exc_info else ""


@contextmanager
def _watch_errors(machine: Machine) -> Iterator[None]:
    """Count logged errors as violations and hide what dropped processes raise."""
    listener, root, level = _Listener(machine), logging.getLogger(), logging.root.manager.disable
    handlers, root.handlers = root.handlers, [listener]
    logging.disable(logging.WARNING)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _raised: None  # raised by coroutines of a dropped process
    try:
        yield
    finally:
        root.handlers = handlers
        logging.disable(level)
        sys.unraisablehook = hook


def collect_dropped() -> None:
    """Free the tasks of dropped processes and ignore what they raise."""
    hook: Callable[[Any], Any] = sys.unraisablehook
    level = logging.root.manager.disable
    sys.unraisablehook = lambda _raised: None
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            DROPPED_TASKS.clear()
            while gc.collect():  # some refer to others
                continue
    finally:
        sys.unraisablehook = hook
        logging.disable(level)


atexit.register(collect_dropped)
