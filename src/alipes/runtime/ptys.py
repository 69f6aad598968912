"""What ties us to a child: pipes or a pseudo terminal. It starts nothing and renders nothing."""

import asyncio
import os
import subprocess
import termios
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, NamedTuple, TypeAlias

COLUMNS, ROWS = 80, 24
END_OF_FILE = b"\x04"
_TAKE_TERMINAL = ': <>"$0"; exec "$@"'
"""The leader of a session gets the first terminal that it opens itself as its own."""

Link: TypeAlias = Literal["output", "pipes", "terminal"]
"""We hear the child; or we speak to it too; or both, through a pseudo terminal."""


class Ends(NamedTuple):
    """Descriptors of both sides; -1 is none."""

    output: int
    """Ours to read; it does not block."""
    input: int
    """Ours to write, likewise."""
    stdin: int
    stdout: int


@contextmanager
def open_ends(link: Link) -> Iterator[Ends]:
    """A new link. The child's ends are closed when the block is left; ours stay, unless it fails."""
    with ExitStack() as theirs, ExitStack() as ours:
        speaking, stdin = -1, subprocess.DEVNULL
        if link == "terminal":
            output, stdout = os.openpty()
            ours.callback(os.close, output)
            theirs.callback(os.close, stdout)
            termios.tcsetwinsize(stdout, (ROWS, COLUMNS))
            speaking, stdin = os.dup(output), stdout
            ours.callback(os.close, speaking)
        else:
            output, stdout = os.pipe()
            ours.callback(os.close, output)
            theirs.callback(os.close, stdout)
            if link == "pipes":
                stdin, speaking = os.pipe()
                theirs.callback(os.close, stdin)
                ours.callback(os.close, speaking)
                os.set_blocking(speaking, False)
        os.set_blocking(output, False)
        yield Ends(output, speaking, stdin, stdout)
        ours.pop_all()


def on_terminal(argv: Sequence[str], terminal: int) -> list[str]:
    """An argv that takes `terminal` for its controlling one, then becomes `argv`: ^C and /dev/tty work."""
    return ["/bin/sh", "-c", _TAKE_TERMINAL, os.ttyname(terminal), *argv]


class Input:
    """Where a child's input is written. One writer at a time."""

    def __init__(self, handle: int, *, terminal: bool) -> None:
        self.terminal = terminal
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._within_line = False

    @property
    def closed(self) -> bool:
        return self._handle < 0

    async def write(self, data: bytes, seconds: float) -> int:
        """How many bytes were taken within `seconds`. Raises OSError when the child reads no more."""
        done = 0
        try:
            async with asyncio.timeout(seconds):
                while done < len(data):
                    try:
                        done += os.write(self._handle, data[done : done + 65536])
                    except BlockingIOError:
                        await self._room()
        except TimeoutError:
            pass
        if done:
            self._within_line = data[done - 1] not in b"\r\n\x04"
        return done

    async def finish(self) -> None:
        """Let the child read the end of file, as soon as it has read what was written before."""
        if not self.terminal:
            self.close()
        elif not self.closed:  # in the middle of a line the first one only sends the line
            await self.write(END_OF_FILE * (2 if self._within_line else 1), 1.0)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    async def _room(self) -> None:
        free = self._loop.create_future()
        self._loop.add_writer(self._handle, _wake, free)
        try:
            await free
        finally:
            self._loop.remove_writer(self._handle)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
