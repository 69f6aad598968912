"""The terminal as a surface: the real program in a pty, and our messages on its screen."""

import asyncio
import itertools
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.surface import File, Room, Surface
from tests.world.terminal_process import ENTER, TerminalProcess

SIZE = (160, 50)
QUIET = 0.7
"""Longer than the pause that a question needs before a key answers it."""
KEYS = {"Yes": "o", "No": "n"}
PROMPT = "›"
TOOK = re.compile(r"(  | · )[\d.]+ s$")


class Terminal(Surface):
    """One program per room: a terminal is one conversation."""

    name = "terminal"
    longest = 0
    lasts = False
    cannot: ClassVar = {
        "groups": "a terminal has one person at it",
        "threads": "a terminal shows one conversation",
        "strangers": "who can start it may speak",
        "repeats": "a key that was typed does not come again",
        "edits": "what was sent is not changed; /undo and /retry are for that",
        "limits": "nobody refuses what is written to a screen",
        "menus": "commands are completed as they are typed (tests/e2e/test_terminal_input.py)",
        "files": "a conversation in a terminal takes no files; `alipes ask --image` does (tests/e2e/test_ask.py)",
        "absence": "nobody can type while it is not there",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._numbers = itertools.count(1)
        self._session = ""
        self._stack = AsyncExitStack()
        self.terminal: TerminalProcess | None = None

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        yield

    def settings(self) -> list[str]:
        return []

    async def start(self) -> None:
        if self._session:
            self._stack = AsyncExitStack()
            words = ("--session", self._session)
            self.terminal = await self._stack.enter_async_context(TerminalProcess.of(self.home, *words, size=SIZE))
            await self.terminal.until("(from config.toml)")

    async def leave(self) -> None:
        assert self.terminal is not None
        self.terminal.signal(signal.SIGTERM)

    async def knows(self) -> None:
        return

    async def kill(self) -> None:
        assert self.terminal is not None
        self.terminal.signal(signal.SIGKILL)
        await self.left()

    async def left(self) -> None:
        assert self.terminal is not None
        await self.terminal.ended()
        assert "Traceback" not in self.terminal.text
        await self.end()

    async def end(self) -> None:
        self.terminal = None
        await self._stack.aclose()

    async def room(self) -> "Screen":
        await self.end()
        self._session = f"talk-{next(self._numbers)}"
        await self.start()
        return Screen(self)

    def stopped(self, partial: str) -> list[str]:
        return ["Stopped.", partial, "· stopped"]

    def superseded(self, partial: str) -> list[str]:
        return [partial, "· interrupted by your next message"]

    def renewed(self, partial: str) -> list[str]:
        gone = "· switched to another conversation"
        return ["Started a new conversation. Stopped: the running turn.", gone, partial, "· stopped"]

    def worked(self, command: str, output: str) -> list[str]:
        return [f"✓ Run {command}\n  │ {output}"]

    def consented(self, command: str, yes: bool) -> list[str]:
        if yes:
            return [f"· approved once: {command}", f"✓ Run {command}  no output"]
        return [f"· denied: {command}"]

    def restarted(self, answer: str) -> list[str]:
        return ["· Resuming the interrupted turn", answer]

    def resumed(self, words: str, answer: str) -> list[str]:
        return self.restarted(answer)


class Screen(Room):
    """Scrollback and screen of the running program."""

    def __init__(self, surface: Terminal) -> None:
        self._surface = surface

    @property
    def _glass(self) -> TerminalProcess:
        assert self._surface.terminal is not None
        return self._surface.terminal

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        self._glass.type(text + ENTER)
        return ""

    async def press(self, label: str, *, who: str = "") -> None:
        await self._glass.until("waiting for approval")
        await asyncio.sleep(QUIET)
        self._glass.type(KEYS[label])

    def seen(self) -> list[str]:
        """Blocks between empty lines, without input, header and footer."""
        text = self._glass.text.rstrip()
        body = text.partition("\n\n")[2].rpartition(f"\n{PROMPT}")[0]
        blocks = [block for block in body.split("\n\n") if block.strip()]
        return [said for said in map(_ours, blocks) if said]

    def rests(self) -> bool:
        return self._glass.shown[-1].startswith("  test/scripted")

    async def until(self, fact: Callable[[], Any]) -> None:
        await self._glass.until(fact, seconds=60)


def _ours(block: str) -> str:
    """A block without the typed line above it and without tool durations."""
    lines = [TOOK.sub("", line) for line in block.strip("\n").splitlines()]
    theirs = lines[0].startswith(PROMPT)
    return "\n".join(line.strip() for line in lines[1:]) if theirs else "\n".join(lines)
