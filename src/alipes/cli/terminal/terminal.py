"""The terminal application: keyboard, prompt and screen.

Finished rows go into the scrollback. The rows below them (the current message, the input and the
status) are repainted.
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
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TextIO

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, SearchBufferControl
from prompt_toolkit.search import SearchState

from alipes.cli.render import sanitize
from alipes.cli.stdio import AsyncWriter
from alipes.cli.terminal.completion import InputCompleter, InputHistory
from alipes.cli.terminal.key_bindings import InputActions, make_key_bindings
from alipes.cli.terminal.layout import BottomArea, PasteStore
from alipes.cli.terminal.output import ScreenRenderer, TerminalOutput
from alipes.cli.terminal.picker import Picker, PickerItem
from alipes.cli.terminal.repaint import RepaintTimer
from alipes.cli.terminal.styles import TerminalFeatures, apply_style, make_style, wrap_text
from alipes.cli.theme import ThemeName

BACKGROUND_QUERY = "\x1b]11;?\x1b\\"
REPLY_TIMEOUT_S = 2.0
"""How long to wait for the rest of a reply of the terminal."""
READ_SIZE = 65_536
_HEX = "([0-9a-fA-F]{1,4})"
_REPLY = re.compile(rf"\x1b\]11;rgba?:{_HEX}/{_HEX}/{_HEX}[^\x07\x1b]*(?:\x07|\x1b\\)")
_PARTIAL_REPLY = re.compile(r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?)?\Z")


class Keyboard(Vt100Input):
    """Reads keys like prompt_toolkit, but removes replies of the terminal from the input."""

    def __init__(self, stdin: TextIO, on_background: Callable[[bool], None]) -> None:
        """`on_background(dark)` is called when the terminal reports its background colour."""
        super().__init__(stdin)
        self._on_background = on_background
        self._query_time = 0.0
        self._held = ""
        self._closed = False
        self._typed_ahead = 0
        """Bytes typed before the start, when the terminal still turned Enter into a line feed."""
        # Invalid bytes are shown as replacement characters: they could not be saved or sent.
        self._decoder = codecs.getincrementaldecoder(stdin.encoding)("replace")

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def awaits_reply(self) -> bool:
        """A reply may still arrive."""
        return bool(self._query_time) and time.monotonic() - self._query_time < REPLY_TIMEOUT_S

    def query_sent(self) -> None:
        self._query_time = time.monotonic()

    def raw_mode(self) -> AbstractContextManager[None]:
        waiting = fcntl.ioctl(self._fileno, termios.FIONREAD, b"\0\0\0\0")
        self._typed_ahead = int.from_bytes(waiting, sys.byteorder)
        return super().raw_mode()

    def read_keys(self) -> list[KeyPress]:
        self.vt100_parser.feed(self._remove_reply(self._read()))
        return self._take_keys()

    def flush_keys(self) -> list[KeyPress]:
        if self._held == "\x1b" or not self.awaits_reply:  # it was a key
            self.vt100_parser.feed(self._held)
            self._held = ""
        self.vt100_parser.flush()
        return self._take_keys()

    def _take_keys(self) -> list[KeyPress]:
        keys, self._buffer = self._buffer, []
        return keys

    def _read(self) -> str:
        """The typed text. End of file or an error closes the keyboard."""
        try:
            if self._closed or not select.select([self._fileno], [], [], 0)[0]:
                return ""
            data = os.read(self._fileno, READ_SIZE)
        except OSError:
            data = b""
        self._closed = not data
        if self._typed_ahead > 0:
            data = data[: self._typed_ahead].replace(b"\n", b"\r") + data[self._typed_ahead :]
            self._typed_ahead -= len(data)
        return self._decoder.decode(data)

    def _remove_reply(self, data: str) -> str:
        if not self._query_time:
            return data
        data, self._held = self._held + data, ""
        if found := _REPLY.search(data):
            self._query_time -= REPLY_TIMEOUT_S
            red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
            self._on_background(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)
            data = data[: found.start()] + data[found.end() :]
        elif self.awaits_reply and (half := _PARTIAL_REPLY.search(data)):
            data, self._held = data[: half.start()], half[0]
        return data


ESCAPE_TIMEOUT_S = 0.1
"""How long to wait for the rest of a key after its first byte; then it was Escape."""


class TerminalApp:
    """The prompt. Input waits in `input_events` until the session reads it."""

    def __init__(self, features: TerminalFeatures, history: Path) -> None:
        self.features = features
        self.theme: ThemeName = features.theme
        self.on_theme_change: Callable[[], None] = lambda: None
        self.exit_note = ""
        pastes = PasteStore()
        self.completer = InputCompleter()
        self._buffer = Buffer(
            completer=self.completer,
            history=InputHistory(history, pastes.expand),
            multiline=True,
            complete_while_typing=Condition(
                lambda: self.completer.opens_menu(self._buffer.document.text_before_cursor)
            ),
        )
        self._writer = AsyncWriter(sys.stdout.fileno())
        self._output = TerminalOutput(sys.stdout, self._writer)
        self._keyboard = Keyboard(sys.stdin, self._on_background)
        self.bottom = BottomArea(
            self._buffer, pastes, make_style(self.theme, ascii_only=features.ascii_only, images=features.images)
        )
        self._renderer = ScreenRenderer(self._output, self.bottom, reflows=features.reflows)
        self._repaint = RepaintTimer(self.bottom.status, lambda: self._app.invalidate(), lambda: self._renderer.painted)
        self._actions = InputActions(self._buffer, pastes, self.bottom, self._repaint.hint)
        self._actions.on_quit = self.quit
        self._actions.pictures = history.with_name("pictures")
        self.input_events = self._actions.input_events
        self.refresh, self.refresh_now = self._repaint.refresh, self._repaint.paint_now
        self.drawn = asyncio.Event()
        """Set once the prompt is visible."""
        self._app = self._application()

    @property
    def columns(self) -> int:
        return self._output.get_size().columns

    async def run(self) -> None:
        """Run until the user quits or the terminal is closed, then restore the terminal."""
        try:
            with suppress(EOFError):
                await self._app.run_async(self._on_start, set_exception_handler=False)
        finally:
            self._repaint.stop()

    async def close(self) -> None:
        """Print the exit note and wait until everything is written, at most one second."""
        if self.exit_note:
            self._writer.write(f"{apply_style(self.exit_note, self.bottom.style.faint)}\r\n")
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.drain()
        self._writer.close()

    def append(self, rows: list[str]) -> None:
        """Rows for the scrollback."""
        self.bottom.append(rows)
        self.refresh()

    def print_note(self, text: str, *, bad: bool = False) -> None:
        """Print a note of alipes itself."""
        style = self.bottom.style.bad if bad else self.bottom.style.faint
        lines = sanitize(text).split("\n")
        self.append([row for line in lines for row in wrap_text(line, self.columns, style)])

    async def pick(self, picker: Picker) -> PickerItem | None:
        """Let the user choose from a list; None if it was left or another list is open."""
        if self.bottom.picker is not None:
            return None
        self._buffer.cancel_completion()
        self.bottom.picker = picker
        try:
            return await picker.run(self.refresh_now)
        finally:
            self.bottom.picker = None
            self.refresh_now()

    def write(self, sequence: str) -> None:
        """Write an invisible escape sequence."""
        self._output.write_raw(sequence)
        self._output.flush()

    async def run_in_foreground(self, work: Callable[[], Awaitable[int]]) -> int:
        """Give the terminal to another program while `work` runs, then draw the screen again."""
        with set_app(self._app):
            async with in_terminal():
                return await work()

    def put_text(self, text: str) -> None:
        """Put the text into the input, before what was typed meanwhile."""
        typed = self._buffer.text
        self._buffer.document = Document(f"{text}\n{typed}" if typed else text, len(text))
        self.refresh_now()

    def quit(self) -> None:
        """End `run`, after a moment if a reply is pending, so that the shell does not receive it."""
        if self._keyboard.awaits_reply:
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
            key_bindings=make_key_bindings(self._actions, self._buffer),
            include_default_pygments_style=False,
            max_render_postpone_time=None,
            terminal_size_polling_interval=None,
            input=self._keyboard,
            output=self._output,
        )
        app.renderer = self._renderer
        app.ttimeoutlen = ESCAPE_TIMEOUT_S

        def searched() -> tuple[str, Document] | None:
            if not app.layout.is_searching:
                return None
            words, state = search.buffer.text, control.search_state
            found = SearchState(words, state.direction, state.ignore_case)
            return words, self._buffer.document_for_search(found)

        self.bottom.search = searched
        app.key_processor.after_key_press += lambda _sender: self.bottom.approvals.key_pressed()
        app.after_render += lambda _sender: self.drawn.set()
        return app

    def _on_start(self) -> None:
        self._buffer.load_history_if_not_yet_loaded()
        if self.features.query_background:
            self._output.write_raw(BACKGROUND_QUERY)
            self._keyboard.query_sent()

    def _on_background(self, dark: bool) -> None:
        self.theme = "dark" if dark else "light"
        self.bottom.style = make_style(self.theme, ascii_only=self.features.ascii_only, images=self.features.images)
        self.on_theme_change()
        self.refresh()
