"""The log file: one JSON object per line, rotated, secrets masked, written by its own thread."""

import fcntl
import logging
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Thread  # noqa: TID251

import msgspec

from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import strip_object_addresses
from alipes.runtime.redaction import SecretRegistry


class RotatingFile:
    """Appends to `path`; past `largest` bytes the file becomes `.1`, `.1` becomes `.2`, the last is dropped.

    Several processes may write to one path: each call is one append, and a process that finds the file
    rotated opens the new one. Raises OSError only when it is opened.
    """

    def __init__(self, path: Path, *, largest: int, kept: int) -> None:
        self._path, self._largest, self._kept = path, largest, kept
        self._file = self._open()

    def append(self, lines: bytes) -> None:
        # The store reports a full disk to the user; the log itself cannot.
        with suppress(OSError):
            self._reopen_if_rotated()
            size = os.fstat(self._file).st_size
            if size and size + len(lines) > self._largest:
                self._rotate()
        with suppress(OSError):
            while lines:
                lines = lines[os.write(self._file, lines) :]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _reopen_if_rotated(self) -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), os.stat(self._path)):
                return
        # in this order, so that a process forked in between has an open file
        before, self._file = self._file, self._open()
        os.close(before)

    def _rotate(self) -> None:
        # The lock holder is rotating this file: keep writing to it and reopen later.
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(self._file), os.stat(self._path)):
            return
        for number in range(self._kept, 1, -1):
            older = f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        os.replace(self._path, f"{self._path}.1")
        self._reopen_if_rotated()


MAX_FILE_BYTES = 5 << 20
KEPT_FILES = 3
BATCH_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 10.0
"""Seconds to wait at the end for unwritten lines."""
LEVELS = ("debug", "info", "warning", "error")

_context: ContextVar[tuple[str, str, str]] = ContextVar("alipes_log_about", default=("", "", ""))


_scope: ContextVar[str] = ContextVar("alipes_log_scope", default="")


@contextmanager
def log_scope(name: str) -> Iterator[None]:
    """Everything logged inside, also by the tasks and threads it starts, goes to the log with this scope only."""
    token = _scope.set(name)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def log_context(*, session: str = "", turn: str = "", request: str = "") -> Iterator[None]:
    """Add these ids to everything logged inside, by this task and the tasks it starts."""
    token = _context.set((session, turn, request))
    try:
        yield
    finally:
        _context.reset(token)


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    time: str
    level: str
    logger: str
    message: str
    session: str = ""
    turn: str = ""
    request: str = ""
    """The id of an HTTP request."""
    trace: str = ""


