"""Prompts of the setup: with prompt_toolkit, or line by line on simple terminals."""

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

from alipes.console.render import DIM, PLAIN, RED, sanitize


class Choice(Struct, frozen=True):
    value: str
    label: str
    note: str = ""

    def matches(self, text: str) -> bool:
        """True if it contains every word of `text`."""
        content = f"{self.label} {self.note}".lower()
        return all(word in content for word in text.lower().split())


class SetupCancelled(Exception):
    """The user pressed Ctrl-C or Ctrl-D."""


class Prompter(Protocol):
    """Asks the user. Every question raises `SetupCancelled` on Ctrl-C."""

    async def choose(
        self, topic: str, options: Sequence[Choice], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        """The chosen value; `first` is preselected. `free`: any typed text is allowed."""
        ...

    async def text(self, topic: str, first: str = "") -> str:
        """A line of text; `first` is the default."""
        ...

    async def secret(self, topic: str) -> str:
        """A line that is not shown."""
        ...

    def note(self, line: str) -> None: ...

    def warn(self, line: str) -> None: ...


class ChoiceList:
    """A list with a filter and a cursor."""

    def __init__(self, options: Sequence[Choice], *, first: str = "", free: bool = False) -> None:
        self._options, self._free = tuple(options), free
        self._text = ""
        self.matching = self._options
        values = [option.value for option in self._options]
        self._first = self.at = values.index(first) if first in values else 0

    @property
    def chosen(self) -> str | None:
        """The value that Enter selects; None if there is none."""
        if self.matching:
            return self.matching[self.at].value
        return self._text if self._free and self._text else None

    def filter(self, text: str) -> None:
        """Show the choices that match `text`; those that start with it come first."""
        self._text = text.strip()
        fitting = [option for option in self._options if option.matches(text)]
        begun = self._text.lower()
        self.matching = tuple(sorted(fitting, key=lambda option: not option.label.lower().startswith(begun)))
        self.at = 0 if self._text else self._first

    def move(self, by: int) -> None:
        self.at = max(0, min(len(self.matching) - 1, self.at + by))

    def visible(self, rows: int) -> list[tuple[bool, Choice]]:
        """`rows` choices around the cursor, each with whether the cursor is on it."""
        start = max(0, min(self.at - rows // 2, len(self.matching) - rows))
        shown = self.matching[start : start + rows]
        return [(start + row == self.at, option) for row, option in enumerate(shown)]


MAX_LISTED = 40
"""Maximum number of choices listed; the user can type part of a name for the others."""


class PlainPrompter:
    """Prompts for a terminal without cursor control, such as the shell of an editor."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()

    async def choose(
        self, topic: str, options: Sequence[Choice], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        shown = list(options)
        while True:
            if hint:
                print(hint)
            for number, option in enumerate(shown[:MAX_LISTED], 1):
                print(sanitize(f"{number:3}  {option.label}  {option.note}".rstrip()))
            usual = next((option.label for option in options if option.value == first), "")
            text = await self._line(f"{topic} (number or name{f'; Enter: {usual}' if usual else ''}): ")
            if not text and usual:
                return first
            if text.isdecimal() and 0 < int(text) <= len(shown):
                return shown[int(text) - 1].value
            picker = ChoiceList(options, free=free)
            picker.filter(text)
            exact = next((option.value for option in options if option.label == text), None)
            chosen = exact or (picker.chosen if len(picker.matching) < 2 else None)
            if text and chosen:
                return chosen
            shown = list(picker.matching or options)

    async def text(self, topic: str, first: str = "") -> str:
        return await self._line(f"{topic}{f' (Enter: {first})' if first else ''}: ") or first

    async def secret(self, topic: str) -> str:
        with _hide_input(self._fd):
            text = await self._line(f"{topic}: ")
        print()
        return text

    def note(self, line: str) -> None:
        print(sanitize(line))

    warn = note

    async def _line(self, question: str) -> str:
        """Read one line; a terminal returns one per read."""
        print(question, end="", flush=True)
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        if not (line := os.read(self._fd, 65_536)):
            raise SetupCancelled
        return line.decode("utf-8", "replace").strip()


@contextmanager
def _hide_input(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    hidden = termios.tcgetattr(fd)
    hidden[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


MAX_ROWS = 15
"""Maximum number of choices shown at once."""
MAX_LABEL = 44
_STYLE = Style.from_dict({"topic": "bold", "picked": "bold", "note": "ansibrightblack"})
_STEPS = {"up": -1, "c-p": -1, "s-tab": -1, "down": 1, "c-n": 1, "tab": 1, "pageup": -MAX_ROWS, "pagedown": MAX_ROWS}
_HINT = "type to filter, arrows to move, Enter to choose"


class TerminalPrompter:
    """Prompts with prompt_toolkit."""

    def __init__(self, *, colour: bool = True) -> None:
        self._colour = colour

    async def choose(
        self, topic: str, options: Sequence[Choice], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        picker = ChoiceList(options, first=first, free=free)
        value = await self._application(topic, picker, hint or _HINT).run_async(set_exception_handler=False)
        label = next((option.label for option in options if option.value == value), value)
        print(f"{_label(topic)}{sanitize(label)}")
        return value

    async def text(self, topic: str, first: str = "") -> str:
        text = (await self._session(topic).prompt_async(default=first, set_exception_handler=False)).strip()
        print(f"{topic}: {sanitize(text)}")
        return text

    async def secret(self, topic: str) -> str:
        session = self._session(topic)
        session.input_processors = [_Hidden()]
        text = (await session.prompt_async(set_exception_handler=False)).strip()
        print(f"{topic}: {'***' if text else ''}")
        return text

    def note(self, line: str) -> None:
        self._write(line, DIM if line.startswith("·") else "")

    def warn(self, line: str) -> None:
        self._write(line, RED)

    def _write(self, line: str, style: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        for part in sanitize(line).split("\n"):
            inner = " " * (len(part) - len(part.lstrip()))
            for row in textwrap.wrap(part, width, subsequent_indent=inner, break_on_hyphens=False) or [""]:
                print(f"{style}{row}{PLAIN}" if style and self._colour else row)

    def _session(self, topic: str) -> PromptSession[str]:
        return PromptSession(
            [("class:topic", f"{topic}: ")],
            style=_STYLE if self._colour else None,
            erase_when_done=True,
            interrupt_exception=SetupCancelled,
            eof_exception=SetupCancelled,
        )

    def _application(self, topic: str, picker: ChoiceList, hint: str) -> Application[str]:
        typed = Buffer(multiline=False, on_text_changed=lambda buffer: picker.filter(buffer.text))
        question = BufferControl(typed, [BeforeInput(_label(topic), "class:topic")])
        rows = max(3, min(MAX_ROWS, shutil.get_terminal_size().lines - 5))
        drawn = FormattedTextControl(lambda: _draw_choices(picker, rows, hint))
        body = HSplit([Window(question, height=1), Window(drawn, dont_extend_height=True)])
        return Application(
            layout=Layout(body, focused_element=typed),
            key_bindings=_make_keys(picker),
            style=_STYLE if self._colour else None,
            erase_when_done=True,
        )


def _label(topic: str) -> str:
    return f"{topic} " if topic.endswith("?") else f"{topic}: "


def _draw_choices(picker: ChoiceList, rows: int, hint: str) -> StyleAndTextTuples:
    parts: StyleAndTextTuples = []
    width = min(MAX_LABEL, max((len(option.label) for option in picker.matching), default=0))
    for picked, option in picker.visible(rows):
        style = "class:picked" if picked else ""
        parts += [(style, f"{'>' if picked else ' '} {option.label:<{width}}")]
        parts += [("class:note", f"  {option.note}\n" if option.note else "\n")]
    if not picker.matching:
        nothing = "no matches; press Enter to use your text" if picker.chosen else "no matches"
        parts.append(("", f"  {nothing}\n"))
    more = f" ({len(picker.matching)} total)" if len(picker.matching) > rows else ""
    return [*parts, ("class:note", f"  {hint}{more}")]


def _make_keys(picker: ChoiceList) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def take(event: KeyPressEvent) -> None:
        if picker.chosen is not None:
            event.app.exit(result=picker.chosen)

    @keys.add("c-c")
    @keys.add("c-d")
    @keys.add("<sigint>")
    def leave(event: KeyPressEvent) -> None:
        event.app.exit(exception=SetupCancelled)

    for key, by in _STEPS.items():
        keys.add(key)(lambda _, by=by: picker.move(by))
    return keys


class _Hidden(Processor):
    """Shows only the length of the typed text."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        length = len(transformation_input.document.text)
        shown = f"({length} characters)" if length else ""
        return Transformation([("class:note", shown)], lambda _: len(shown), lambda _: length)
