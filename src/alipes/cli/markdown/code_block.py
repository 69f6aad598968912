"""Fenced code blocks, highlighted line by line. Lines are not wrapped, so that they can be copied."""

import re
from copy import copy
from typing import Protocol

from alipes.cli.markdown.wrap import Row
from alipes.cli.theme import Theme

MAX_LINES = 5000
MAX_COLUMNS = 1000
MAX_DRAFT_COLUMNS = 300
MAX_NAME = 30


class LineHighlighter(Protocol):
    """Highlights the lines of one language and keeps its state between lines."""

    def highlight(self, line: str) -> Row | None: ...
    def fork(self) -> "LineHighlighter": ...


def find_highlighter(language: str, styles: dict[str, str]) -> LineHighlighter | None:
    """A highlighter; None if the language is unknown or Pygments is not installed."""
    try:
        from alipes.cli.markdown.highlight import open_highlighter  # noqa: PLC0415
    except ImportError:
        return None
    return open_highlighter(language, styles)


class CodeBlock:
    """A block from its opening to its closing fence."""

    whole_lines, keeps_outdented, source = True, True, ""

    def __init__(self, theme: Theme, mark: str, info: str, indent: int) -> None:
        self._theme, self._indent = theme, indent
        self._closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}\s*$")
        self._mark = mark
        name = info.strip().strip("{}").removeprefix(".")
        self._language = name.split()[0][:MAX_NAME] if name.split() else ""
        coloured = self._language and theme.tokens
        self._highlighter = find_highlighter(self._language, theme.tokens) if coloured else None
        self._lines = 0
        self.closed = self._draft = False

    def open(self) -> list[Row]:
        fence = self._theme.glyphs.fence
        name = f"{'' if fence[0] == '`' else ' '}{self._language}" if self._language else ""
        return [[(f"{fence}{name}", self._theme.faint, "")]]

    def accepts(self, text: str) -> bool:
        return True

    def line(self, text: str) -> list[Row]:
        if self._closing.match(text):
            return self.close()
        if self._draft and text.strip() and self._mark.startswith(text.strip()):
            return []  # probably the start of the closing fence
        indent = len(text) - len(text.lstrip(" "))
        return [self._highlight(text[min(indent, self._indent) :])]

    def close(self) -> list[Row]:
        if self.closed or self._draft:
            return []
        self.closed = True
        return [[(self._theme.glyphs.fence, self._theme.faint, "")]]

    def fork(self) -> "CodeBlock":
        other = copy(self)
        other._highlighter = self._highlighter and self._highlighter.fork()
        other._draft = True
        return other

    def resize(self, width: int) -> list[Row]:
        return []

    def _highlight(self, text: str) -> Row:
        self._lines += 1
        if self._highlighter is None:
            return [(text, "", "")]
        row = None
        if len(text) <= (MAX_DRAFT_COLUMNS if self._draft else MAX_COLUMNS) and self._lines <= MAX_LINES:
            row = self._highlighter.highlight(text)
        if row is None:  # the highlighter has lost its state
            self._highlighter = None
        return row or [(text, "", "")]
