"""Standard output and standard error without blocking the event loop."""

import asyncio
import io
import logging
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from alipes.config.environment import Variables
from alipes.console.render import DIM, PLAIN, RED, sanitize
from alipes.runtime.program_name import name_program

log = logging.getLogger(__name__)
WRITE_SIZE = 4096  # PIPE_BUF: a writable descriptor accepts this much at once


class AsyncWriter:
    """Writes text in the next iteration of the loop, combined into one piece.

    Text for a slow reader is buffered. When the reader is gone, `reader_gone` is set and
    everything written afterwards is dropped.
    """

    def __init__(self, fd: int | None) -> None:
        """`fd` None: drop all text."""
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._pending = bytearray()
        self._scheduled: asyncio.Handle | None = None
        self.is_blocked = False
        """The reader is too slow for the buffered text, so its descriptor is watched."""
        self._empty = asyncio.Event()
        self.reader_gone = asyncio.Event()
        self.failure: OSError | None = None
        """Why the reader is gone."""
        self._poll = select.poll()
        if fd is not None:
            self._poll.register(fd, select.POLLOUT)

    def write(self, text: str | bytes) -> None:
        if self._fd is None or self.reader_gone.is_set():
            return
        self._pending += text.encode("utf-8", "replace") if isinstance(text, str) else text
        self._empty.clear()
        if self._scheduled is None and not self.is_blocked:
            self._scheduled = self._loop.call_soon(self.flush_now)

    def flush_now(self) -> None:
        """Write now as much as possible without waiting."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        try:
            while self._pending and self._poll.poll(0):
                assert self._fd is not None
                del self._pending[: os.write(self._fd, self._pending[:WRITE_SIZE])]
        except OSError as error:  # the reader is gone, or the disk is full
            self._pending.clear()
            self.failure = error
            self.reader_gone.set()
        self._watch(bool(self._pending))
        if not self._pending:
            self._empty.set()

    async def drain(self) -> None:
        """Wait until everything is written, or the reader is gone."""
        self.flush_now()
        if self._pending:
            await self._empty.wait()

    def close(self) -> None:
        """Stop watching the descriptor and drop the rest. The descriptor stays open."""
        self._pending.clear()
        self.flush_now()

    def _watch(self, wanted: bool) -> None:
        if wanted == self.is_blocked or self._fd is None:
            return
        self.is_blocked = wanted
        if wanted:
            self._loop.add_writer(self._fd, self.flush_now)
        else:
            self._loop.remove_writer(self._fd)


class StandardStreams:
    """Answers to standard output, notes to standard error, in the order they were written."""

    def __init__(self, out: TextIO | None, err: TextIO | None, *, colour: bool = True) -> None:
        self._out, self._err = (AsyncWriter(None if each is None else each.fileno()) for each in (out, err))
        self._out_is_terminal, self._out_fd = is_terminal(out), -1 if out is None else out.fileno()
        self._colour = colour and is_terminal(err)
        self.reader_gone = self._out.reader_gone

    def write_answer(self, text: str) -> None:
        """Write a piece of the answer; control characters are removed for a terminal."""
        self._out.write(sanitize(text) if self._out_is_terminal else text)

    def write_line(self, data: bytes) -> None:
        self._out.write(data + b"\n")

    def note(self, line: str) -> None:
        self._out.flush_now()
        line = name_program(line)
        if self._colour:
            line = f"{RED if line.startswith('alipes: ') else DIM}{line}{PLAIN}"
        self._err.write(line + "\n")
        self._err.flush_now()

    def prompt(self, text: str) -> None:
        """Write a question without a line break, and wait on the same line."""
        self._out.flush_now()
        self._err.write(text)
        self._err.flush_now()

    def write_styled(self, text: str) -> None:
        """Write text of the answer that is safe for a terminal already, with its styles."""
        self._out.write(text)

    def size(self) -> os.terminal_size:
        """Of the terminal that shows the answer."""
        try:
            return os.get_terminal_size(self._out_fd)
        except OSError:  # it was closed
            return os.terminal_size((80, 24))

    def error(self, line: str) -> None:
        self.note(f"alipes: {line}")

    @property
    def failure(self) -> str:
        """Why the answer could not be written; empty if the reader just closed the pipe."""
        error = self._out.failure
        return "" if error is None or isinstance(error, BrokenPipeError) else error.strerror or str(error)

    async def drain(self) -> None:
        """Wait until the answer is written; notes are not waited for."""
        await self._out.drain()
        self._err.flush_now()

    def close(self) -> None:
        self._out.close()
        self._err.close()


class _DivertedOutput(io.TextIOBase):
    """Writes text to standard error, and its lines to the log."""

    def __init__(self) -> None:
        self._line = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1 if sys.stderr is None else sys.stderr.fileno()

    def write(self, text: str, /) -> int:
        if sys.stderr is not None:
            sys.stderr.write(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in filter(None, lines):
            log.info("printed by a plugin: %s", line)
        return len(text)


@contextmanager
def divert_stdout() -> Iterator[TextIO | None]:
    """Yield the real standard output. What plugins, libraries and child processes print meanwhile goes to standard
    error and the log instead."""
    out = sys.stdout
    if out is None:
        yield None
        return
    out.flush()
    number = out.fileno()
    real = os.dup(number)
    try:
        with open(os.devnull if sys.stderr is None else os.dup(sys.stderr.fileno()), "wb") as elsewhere:
            os.dup2(elsewhere.fileno(), number)
        sys.stdout = _DivertedOutput()
        with open(real, "w", encoding=out.encoding, errors=out.errors, closefd=False) as answers:
            yield answers
    finally:
        sys.stdout = out
        os.dup2(real, number)
        os.close(real)


def terminal_width(stream: TextIO | None) -> int:
    """The number of columns; 0 if it is not a terminal."""
    return os.get_terminal_size(stream.fileno()).columns if stream and stream.isatty() else 0


def use_colour(variables: Variables) -> bool:
    return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
