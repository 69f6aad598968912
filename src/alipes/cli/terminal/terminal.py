"""The terminal application: keyboard, prompt and screen.

Finished rows go into the scrollback. The rows below them (the current message, the input and the
status) are repainted.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.vt100 import raw_mode
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, SearchBufferControl
from prompt_toolkit.search import SearchState

from alipes.cli.terminal.input.completion import InputCompleter, InputHistory
from alipes.cli.terminal.input.key_bindings import InputActions, make_key_bindings
from alipes.cli.terminal.input.keyboard import BACKGROUND_QUERY, KEYBOARD_QUERY, Keyboard, KeyboardProtocol
from alipes.cli.terminal.pickers.picker import Picker, PickerItem, bind_picker
from alipes.cli.terminal.screen.layout import BottomArea, PasteStore
from alipes.cli.terminal.screen.output import ScreenRenderer, TerminalOutput
from alipes.cli.terminal.screen.repaint import RepaintTimer
from alipes.config.keys import KeysConfig, format_key
from alipes.console.render import sanitize
from alipes.console.stdio import AsyncWriter
from alipes.console.styles import TerminalFeatures, TerminalStyle, apply_style, make_style, wrap_text
from alipes.console.theme import ThemeName

ESCAPE_TIMEOUT_S = 0.1
"""How long to wait for the rest of a key after its first byte; then it was Escape."""


class TerminalApp:
    """The prompt. Input waits in `input_events` until the session reads it."""

    def __init__(
        self, features: TerminalFeatures, history: Path, *, keys: KeysConfig | None = None, vim: bool = False
    ) -> None:
        """`vim`: edit the input as in Vim."""
        self.features = features
        keys = keys or KeysConfig()
        self._expand_key = format_key(keys.expand[0]) if keys.expand else "/keys"
        self.theme: ThemeName = features.theme
        self.on_theme_change: Callable[[], None] = lambda: None
        self.exit_note = ""
        pastes = PasteStore()
        self.completer = InputCompleter()
        self._buffer = Buffer(
            completer=self.completer,
            history=InputHistory(history, pastes.expand),
            multiline=True,
            tempfile_suffix=".md",
            complete_while_typing=Condition(
                lambda: self.completer.opens_menu(self._buffer.document.text_before_cursor)
            ),
        )
        self._writer = AsyncWriter(sys.stdout.fileno())
        self._output = TerminalOutput(sys.stdout, self._writer)
        self._keyboard = Keyboard(sys.stdin, self._on_background, self._on_protocol)
        self.bottom = BottomArea(self._buffer, pastes, _make_style(self.theme, features, self._expand_key))
        self._renderer = ScreenRenderer(self._output, self.bottom, reflows=features.reflows)
        self._repaint = RepaintTimer(self.bottom.status, lambda: self._app.invalidate(), lambda: self._renderer.painted)
        self._actions = InputActions(self._buffer, pastes, self.bottom, self._repaint.hint)
        self._actions.on_quit, self._actions.on_suspend = self.quit, self.suspend
        self._actions.pictures.folder = history.with_name("pictures")
        self.input_events = self._actions.input_events
        self.refresh, self.refresh_now = self._repaint.refresh, self._repaint.paint_now
        self._actions.answers.on_answer = self.refresh_now
        self.drawn = asyncio.Event()
        """Set once the prompt is visible."""
        self._app = self._application(keys, EditingMode.VI if vim else EditingMode.EMACS)
        self._resumes = False
        """A continue signal belongs to our own suspension."""

    @property
    def columns(self) -> int:
        return self._output.get_size().columns

    async def run(self) -> None:
        """Run until the user quits or the terminal is closed, then restore the terminal."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCONT, self._on_continue)
        try:
            with suppress(EOFError):
                await self._app.run_async(self._on_start, set_exception_handler=False)
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            self._repaint.stop()

    async def close(self) -> None:
        """Print the exit note and wait until everything is written, at most one second."""
        if self.exit_note:
            self._writer.write(f"\r\n{apply_style(self.exit_note, self.bottom.style.faint)}\r\n")
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

    def use_features(self, features: TerminalFeatures) -> None:
        """Draw with another theme; if it depends on the terminal, ask for its background."""
        self.features = features
        self._use_theme(features.theme)
        if features.query_background:
            self._output.write_raw(BACKGROUND_QUERY)
            self._output.flush()
            self._keyboard.query_sent()

    def write(self, sequence: str) -> None:
        """Write an invisible escape sequence."""
        self._output.write_raw(sequence)
        self._output.flush()

    def put_text(self, text: str) -> None:
        """Put a text into the input for editing."""
        self._actions.put_text(text)
        self.refresh_now()

    def hint(self, text: str, seconds: float = 3.0) -> None:
        """Show a text in the status line for some seconds."""
        self._repaint.hint(text, seconds)

    async def run_in_foreground(self, work: Callable[[], Awaitable[int]]) -> int:
        """Give the terminal to another program while `work` runs, then draw the screen again."""
        with set_app(self._app):
            self._app._redraw()  # rows that were just appended are shown above the other program
            async with in_terminal():
                return await work()

    def suspend(self) -> None:
        """Stop the process as Ctrl-Z does, with the terminal restored, until the shell continues it."""
        if os.getsid(0) == os.getpid():
            self.hint("There is no shell to return to")
            return
        self._resumes = True
        with set_app(self._app):
            self._app.suspend_to_background()
        asyncio.get_running_loop().call_later(1.0, self._end_suspension)

    def _end_suspension(self) -> None:
        self._resumes = False

    def _on_continue(self) -> None:
        """After a stop by another process, the shell may have changed the mode of the terminal."""
        if self._resumes or self.in_foreground or not self._app.is_running:
            return
        raw_mode(self._keyboard.fileno()).__enter__()
        self._renderer.reset()
        self._app.invalidate()

    @property
    def in_foreground(self) -> bool:
        """Another program uses the terminal."""
        return self._app._running_in_terminal

    def quit(self) -> None:
        """End `run`, after a moment if a reply is pending, so that the shell does not receive it."""
        if self._keyboard.awaits_reply:
            asyncio.get_running_loop().call_later(0.2, self._exit)
        else:
            self._exit()

    def _exit(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _application(self, keys: KeysConfig, editing: EditingMode) -> Application[None]:
        search = SearchBufferControl(Buffer(multiline=False))
        control = BufferControl(self._buffer, search_buffer_control=search)
        bindings = make_key_bindings(self._actions, self._buffer, keys)
        self.bottom.status.stop_key = format_key(keys.stop[0]).lower() if keys.stop else ""
        self.bottom.stash_key = format_key(keys.stash[0]) if keys.stash else ""
        bind_picker(bindings, lambda: self.bottom.picker)
        app: Application[None] = Application(
            Layout(HSplit([Window(control), Window(search)])),
            key_bindings=bindings,
            editing_mode=editing,
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
        self.bottom.vi_mark = lambda: _vi_mark(app)
        app.key_processor.before_key_press += lambda _sender: self._actions.key_pressed()
        app.key_processor.after_key_press += lambda _sender: self.bottom.approvals.key_pressed()
        app.after_render += lambda _sender: self.drawn.set()
        return app

    def _on_start(self) -> None:
        self._buffer.load_history_if_not_yet_loaded()
        background = BACKGROUND_QUERY if self.features.query_background else ""
        if query := background + (KEYBOARD_QUERY if self.features.query_keyboard else ""):
            self._output.write_raw(query)
            self._keyboard.query_sent()

    def _on_protocol(self, protocol: KeyboardProtocol) -> None:
        self._renderer.keyboard_protocol = protocol
        self._app.invalidate()

    def _on_background(self, dark: bool) -> None:
        if self.features.query_background:  # otherwise a theme was chosen meanwhile
            self._use_theme("dark" if dark else "light")

    def _use_theme(self, theme: ThemeName) -> None:
        self.theme = theme
        self.bottom.style = _make_style(self.theme, self.features, self._expand_key)
        self.on_theme_change()
        self.refresh()


def _make_style(theme: ThemeName, features: TerminalFeatures, expand_key: str) -> TerminalStyle:
    return make_style(
        theme, ascii_only=features.ascii_only, images=features.images, expand_key=expand_key, colours=features.colours
    )


_VI_MARKS = {InputMode.NAVIGATION: "N", InputMode.REPLACE: "R", InputMode.REPLACE_SINGLE: "R"}


def _vi_mark(app: Application[None]) -> str:
    """A letter for the mode of the Vim keys; empty in the insert mode and without Vim keys."""
    if app.editing_mode != EditingMode.VI:
        return ""
    if app.current_buffer.selection_state:
        return "V"
    return _VI_MARKS.get(app.vi_state.input_mode, "")
