"""The real program in a real terminal: a child in a pty, with screen, scrollback, keys and sizes."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pyte

from tests.e2e.program import Home
from tests.world.environment import LIMIT_S

ALIPES = (sys.executable, "-m", "alipes")
ENTER, ESCAPE, CTRL_C, CTRL_D, CTRL_L, CTRL_O = "\r", "\x1b", "\x03", "\x04", "\x0c", "\x0f"


class TerminalProcess:
    """A terminal with a child process: its screen and its keyboard."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=100_000, ratio=0.001)
        self._stream = pyte.ByteStream(self.screen)
        self._master, self._slave = pty.openpty()
        self._set_size(columns, lines)
        self.pid = 0
        self.status: int | None = None
        self.written = 0
        self.raw = bytearray()
        """Everything the child wrote."""
        self.first = 0.0
        """When it wrote its first byte (CLOCK_MONOTONIC)."""
        self._changed = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        words: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        size: tuple[int, int] = (80, 24),
        start: Sequence[str] = ALIPES,
    ) -> AsyncIterator[Self]:
        """Run `alipes WORDS` in its own terminal; killed at the end if it still runs."""
        terminal = cls(*size)
        # It truncates on resize like xterm, which this variable announces.
        env = {"TERM": "xterm-256color", "XTERM_VERSION": "pyte", "COLORFGBG": "15;0", **env}
        child = await asyncio.create_subprocess_exec(
            *start,
            *words,
            env=env,
            cwd=cwd,
            stdin=terminal._slave,
            stdout=terminal._slave,
            stderr=terminal._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        terminal.pid = child.pid
        loop = asyncio.get_running_loop()
        loop.add_reader(terminal._master, terminal._read)
        waiting = asyncio.create_task(terminal._wait(child))
        try:
            yield terminal
        finally:
            if child.returncode is None:
                child.kill()
            await waiting
            if terminal._master >= 0:
                loop.remove_reader(terminal._master)
                os.close(terminal._master)
            os.close(terminal._slave)

    @classmethod
    def of(cls, home: Home, *words: str, size: tuple[int, int] = (80, 24), new: bool = False, **more: Any):
        """The same on a home, in a controlled environment. `new`: its owner has typed nothing yet."""
        if not new:  # no welcome
            home.path.mkdir(mode=0o700, exist_ok=True)
            (home.path / "history").touch(mode=0o600)
        return cls.running(words, home.environ(**more), home.path.parent, size=size)

    def type(self, text: str) -> None:
        """Type everything at once."""
        self.type_bytes(text.encode())

    def type_bytes(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._master, data[:1000]) :]

    async def feed(self, text: str) -> None:
        """Type a long text in pieces, reading in between."""
        data = text.encode()
        while data:
            taken = await asyncio.to_thread(os.write, self._master, data[:2000])
            data = data[taken:]

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed."""
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        self._master = -1

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def resize(self, columns: int, lines: int) -> None:
        """Resize like xterm: the cursor stays with its text, lines above scroll up if needed."""
        screen, cursor = self.screen, self.screen.cursor
        if (over := cursor.y + 1 - lines) > 0:
            y, cursor.y = cursor.y, screen.lines - 1
            for _ in range(over):
                screen.index()
            cursor.y = y - over
        for y in range(lines, screen.lines):
            screen.buffer.pop(y, None)
        screen.lines = lines
        screen.resize(lines, columns)
        self._set_size(columns, lines)

    @property
    def rows(self) -> list[str]:
        """The lines of the screen, without trailing blanks and without the rule above the input."""
        return [row.rstrip() for row in self.screen.display if not self._is_rule(row)]

    @property
    def shown(self) -> list[str]:
        """The non-empty lines."""
        return [row for row in self.rows if row]

    @property
    def text(self) -> str:
        """Scrollback and screen."""
        width = self.screen.columns
        above = ["".join(line[x].data for x in range(width)).rstrip() for line in self.screen.history.top]
        return "\n".join([*above, *self.rows])

    def _is_rule(self, row: str) -> bool:
        return len(row) > 3 and not row.strip("─") and len(row) == self.screen.columns

    async def until(self, met: "str | Callable[[], bool]", seconds: float = LIMIT_S) -> None:
        """Wait until the text is on the screen or in the scrollback, or the condition is true."""
        test = (lambda: met in self.text) if isinstance(met, str) else met
        try:
            async with asyncio.timeout(seconds):
                while not test():
                    self._changed.clear()
                    try:
                        async with asyncio.timeout(0.05):  # the condition may also depend on other things
                            await self._changed.wait()
                    except TimeoutError:
                        pass
        except TimeoutError:
            raise AssertionError(f"{met!r} did not come to be:\n{self.text}") from None

    async def ended(self, seconds: float = LIMIT_S) -> int:
        await self.until(lambda: self.status is not None, seconds)
        assert self.status is not None
        return self.status

    def cpu(self) -> float:
        """CPU seconds used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_raw(self) -> bool:
        """Whether the terminal is in raw mode."""
        return not termios.tcgetattr(self._slave)[3] & termios.ICANON

    def set_cooked(self) -> None:
        """Set the mode that a shell sets while a program is stopped."""
        mode = termios.tcgetattr(self._slave)
        mode[3] |= termios.ICANON | termios.ECHO | termios.ISIG
        termios.tcsetattr(self._slave, termios.TCSANOW, mode)

    def has_unread_keys(self) -> bool:
        """Whether the child has not read all keys."""
        return _readable(self._slave)

    async def _wait(self, child: asyncio.subprocess.Process) -> None:
        status = await child.wait()
        while self._read():
            pass
        self.status = status
        self._changed.set()

    def _read(self) -> bool:
        if self._master < 0 or not _readable(self._master):
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        if not self.first:
            self.first = time.monotonic()
        self.written += len(data)
        self.raw += data
        self._stream.feed(data)
        self._changed.set()
        return bool(data)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _readable(fd: int) -> bool:
    waiting = fcntl.ioctl(fd, termios.FIONREAD, struct.pack("i", 0))
    return struct.unpack("i", waiting)[0] > 0
