"""A person at a terminal: the program in a real pty, its screen as pyte sees it, keys typed into it."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyte

from tests.e2e.program import Home


class Terminal:
    """`shows` waits for what must appear; `type` presses keys."""

    def __init__(self, fd: int, process: asyncio.subprocess.Process, size: tuple[int, int]) -> None:
        self.process = process
        self._fd = fd
        self._screen = pyte.HistoryScreen(*size, history=1000, ratio=0.1)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = asyncio.Event()
        self.written = 0
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            self.close()
        self.written += len(data)
        self._stream.feed(data)
        self._changed.set()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        self._changed.set()

    @property
    def text(self) -> str:
        """Scrollback and screen, without blanks at the ends of lines."""
        above = [
            "".join(line[x].data for x in range(self._screen.columns)) for line in self._screen.history.top
        ]
        return "\n".join(line.rstrip() for line in (*above, *self._screen.display)).rstrip()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    async def shows(self, text: str, times: int = 1) -> None:
        """Wait until `text` stands there so often."""
        while self.text.count(text) < times:
            self._changed.clear()
            try:
                async with asyncio.timeout(20):
                    await self._changed.wait()
            except TimeoutError:
                raise AssertionError(f"{text!r} does not appear:\n{self.text}") from None

    async def hides(self, text: str) -> None:
        while text in self.text:
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def open_terminal(
    home: Home, *words: str, size: tuple[int, int] = (80, 24), **more: str
) -> AsyncIterator[Terminal]:
    """`alipes WORDS` at a terminal of `size` columns and lines; killed at the end if it still runs."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alipes", *words),
        # pyte answers no questions about its cursor.
        env=home.environ(TERM="xterm-256color", PROMPT_TOOLKIT_NO_CPR="1", **more),
        cwd=home.path.parent,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = Terminal(ours, process, size)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        terminal.close()
        os.close(ours)
