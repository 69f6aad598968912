"""The terminal: what is typed, what stands on the screen, and when. It knows no model and no store.

Finished rows go into the scrollback for good; below them stand the tail of what is being said,
the input and the status, and only these are ever painted again.
"""

import asyncio
import codecs
import fcntl
import os
import re
import select
import sys
import termios
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, SearchBufferControl
from prompt_toolkit.search import SearchState

from alipes.cli.render import harmless
from alipes.cli.stdio import Outlet
from alipes.cli.terminal.completion import KeptHistory, Words
from alipes.cli.terminal.key_bindings import Desk, make_keys
from alipes.cli.terminal.layout import Bottom, Pastes
from alipes.cli.terminal.output import Painter, Wire
from alipes.cli.terminal.repaint import Pulse
from alipes.cli.terminal.styles import Surroundings, make_look, styled, wrapped
from alipes.cli.theme import Name

QUESTION = "\x1b]11;?\x1b\\"
PATIENCE = 2.0
"""Seconds in which half an answer is waited for."""
PIECE = 65_536
_PART = "([0-9a-fA-F]{1,4})"
_ANSWER = re.compile(rf"\x1b\]11;rgba?:{_PART}/{_PART}/{_PART}[^\x07\x1b]*(?:\x07|\x1b\\)")
_HALF = re.compile(r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?)?\Z")


class Keyboard(Vt100Input):
    """Reads keys as prompt_toolkit does. An answer of the terminal never reaches what is being typed."""

    def __init__(self, stdin: TextIO, on_background: Callable[[bool], None]) -> None:
        """`on_background(dark)` is called when the terminal has told its background."""
        super().__init__(stdin)
        self._on_background = on_background
        self._asked = 0.0
        self._held = ""
        self._gone = False
        self._ahead = 0
        """Bytes typed before we came: the terminal took Enter for the end of a line then."""
        # Bytes that are no text are shown as such: nothing that is kept or sent could take them.
        self._decoder = codecs.getincrementaldecoder(stdin.encoding)("replace")

    @property
    def closed(self) -> bool:
        return self._gone

    @property
    def expecting(self) -> bool:
        """An answer may still come."""
        return bool(self._asked) and time.monotonic() - self._asked < PATIENCE

    def asked(self) -> None:
        """The question was sent."""
        self._asked = time.monotonic()

    def raw_mode(self) -> AbstractContextManager[None]:
        waiting = fcntl.ioctl(self._fileno, termios.FIONREAD, b"\0\0\0\0")
        self._ahead = int.from_bytes(waiting, sys.byteorder)
        return super().raw_mode()

    def read_keys(self) -> list[KeyPress]:
        self.vt100_parser.feed(self._without_answer(self._read()))
        return self._taken()

    def flush_keys(self) -> list[KeyPress]:
        if self._held == "\x1b" or not self.expecting:  # a key after all
            self.vt100_parser.feed(self._held)
            self._held = ""
        self.vt100_parser.flush()
        return self._taken()

    def _taken(self) -> list[KeyPress]:
        keys, self._buffer = self._buffer, []
        return keys

    def _read(self) -> str:
        """What has been typed; the end of the terminal, or its loss, closes us."""
        try:
            if self._gone or not select.select([self._fileno], [], [], 0)[0]:
                return ""
            data = os.read(self._fileno, PIECE)
        except OSError:
            data = b""
        self._gone = not data
        if self._ahead > 0:
            data = data[: self._ahead].replace(b"\n", b"\r") + data[self._ahead :]
            self._ahead -= len(data)
        return self._decoder.decode(data)

    def _without_answer(self, data: str) -> str:
        if not self._asked:
            return data
        data, self._held = self._held + data, ""
        if found := _ANSWER.search(data):
            self._asked -= PATIENCE
            red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
            self._on_background(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)
            data = data[: found.start()] + data[found.end() :]
        elif self.expecting and (half := _HALF.search(data)):
            data, self._held = data[: half.start()], half[0]
        return data


ESCAPE = 0.1
"""Seconds in which the rest of a key must follow its first byte; else it was the escape key."""


