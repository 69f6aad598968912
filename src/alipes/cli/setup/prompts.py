"""Asking at a terminal with prompt_toolkit: a question stands below what was said, and leaves one line."""

import asyncio
import os
import shutil
import sys
import termios
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct
from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput, Processor, Transformation, TransformationInput
from prompt_toolkit.styles import Style

from alipes.cli.render import DIM, PLAIN, RED, harmless


class Option(Struct, frozen=True):
    value: str
    label: str
    note: str = ""

    def fits(self, text: str) -> bool:
        """Whether every word of `text` occurs in it."""
        told = f"{self.label} {self.note}".lower()
        return all(word in told for word in text.lower().split())


class Left(Exception):
    """The person went away, by Ctrl-C or Ctrl-D."""


class Dialogue(Protocol):
    """Someone who can be asked. Every question raises `Left` when they leave."""

    async def choose(
        self, topic: str, options: Sequence[Option], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        """The value they chose, `first` being preselected; if `free`, it may be what they typed."""
        ...

    async def text(self, topic: str, first: str = "") -> str:
        """A line, `first` being there already."""
        ...

    async def secret(self, topic: str) -> str:
        """A line that nobody sees."""
        ...

    def tell(self, line: str) -> None: ...

    def warn(self, line: str) -> None: ...


class Picker:
    """Which options are left of those that were offered, which of them is picked, and which can be seen."""

    def __init__(self, options: Sequence[Option], *, first: str = "", free: bool = False) -> None:
        self._options, self._free = tuple(options), free
        self._text = ""
        self.found = self._options
        values = [option.value for option in self._options]
        self._first = self.at = values.index(first) if first in values else 0

    @property
    def chosen(self) -> str | None:
        """The value that Enter would take; None when there is none."""
        if self.found:
            return self.found[self.at].value
        return self._text if self._free and self._text else None

    def narrow(self, text: str) -> None:
        """Keep what fits `text`; those that begin with it come first."""
        self._text = text.strip()
        fitting = [option for option in self._options if option.fits(text)]
        begun = self._text.lower()
        self.found = tuple(sorted(fitting, key=lambda option: not option.label.lower().startswith(begun)))
        self.at = 0 if self._text else self._first

    def move(self, by: int) -> None:
        self.at = max(0, min(len(self.found) - 1, self.at + by))

    def seen(self, rows: int) -> list[tuple[bool, Option]]:
        """The part of the list around the picked one that has room, each with whether it is picked."""
        start = max(0, min(self.at - rows // 2, len(self.found) - rows))
        shown = self.found[start : start + rows]
        return [(start + row == self.at, option) for row, option in enumerate(shown)]


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


ROWS = 15
"""Options shown at once, where the terminal has room for them."""
LABEL = 44
"""Columns that a label may take before its note no longer stands below the others'."""
_STYLE = Style.from_dict({"topic": "bold", "picked": "bold", "note": "ansibrightblack"})
_STEPS = {"up": -1, "c-p": -1, "s-tab": -1, "down": 1, "c-n": 1, "tab": 1, "pageup": -ROWS, "pagedown": ROWS}
_HINT = "type to filter, arrows to move, Enter to choose"


class Screen:
    """The person at this terminal."""

    def __init__(self, *, colour: bool = True) -> None:
        self._colour = colour

    async def choose(
        self, topic: str, options: Sequence[Option], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        picker = Picker(options, first=first, free=free)
        value = await self._application(topic, picker, hint or _HINT).run_async(set_exception_handler=False)
        label = next((option.label for option in options if option.value == value), value)
        print(f"{topic}: {harmless(label)}")
        return value

    async def text(self, topic: str, first: str = "") -> str:
        text = (await self._session(topic).prompt_async(default=first, set_exception_handler=False)).strip()
        print(f"{topic}: {harmless(text)}")
        return text

    async def secret(self, topic: str) -> str:
        session = self._session(topic)
        session.input_processors = [_Hidden()]
        text = (await session.prompt_async(set_exception_handler=False)).strip()
        print(f"{topic}: {'***' if text else ''}")
        return text

    def tell(self, line: str) -> None:
        self._write(line, DIM if line.startswith("·") else "")

    def warn(self, line: str) -> None:
        self._write(line, RED)

    def _write(self, line: str, style: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        for part in harmless(line).split("\n"):
            inner = " " * (len(part) - len(part.lstrip()))
            for row in textwrap.wrap(part, width, subsequent_indent=inner, break_on_hyphens=False) or [""]:
                print(f"{style}{row}{PLAIN}" if style and self._colour else row)

    def _session(self, topic: str) -> PromptSession[str]:
        return PromptSession(
            [("class:topic", f"{topic}: ")],
            style=_STYLE if self._colour else None,
            erase_when_done=True,
            interrupt_exception=Left,
            eof_exception=Left,
        )

    def _application(self, topic: str, picker: Picker, hint: str) -> Application[str]:
        typed = Buffer(multiline=False, on_text_changed=lambda buffer: picker.narrow(buffer.text))
        question = BufferControl(typed, [BeforeInput(f"{topic}: ", "class:topic")])
        rows = max(3, min(ROWS, shutil.get_terminal_size().lines - 5))
        drawn = FormattedTextControl(lambda: _drawn(picker, rows, hint))
        body = HSplit([Window(question, height=1), Window(drawn, dont_extend_height=True)])
        return Application(
            layout=Layout(body, focused_element=typed),
            key_bindings=_keys(picker),
            style=_STYLE if self._colour else None,
            erase_when_done=True,
        )


def _drawn(picker: Picker, rows: int, hint: str) -> StyleAndTextTuples:
    parts: StyleAndTextTuples = []
    width = min(LABEL, max((len(option.label) for option in picker.found), default=0))
    for picked, option in picker.seen(rows):
        style = "class:picked" if picked else ""
        parts += [(style, f"{'>' if picked else ' '} {option.label:<{width}}")]
        parts += [("class:note", f"  {option.note}\n" if option.note else "\n")]
    if not picker.found:
        nothing = "nothing fits; Enter takes it as you typed it" if picker.chosen else "nothing fits"
        parts.append(("", f"  {nothing}\n"))
    more = f" ({len(picker.found)} in all)" if len(picker.found) > rows else ""
    return [*parts, ("class:note", f"  {hint}{more}")]


def _keys(picker: Picker) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def take(event: KeyPressEvent) -> None:
        if picker.chosen is not None:
            event.app.exit(result=picker.chosen)

    @keys.add("c-c")
    @keys.add("c-d")
    @keys.add("<sigint>")
    def leave(event: KeyPressEvent) -> None:
        event.app.exit(exception=Left)

    for key, by in _STEPS.items():
        keys.add(key)(lambda _, by=by: picker.move(by))
    return keys


class _Hidden(Processor):
    """Shows how much was typed, which tells a good paste from a bad one, and nothing of what."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        length = len(transformation_input.document.text)
        shown = f"({length} characters)" if length else ""
        return Transformation([("class:note", shown)], lambda _: len(shown), lambda _: length)
