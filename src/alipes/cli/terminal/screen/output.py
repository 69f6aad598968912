"""Replaces the renderer and the output of prompt_toolkit.

prompt_toolkit reads keys and edits text; the screen content comes from a `FrameSource`.
"""

import os
import time
from typing import Any, NamedTuple, Protocol, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.layout import Layout
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import DummyStyle

from alipes.cli.terminal.input.keyboard import PROTOCOL_OFF, PROTOCOL_ON, KeyboardProtocol
from alipes.console.screen_diff import LiveScreen
from alipes.console.stdio import AsyncWriter

BLOCKED_RETRY_S = 0.05
"""Retry interval while the terminal does not read."""


class Frame(NamedTuple):
    """New rows for the scrollback, the live rows below them, and the cursor in those."""

    final: list[str]
    live: list[str]
    cursor: tuple[int, int]


class FrameSource(Protocol):
    def frame(self, columns: int, lines: int) -> Frame:
        """The current frame; final rows are returned only once."""
        ...

    def resize(self, columns: int) -> None: ...


class TerminalOutput(Vt100_Output):
    """Never blocks the event loop and never queries the cursor position."""

    def __init__(self, stdout: TextIO, outlet: AsyncWriter) -> None:
        super().__init__(stdout, lambda: _size(stdout), enable_cpr=False)
        self.writer = outlet
        self._held: list[str] = []

    def write_raw(self, data: str) -> None:
        self._held.append(data)

    def write(self, data: str) -> None:
        self._held.append(data.replace("\x1b", "?"))

    def flush(self) -> None:
        if self._held:
            text = "".join(self._held)
            self._held.clear()
            self.writer.write(text.encode(self.stdout.encoding, "replace"))

    def show_cursor(self) -> None:
        """The cursor is never hidden."""

    def reset_cursor_shape(self) -> None:
        """The shape is never changed."""


class ScreenRenderer(Renderer):
    """Draws frames in place of the renderer of prompt_toolkit."""

    def __init__(self, output: TerminalOutput, scene: FrameSource, *, reflows: bool) -> None:
        """`reflows`: the terminal wraps rows when it becomes narrower."""
        self._terminal, self._source, self._reflows = output, scene, reflows
        size = output.get_size()
        self._live = LiveScreen(size.columns, size.rows)
        self.painted = 0.0
        self.keyboard_protocol: KeyboardProtocol = ""
        self._protocol_on: KeyboardProtocol = ""
        super().__init__(DummyStyle(), output)

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        super().reset(_scroll, leave_alternate_screen)
        self._use_protocol("")
        self._live.invalidate()

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        if not is_done and self._terminal.writer.is_blocked:
            assert app.loop is not None
            app.loop.call_later(BLOCKED_RETRY_S, app.invalidate)
            return
        self._fit()
        if not self._bracketed_paste_enabled:
            self._terminal.enable_bracketed_paste()
            self._bracketed_paste_enabled = True
        self._use_protocol("" if is_done else self.keyboard_protocol)
        view = self._source.frame(self._live.columns, self._live.lines)
        if is_done:
            view = Frame(view.final, [], (0, 0))
        if change := self._live.paint(*view):
            self._terminal.write_raw(change)
            self.painted = time.monotonic()
        self._terminal.flush()

    def _use_protocol(self, protocol: KeyboardProtocol) -> None:
        """Switch the keyboard protocol of the terminal on, or the one in use off."""
        if protocol != self._protocol_on:
            off, on = PROTOCOL_OFF.get(self._protocol_on, ""), PROTOCOL_ON.get(protocol, "")
            self._terminal.write_raw(off + on)
            self._protocol_on = protocol

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Remove the live rows. Unless this is a resize, another program uses the terminal next."""
        if not self._fit():
            self._terminal.write_raw(self._live.erase())
        self._terminal.flush()
        if leave_alternate_screen:
            self.reset()
            self._terminal.flush()
            self._terminal.writer.flush_now()

    def clear(self) -> None:
        """Clear the screen; its content moves into the scrollback."""
        size = self._terminal.get_size()
        self._terminal.write_raw(self._live.erase() + "\r\n" * size.rows + "\x1b[H")
        self._live.invalidate()

    def request_absolute_cursor_position(self) -> None:
        """Not needed."""

    def _fit(self) -> bool:
        """True if the size of the screen changed; the live rows are then erased."""
        size = self._terminal.get_size()
        if (size.columns, size.rows) == (self._live.columns, self._live.lines):
            return False
        self._terminal.write_raw(self._live.resize(size.columns, size.rows, reflows=self._reflows))
        self._source.resize(size.columns)
        return True


def _size(stdout: TextIO) -> Size:
    try:
        columns, lines = os.get_terminal_size(stdout.fileno())
    except OSError:
        columns, lines = 0, 0
    return Size(rows=lines or 24, columns=columns or 80)


def writes_utf8(stdout: TextIO) -> bool:
    return stdout.encoding.lower().replace("-", "") == "utf8"