class Terminal:
    """A prompt that stands from the first moment. What is typed waits in `letters` for whoever serves it."""

    def __init__(self, around: Surroundings, history: Path) -> None:
        self.around = around
        self.theme: Name = around.theme
        self.restyled: Callable[[], None] = lambda: None
        """Called when the theme changed."""
        self.parting = ""
        """The last word, when all is closed."""
        pastes = Pastes()
        self.words = Words()
        self._buffer = Buffer(
            completer=self.words,
            history=KeptHistory(history, pastes.expand),
            multiline=True,
            complete_while_typing=Condition(self._completes),
        )
        self._outlet = Outlet(sys.stdout.fileno())
        self._wire = Wire(sys.stdout, self._outlet)
        self._keyboard = Keyboard(sys.stdin, self._on_background)
        self.bottom = Bottom(
            self._buffer,
            pastes,
            make_look(self.theme, ascii_only=around.ascii_only, pictures=around.pictures),
        )
        self._painter = Painter(self._wire, self.bottom, reflows=around.reflows)
        self._pulse = Pulse(self.bottom.status, lambda: self._app.invalidate(), lambda: self._painter.painted)
        self._desk = Desk(self._buffer, pastes, self.bottom, self._pulse.hint)
        self._desk.leaving = self.leave
        self.letters = self._desk.letters
        self.refresh, self.refresh_now = self._pulse.refresh, self._pulse.now
        self._stands = asyncio.Event()
        self._app = self._application()

    @property
    def columns(self) -> int:
        return self._wire.get_size().columns

    async def run(self) -> None:
        """Until the person leaves or the terminal is gone; what it was like before is then restored."""
        try:
            with suppress(EOFError):
                await self._app.run_async(self._begin, set_exception_handler=False)
        finally:
            self._pulse.stop()

    async def shown(self) -> None:
        """Return once the prompt stands."""
        await self._stands.wait()

    async def close(self) -> None:
        """Say the last word, and wait until what was written has left, if someone takes it."""
        if self.parting:
            self._outlet.write(f"{styled(self.parting, self.bottom.look.faint)}\r\n")
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._outlet.drained()
        self._outlet.close()

    def append(self, rows: list[str]) -> None:
        """Rows for the scrollback."""
        self.bottom.append(rows)
        self.refresh()

    def remark(self, text: str, *, bad: bool = False) -> None:
        """A word of the house."""
        style = self.bottom.look.bad if bad else self.bottom.look.faint
        lines = harmless(text).split("\n")
        self.append([row for line in lines for row in wrapped(line, self.columns, style)])

    def write(self, sequence: str) -> None:
        """An escape sequence that shows nothing."""
        self._wire.write_raw(sequence)
        self._wire.flush()

    def leave(self) -> None:
        """End `run`. An answer of the terminal that is on its way is awaited, lest the shell gets it."""
        if self._keyboard.expecting:
            asyncio.get_running_loop().call_later(0.2, self._exit)
        else:
            self._exit()

    def _exit(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _application(self) -> Application[None]:
        search = SearchBufferControl(Buffer(multiline=False))
        control = BufferControl(self._buffer, search_buffer_control=search)
        app: Application[None] = Application(
            Layout(HSplit([Window(control), Window(search)])),
            key_bindings=make_keys(self._desk, self._buffer),
            include_default_pygments_style=False,
            max_render_postpone_time=None,
            terminal_size_polling_interval=None,
            input=self._keyboard,
            output=self._wire,
        )
        app.renderer = self._painter
        app.ttimeoutlen = ESCAPE

        def searched() -> tuple[str, Document] | None:
            if not app.layout.is_searching:
                return None
            words, state = search.buffer.text, control.search_state
            found = SearchState(words, state.direction, state.ignore_case)
            return words, self._buffer.document_for_search(found)

        self.bottom.search = searched
        app.key_processor.after_key_press += lambda _sender: self.bottom.dialogue.press()
        app.after_render += lambda _sender: self._stands.set()
        return app

    def _begin(self) -> None:
        self._buffer.load_history_if_not_yet_loaded()
        if self.around.asks:
            self._wire.write_raw(QUESTION)
            self._keyboard.asked()

    def _completes(self) -> bool:
        return self.words.asks(self._buffer.document.text_before_cursor)

    def _on_background(self, dark: bool) -> None:
        self.theme = "dark" if dark else "light"
        self.bottom.look = make_look(
            self.theme, ascii_only=self.around.ascii_only, pictures=self.around.pictures
        )
        self.restyled()
        self.refresh()
