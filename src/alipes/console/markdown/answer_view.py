"""Shows a streamed answer as rendered Markdown on a terminal, below the shell's prompt."""

import os
import sys
from collections.abc import Callable

from alipes.config.environment import Variables
from alipes.config.settings import Settings
from alipes.console.markdown.stream import MarkdownStream
from alipes.console.screen_diff import ERASE_BELOW, pin_row
from alipes.console.styles import detect_features
from alipes.console.theme import Theme, make_theme


class AnswerView:
    """Final rows stay; the rows that may still change are erased and drawn again with each piece of text."""

    def __init__(self, write: Callable[[str], None], theme: Theme, size: Callable[[], os.terminal_size]) -> None:
        self._write, self._theme, self._size = write, theme, size
        self._stream: MarkdownStream | None = None
        self._columns = 0
        self._drawn = 0
        """Rows below the final ones; the cursor is at the end of the last."""

    def write(self, text: str) -> None:
        size = self._size()
        if self._stream is None:
            self._stream = MarkdownStream(self._theme, size.columns)
        elif size.columns != self._columns:
            self._stream.resize(size.columns)
        self._columns = size.columns
        final = self._stream.feed(text)
        tail = self._stream.tail()[-max(1, size.lines - 1) :]
        self._draw(final, tail)

    def finish(self) -> None:
        """The message is complete; the cursor is on a new line afterwards."""
        rows = self._stream.finish() if self._stream is not None else []
        while rows and not rows[-1]:
            rows.pop()
        self._draw(rows, [])
        self._stream = None

    def _draw(self, final: list[str], tail: list[str]) -> None:
        up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
        erase = f"\r{up}{ERASE_BELOW}" if self._drawn else ""
        self._write(erase + "".join(f"{row}\n" for row in final) + "\n".join(map(pin_row, tail)))
        self._drawn = len(tail)


def make_answer_theme(variables: Variables, settings: Settings) -> Theme:
    """The theme for an answer. An unknown background is not asked for: the colours for a light one suit both."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    features = detect_features(variables, settings.terminal.theme, utf8=utf8)
    return make_theme("light" if features.query_background else features.theme, ascii_only=features.ascii_only)
