"""Fenced code, line by line, coloured where that is cheap. Its lines are not wrapped: people copy them."""

import re
from copy import copy
from typing import Protocol

from alipes.cli.markdown.wrap import Row
from alipes.cli.theme import Theme

COLOURED_LINES = 5000
COLOURED_COLUMNS = 1000
DRAFTED_COLUMNS = 300
LONGEST_NAME = 30


class Colours(Protocol):
    """A reader of one language that remembers between lines where it is."""

    def read(self, line: str) -> Row | None: ...
    def fork(self) -> "Colours": ...


def find_colours(language: str, styles: dict[str, str]) -> Colours | None:
    """A reader for the language; None where it is unknown or Pygments is not there."""
    try:
        from alipes.cli.markdown.highlight import open_lexing  # noqa: PLC0415
    except ImportError:
        return None
    return open_lexing(language, styles)


class Fence:
    """From its opening line to its closing one, whatever stands between."""

    whole_lines, patient, source = True, True, ""

    def __init__(self, theme: Theme, mark: str, info: str, indent: int) -> None:
        self._theme, self._indent = theme, indent
        self._closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}\s*$")
        self._mark = mark
        name = info.strip().strip("{}").removeprefix(".")
        self._language = name.split()[0][:LONGEST_NAME] if name.split() else ""
        coloured = self._language and theme.tokens
        self._colours = find_colours(self._language, theme.tokens) if coloured else None
        self._lines = 0
        self.over = self._draft = False

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
            return []  # most likely the beginning of the closing line
        indent = len(text) - len(text.lstrip(" "))
        return [self._coloured(text[min(indent, self._indent) :])]

    def close(self) -> list[Row]:
        if self.over or self._draft:
            return []
        self.over = True
        return [[(self._theme.glyphs.fence, self._theme.faint, "")]]

    def fork(self) -> "Fence":
        other = copy(self)
        other._colours = self._colours and self._colours.fork()
        other._draft = True
        return other

    def resize(self, width: int) -> list[Row]:
        return []

    def _coloured(self, text: str) -> Row:
        self._lines += 1
        if self._colours is None:
            return [(text, "", "")]
        row = None
        if (
            len(text) <= (DRAFTED_COLUMNS if self._draft else COLOURED_COLUMNS)
            and self._lines <= COLOURED_LINES
        ):
            row = self._colours.read(text)
        if row is None:  # from here on the reader would not know where it is
            self._colours = None
        return row or [(text, "", "")]
