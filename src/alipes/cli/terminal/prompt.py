"""The terminal: what is typed, what stands on the screen, and when. It knows no model and no store.

Finished rows go into the scrollback for good; below them stand the tail of what is being said,
the input and the status, and only these are ever painted again.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, SearchBufferControl
from prompt_toolkit.search import SearchState

from alipes.cli.outlet import Outlet
from alipes.cli.render import harmless
from alipes.cli.terminal.completion import Words
from alipes.cli.terminal.desk import Desk
from alipes.cli.terminal.history import KeptHistory
from alipes.cli.terminal.keyboard import QUESTION, Keyboard
from alipes.cli.terminal.keys import make_keys
from alipes.cli.terminal.look import make_look, styled, wrapped
from alipes.cli.terminal.paste import Pastes
from alipes.cli.terminal.pulse import Pulse
from alipes.cli.terminal.scene import Bottom
from alipes.cli.terminal.surroundings import Surroundings
from alipes.cli.terminal.wire import Painter, Wire
from alipes.cli.theme import Name

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