class LogFile(logging.Handler):
    """Writes to a `RotatingFile`, on its own thread, so that logging never waits for the disk.

    The thread starts with the first record. Up to `most` bytes wait for the disk, the second half of them only
    for warnings and errors; records beyond that are counted and dropped. With a `scope`, only what is logged inside of
    `log_scope` of that name is written, and only from `level` on.
    """

    def __init__(
        self,
        path: Path,
        mask: SecretRegistry,
        *,
        largest: int = MAX_FILE_BYTES,
        kept: int = KEPT_FILES,
        most: int = 4 << 20,
    ) -> None:
        super().__init__()
        self.scope: str | None = None
        """Set before the first record; None: everything is written."""
        self.least = logging.NOTSET
        self.path = path
        self.listeners: set[Callable[[], None]] = set()
        """Called on the log's thread after lines were written; see `watch_log`."""
        self.mask, self._most, self._batch = mask, most, min(largest // 8, BATCH_BYTES)
        self._file = RotatingFile(path, largest=largest, kept=kept)
        # no lock: logging may be interrupted by the garbage collector or a signal that logs as well
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._owner, self._over = os.getpid(), False
        # each of these is written by one thread only
        self._given = self._dropped = 0
        self._written = self._reported = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._over or not self.is_meant(record):
            return
        line = msgspec.json.encode(self._record(record)) + b"\n"
        if os.getpid() != self._owner or not self._ensure_thread():
            self._file.append(line)  # in a forked process without the thread, or no thread can be started
            return
        most = self._most if record.levelno >= logging.WARNING else self._most // 2
        if self._given - self._written + len(line) > most:
            self._dropped += 1
            return
        self._given += len(line)
        self._lines.put(line)

    def is_meant(self, record: logging.LogRecord) -> bool:
        if self.scope is None:
            return True
        ours = record.name.partition(".")[0] == "alipes"
        least = self.least if ours else max(self.least, logging.WARNING)
        return self.scope == _scope.get() and record.levelno >= least

    def close(self) -> None:
        """Wait until everything is written, or the timeout has passed."""
        self.acquire()
        over, self._over = self._over, True
        self.release()
        if not over:
            if self._thread is None or os.getpid() != self._owner:
                self._file.close()
            else:
                self._lines.put(None)
                self._thread.join(CLOSE_TIMEOUT_S)
        super().close()

    def _ensure_thread(self) -> bool:
        if self._thread is None:
            self._thread = Thread(target=self._write, name="log", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # too many threads, or the interpreter is shutting down
                self._thread = None
        return self._thread is not None

    def _write(self) -> None:
        """Runs on the thread until the log is closed."""
        while lines := self._next_batch():
            self._file.append(lines)
            self._written += len(lines)
            for notify in tuple(self.listeners):
                notify()
            if self._lines.empty():
                self._report_dropped()
        self._report_dropped()
        self._file.close()

    def _next_batch(self) -> bytes | None:
        lines = self._lines.get()
        while lines and len(lines) < self._batch and not self._lines.empty():
            if (more := self._lines.get()) is None:
                self._lines.put(more)  # the end marker
                break
            lines += more
        return lines

    def _report_dropped(self) -> None:
        if missing := self._dropped - self._reported:
            self._reported += missing
            said = f"the disk was too slow: {missing} log lines before this one were dropped"
            record = logging.LogRecord(__name__, logging.WARNING, "", 0, said, None, None)
            self._file.append(msgspec.json.encode(self._record(record)) + b"\n")

    def _record(self, record: logging.LogRecord) -> LogLine:
        trace = record.exc_text or ""
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        texts = (record.name, strip_object_addresses(_text(record)), *_context.get(), trace)
        clean = (self.mask(text).encode("utf-8", "backslashreplace").decode() for text in texts)
        return LogLine(time, record.levelname.lower(), *clean)


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, ArithmeticError, OSError) as error:
        # Log the message even if its arguments do not match.
        return f"{record.msg} (arguments do not match: {type(error).__name__})"


def log_secrets() -> SecretRegistry:
    """The secrets that the open log of this scope masks; others may be added. A new registry if no log is open."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFile) and handler.scope in (None, _scope.get()):
            return handler.mask
    return SecretRegistry()


@contextmanager
def watch_log(path: Path, notify: Callable[[], None]) -> Iterator[None]:
    """Call `notify` on another thread after this process has written to the log at `path`, while it is open."""
    handlers = [each for each in logging.getLogger().handlers if isinstance(each, LogFile) and each.path == path]
    for handler in handlers:
        handler.listeners.add(notify)
    try:
        yield
    finally:
        for handler in handlers:
            handler.listeners.discard(notify)


@contextmanager
def open_log(
    path: Path,
    level: str = "info",
    secrets: Iterable[str] = (),
    *,
    scope: str | None = None,
    also: SecretRegistry | None = None,
) -> Iterator[SecretRegistry]:
    """Log to `path`: our own records from `level` on, those of libraries from `warning` on.

    `scope`: only what is logged in this `log_scope`. `also`: the mask of another log, which gets to know the secrets.

    Yields the mask for texts shown to the user. Enter it outside of `asyncio.run`, so that messages
    of the closing loop are logged too.
    """
    if level.lower() not in LEVELS:
        raise ConfigError(f"Unknown log level {level!r}: use one of {', '.join(LEVELS)}.")
    number = logging.getLevelNamesMapping()[level.upper()]
    mask = SecretRegistry(secrets, also)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = LogFile(path, mask)
    except OSError as error:
        raise ConfigError(f"The log cannot be written to {path}: {error.strerror}.") from error
    file.scope, file.least = scope, number
    root, ours = logging.getLogger(), logging.getLogger("alipes")
    before = root.level, ours.level
    if scope is not None and any(isinstance(each, LogFile) for each in root.handlers):
        number = min(number, ours.level or number)  # the other logs still get all of theirs
    root.addHandler(file)
    root.setLevel(max(number, logging.WARNING))
    ours.setLevel(number)
    try:
        yield mask
    finally:
        root.setLevel(before[0])
        ours.setLevel(before[1])
        root.removeHandler(file)
        file.close()
