"""Asking where a terminal knows nothing but lines: numbered lists, answers ended by Enter, secrets unseen."""

import asyncio
import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from alipes.cli.render import harmless
from alipes.cli.setup.questions import Left, Option, Picker

LONGEST = 40
"""Options that are listed; of more, a person types a part of the name."""


class Plain:
    """The person at a terminal that only knows lines, such as an editor's shell."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()

    async def choose(
        self, topic: str, options: Sequence[Option], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        shown = list(options)
        while True:
            if hint:
                print(hint)
            for number, option in enumerate(shown[:LONGEST], 1):
                print(harmless(f"{number:3}  {option.label}  {option.note}".rstrip()))
            usual = next((option.label for option in options if option.value == first), "")
            text = await self._line(f"{topic} (number or name{f'; Enter: {usual}' if usual else ''}): ")
            if not text and usual:
                return first
            if text.isdecimal() and 0 < int(text) <= len(shown):
                return shown[int(text) - 1].value
            picker = Picker(options, free=free)
            picker.narrow(text)
            exact = next((option.value for option in options if option.label == text), None)
            chosen = exact or (picker.chosen if len(picker.found) < 2 else None)
            if text and chosen:
                return chosen
            shown = list(picker.found or options)

    async def text(self, topic: str, first: str = "") -> str:
        return await self._line(f"{topic}{f' (Enter: {first})' if first else ''}: ") or first

    async def secret(self, topic: str) -> str:
        with _unseen(self._fd):
            text = await self._line(f"{topic}: ")
        print()
        return text

    def tell(self, line: str) -> None:
        print(harmless(line))

    warn = tell

    async def _line(self, question: str) -> str:
        """A terminal gives its input line by line, so one read is one line."""
        print(question, end="", flush=True)
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        if not (line := os.read(self._fd, 65_536)):
            raise Left
        return line.decode("utf-8", "replace").strip()


@contextmanager
def _unseen(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    hidden = termios.tcgetattr(fd)
    hidden[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
