"""The log: one JSON object per line in a file that rotates, secrets masked. It never writes to a screen."""

import fcntl
import logging
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Thread  # noqa: TID251

import msgspec

from alipes.kernel.errors import ConfigError
from alipes.runtime.redaction import Mask, masking


class Rotating:
    """Appends to `path`; past `largest` bytes the file becomes `.1`, `.1` becomes `.2`, the last is dropped.

    Several processes may write to one path: what is given at once is one append, and whoever finds
    that another has rotated opens the new file. Raises `OSError` only where it is opened.
    """

    def __init__(self, path: Path, *, largest: int, kept: int) -> None:
        self._path, self._largest, self._kept = path, largest, kept
        self._file = self._open()

    def append(self, lines: bytes) -> None:
        # A full disk is told to the person by the store; a log that cannot write has nobody to tell.
        with suppress(OSError):
            self._follow()
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

    def _follow(self) -> None:
        """Open the file that now bears our name, if it is another than the one we hold."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), os.stat(self._path)):
                return
        # in this order: whoever is forked off meanwhile holds a file that is open
        before, self._file = self._file, self._open()
        os.close(before)

    def _rotate(self) -> None:
        # Who holds the lock is rotating this very file: write to it once more, and follow later.
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(self._file), os.stat(self._path)):
            return
        for number in range(self._kept, 1, -1):
            older = f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        os.replace(self._path, f"{self._path}.1")
        self._follow()


LARGEST = 5 * 1024 * 1024
KEPT = 3
MOST = 4 * 1024 * 1024
"""Bytes that wait for the disk, at most."""
BATCH = 64 * 1024
"""Bytes that are written at once, where so many wait."""
PATIENCE = 10.0
"""Seconds we wait at the end for what is not yet written."""
LEVELS = ("debug", "info", "warning", "error")

_about: ContextVar[tuple[str, str]] = ContextVar("alipes_log_about", default=("", ""))


@contextmanager
def about(*, session: str = "", turn: str = "") -> Iterator[None]:
    """Everything logged inside, by this task and the tasks it starts, carries these ids."""
    token = _about.set((session, turn))
    try:
        yield
    finally:
        _about.reset(token)


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log."""

    time: str
    level: str
    logger: str
    message: str
    session: str = ""
    turn: str = ""
    trace: str = ""


class LogFile(logging.Handler):
    """Writes to a `Rotating` file, on a thread of its own: whoever logs never waits for the disk.

    The thread begins with the first record. What the disk does not take waits, up to `most` bytes, the
    second half of them for warnings and worse; what comes beyond that is counted and left out.
    """

    def __init__(
        self, path: Path, mask: Mask, *, largest: int = LARGEST, kept: int = KEPT, most: int = MOST
    ) -> None:
        super().__init__()
        self._mask, self._most, self._batch = mask, most, min(largest // 8, BATCH)
        self._file = Rotating(path, largest=largest, kept=kept)
        # no lock of ours: who is interrupted while logging, by the collector or a signal, may log meanwhile
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._owner, self._over = os.getpid(), False
        # each of these is written by one side only
        self._given = self._left_out = 0
        self._written = self._told = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._over:
            return
        line = msgspec.json.encode(self._record(record)) + b"\n"
        if os.getpid() != self._owner or not self._begun():
            self._file.append(line)  # forked off, where no thread goes on, or there can be none
            return
        most = self._most if record.levelno >= logging.WARNING else self._most // 2
        if self._given - self._written + len(line) > most:
            self._left_out += 1
            return
        self._given += len(line)
        self._lines.put(line)

    def close(self) -> None:
        """Returns when everything is written, or the disk has not answered for some seconds."""
        self.acquire()
        over, self._over = self._over, True
        self.release()
        if not over:
            if self._thread is None or os.getpid() != self._owner:
                self._file.close()
            else:
                self._lines.put(None)
                self._thread.join(PATIENCE)
        super().close()

    def _begun(self) -> bool:
        if self._thread is None:
            self._thread = Thread(target=self._write, name="log", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # there are too many, or Python is ending
                self._thread = None
        return self._thread is not None

    def _write(self) -> None:
        """On the thread, until it is closed."""
        while lines := self._waiting():
            self._file.append(lines)
            self._written += len(lines)
            if self._lines.empty():
                self._confess()
        self._confess()
        self._file.close()

    def _waiting(self) -> bytes | None:
        lines = self._lines.get()
        while lines and len(lines) < self._batch and not self._lines.empty():
            if (more := self._lines.get()) is None:
                self._lines.put(more)  # the last that there will ever be
                break
            lines += more
        return lines

    def _confess(self) -> None:
        if missing := self._left_out - self._told:
            self._told += missing
            said = f"the disk was too slow for the log: {missing} lines are left out before this one"
            record = logging.LogRecord(__name__, logging.WARNING, "", 0, said, None, None)
            self._file.append(msgspec.json.encode(self._record(record)) + b"\n")

    def _record(self, record: logging.LogRecord) -> Record:
        session, turn = _about.get()
        trace = ""
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
        return Record(
            time=datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            level=record.levelname.lower(),
            logger=self._clean(record.name),
            message=self._clean(_text(record)),
            session=self._clean(session),
            turn=self._clean(turn),
            trace=self._clean(trace or record.exc_text or ""),
        )

    def _clean(self, text: str) -> str:
        return self._mask(text).encode("utf-8", "backslashreplace").decode()


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
        OSError,
    ) as error:
        # A caller whose arguments do not fit its message still deserves a line.
        return f"{record.msg} (its arguments do not fit: {type(error).__name__})"


@contextmanager
def open_log(path: Path, level: str = "info", secrets: Iterable[str] = ()) -> Iterator[Mask]:
    """Log to `path` until left: our own records from `level` on, other people's from `warning` on.

    Yields the mask, for those who show a text to the person. Enter it outside of
    `asyncio.run`: what the loop says while it ends belongs here too, not on the screen.
    """
    if level.lower() not in LEVELS:
        raise ConfigError(f"The log level {level!r} is none of {', '.join(LEVELS)}.")
    number = logging.getLevelNamesMapping()[level.upper()]
    mask = masking(secrets)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = LogFile(path, mask)
    except OSError as error:
        raise ConfigError(f"The log cannot be written to {path}: {error.strerror}.") from error
    root, ours = logging.getLogger(), logging.getLogger("alipes")
    before = root.level, ours.level
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
