"""Text to a file descriptor without ever blocking the loop. It knows nothing of what the text means."""

import asyncio
import os
import select
from typing import TextIO

from alipes.cli.render import DIM, PLAIN, RED, harmless
from alipes.config.environment import Variables

CHUNK = 4096  # PIPE_BUF: what a descriptor that polls as writable takes at once


class Outlet:
    """Written text leaves at the loop's next turn, all that came together in one piece.

    A reader that is slow makes the text wait here, not the loop; a reader that went away
    sets `deserted`, and whatever is written after that is dropped.
    """

    def __init__(self, fd: int | None) -> None:
        """`fd` None: there is nobody to write to."""
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._scheduled: asyncio.Handle | None = None
        self._watched = False
        self._emptied = asyncio.Event()
        self.deserted = asyncio.Event()
        self.failure: OSError | None = None
        """Why it is deserted."""
        self._poll = select.poll()
        if fd is not None:
            self._poll.register(fd, select.POLLOUT)

    @property
    def busy(self) -> bool:
        """What was written before has not left yet, because the reader is slow."""
        return self._watched

    def write(self, text: str | bytes) -> None:
        if self._fd is None or self.deserted.is_set():
            return
        self._waiting += text.encode("utf-8", "replace") if isinstance(text, str) else text
        self._emptied.clear()
        if self._scheduled is None and not self._watched:
            self._scheduled = self._loop.call_soon(self.push)

    def push(self) -> None:
        """Write now whatever can be written without waiting."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        try:
            while self._waiting and self._poll.poll(0):
                assert self._fd is not None
                del self._waiting[: os.write(self._fd, self._waiting[:CHUNK])]
        except OSError as error:  # nobody reads it, or the disk is full: nobody gets this any more
            self._waiting.clear()
            self.failure = error
            self.deserted.set()
        self._watch(bool(self._waiting))
        if not self._waiting:
            self._emptied.set()

    async def drained(self) -> None:
        """Return once everything written has left, or nobody is there to take it."""
        self.push()
        if self._waiting:
            await self._emptied.wait()

    def close(self) -> None:
        """Stop watching the descriptor; what still waits is dropped. The descriptor stays open."""
        self._waiting.clear()
        self.push()

    def _watch(self, wanted: bool) -> None:
        if wanted == self._watched or self._fd is None:
            return
        self._watched = wanted
        if wanted:
            self._loop.add_writer(self._fd, self.push)
        else:
            self._loop.remove_writer(self._fd)


class Screen:
    """The answer to one descriptor, remarks to the other, in the order they were told."""

    def __init__(self, out: TextIO | None, err: TextIO | None, *, colour: bool = True) -> None:
        self._out, self._err = Outlet(_descriptor(out)), Outlet(_descriptor(err))
        self._shown = _is_terminal(out)
        self._colour = colour and _is_terminal(err)
        self.deserted = self._out.deserted

    def answer(self, text: str) -> None:
        """To a terminal only what cannot harm it, to anything else as it is."""
        self._out.write(harmless(text) if self._shown else text)

    def line(self, data: bytes) -> None:
        self._out.write(data + b"\n")

    def remark(self, line: str) -> None:
        self._out.push()
        if self._colour:
            line = f"{RED if line.startswith('alipes: ') else DIM}{line}{PLAIN}"
        self._err.write(line + "\n")
        self._err.push()

    def complain(self, line: str) -> None:
        self.remark(f"alipes: {line}")

    @property
    def failure(self) -> str:
        """Why the answer could not be written, where that is more than a reader who had enough."""
        error = self._out.failure
        return "" if error is None or isinstance(error, BrokenPipeError) else error.strerror or str(error)

    async def drained(self) -> None:
        """Return once everything has left; remarks that nobody takes are not waited for."""
        await self._out.drained()
        self._err.push()

    def close(self) -> None:
        self._out.close()
        self._err.close()


def terminal_width(stream: TextIO | None) -> int:
    """Its columns; 0 where it is no terminal."""
    return os.get_terminal_size(stream.fileno()).columns if stream and _is_terminal(stream) else 0


def wants_colour(variables: Variables) -> bool:
    return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"


def _descriptor(stream: TextIO | None) -> int | None:
    return None if stream is None else stream.fileno()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and os.isatty(stream.fileno())
