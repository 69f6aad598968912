"""Between prompt_toolkit and the terminal: its renderer replaced by our canvas, its output by our outlet.

prompt_toolkit reads keys and edits text; what stands on the screen is decided by the scene and
written by the canvas alone.
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

from alipes.cli.stdio import Outlet
from alipes.cli.terminal.screen_diff import Canvas

STUCK = 0.05
"""Seconds until we look again whether a terminal that does not read has begun to."""


class View(NamedTuple):
    """What is to be seen: rows for the scrollback, rows below them, and the cursor in those."""

    final: list[str]
    live: list[str]
    cursor: tuple[int, int]


class Scene(Protocol):
    def view(self, columns: int, lines: int) -> View:
        """Now; rows given as final are given once."""
        ...

    def resize(self, columns: int) -> None: ...


class Wire(Vt100_Output):
    """Never blocks the loop, and never asks the terminal where its cursor is."""

    def __init__(self, stdout: TextIO, outlet: Outlet) -> None:
        super().__init__(stdout, lambda: _size(stdout), enable_cpr=False)
        self.outlet = outlet
        self._held: list[str] = []

    def write_raw(self, data: str) -> None:
        self._held.append(data)

    def write(self, data: str) -> None:
        self._held.append(data.replace("\x1b", "?"))

    def flush(self) -> None:
        if self._held:
            text = "".join(self._held)
            self._held.clear()
            self.outlet.write(text.encode(self.stdout.encoding, "replace"))

    def show_cursor(self) -> None:
        """It is never hidden."""

    def reset_cursor_shape(self) -> None:
        """It is never changed."""


class Painter(Renderer):
    """Stands where prompt_toolkit's renderer would."""

    def __init__(self, output: Wire, scene: Scene, *, reflows: bool) -> None:
        """`reflows`: the terminal breaks rows anew when it gets narrower."""
        self._wire, self._scene, self._reflows = output, scene, reflows
        size = output.get_size()
        self._canvas = Canvas(size.columns, size.rows)
        self.painted = 0.0
        """When something was last put on the screen."""
        super().__init__(DummyStyle(), output)

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        super().reset(_scroll, leave_alternate_screen)
        self._canvas.forget()

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        if not is_done and self._wire.outlet.busy:
            assert app.loop is not None
            app.loop.call_later(STUCK, app.invalidate)
            return
        self._fit()
        if not self._bracketed_paste_enabled:
            self._wire.enable_bracketed_paste()
            self._bracketed_paste_enabled = True
        view = self._scene.view(self._canvas.columns, self._canvas.lines)
        if is_done:
            view = View(view.final, [], (0, 0))
        if change := self._canvas.paint(*view):
            self._wire.write_raw(change)
            self.painted = time.monotonic()
        self._wire.flush()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Take the live rows away. Unless it is for a resize, someone else has the terminal next."""
        if not self._fit():
            self._wire.write_raw(self._canvas.erase())
        self._wire.flush()
        if leave_alternate_screen:
            self.reset()
            self._wire.outlet.push()

    def clear(self) -> None:
        """An empty screen, of which nothing is lost: what stood there is in the scrollback."""
        size = self._wire.get_size()
        self._wire.write_raw(self._canvas.erase() + "\r\n" * size.rows + "\x1b[H")
        self._canvas.forget()

    def request_absolute_cursor_position(self) -> None:
        """Nobody needs to know."""

    def _fit(self) -> bool:
        """Whether the screen has another size than before; what was live is then gone from it."""
        size = self._wire.get_size()
        if (size.columns, size.rows) == (self._canvas.columns, self._canvas.lines):
            return False
        self._wire.write_raw(self._canvas.resize(size.columns, size.rows, reflows=self._reflows))
        self._scene.resize(size.columns)
        return True


def _size(stdout: TextIO) -> Size:
    try:
        columns, lines = os.get_terminal_size(stdout.fileno())
    except OSError:
        columns, lines = 0, 0
    return Size(rows=lines or 24, columns=columns or 80)


def writes_utf8(stdout: TextIO) -> bool:
    return stdout.encoding.lower().replace("-", "") == "utf8"


__all__ = ["Painter", "Scene", "View", "Wire", "writes_utf8"]
