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

import msgspec

from alipes.kernel.errors import ConfigError
from alipes.runtime.masking import Mask, masking

LARGEST = 5 * 1024 * 1024
KEPT = 3
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
    """Appends to `path`; past `largest` bytes the file becomes `.1`, `.1` becomes `.2`, the last is dropped.

    Several processes may write to one path: each line is one append, and whoever finds
    that another has rotated opens the new file.
    """

    def __init__(self, path: Path, mask: Mask, *, largest: int = LARGEST, kept: int = KEPT) -> None:
        super().__init__()
        self._path, self._mask, self._largest, self._kept = path, mask, largest, kept
        self._file = self._open()

    def emit(self, record: logging.LogRecord) -> None:
        line = msgspec.json.encode(self._record(record)) + b"\n"
        # A full disk is told to the person by the store; a log that cannot write has nobody to tell.
        with suppress(OSError):
            self._follow()
            size = os.fstat(self._file).st_size
            if size and size + len(line) > self._largest:
                self._rotate()
        with suppress(OSError):
            os.write(self._file, line)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        super().close()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _follow(self) -> None:
        """Open the file that now bears our name, if it is another than the one we hold."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), os.stat(self._path)):
                return
        fresh = self._open()
        os.close(self._file)
        self._file = fresh

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
