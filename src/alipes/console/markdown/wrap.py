"""Wraps styled text into rows, and converts rows to ANSI text."""

import re
from collections.abc import Iterable
from copy import copy
from typing import TypeAlias

from alipes.console.width import can_break, display_width, split_at_width, split_units

Span: TypeAlias = tuple[str, str, str]
"""Text, its style, and its link."""
Row: TypeAlias = list[Span]

MAX_ADDRESS = 2000
MAX_WORD = 4000
"""In characters: limits words of combining marks, which have hardly any width."""
_RUNS = re.compile(r"\n|[ \t\r\f\v]+|[^ \t\r\f\v\n]+")


def to_ansi(row: Iterable[Span], *, links: bool) -> str:
    """The row as ANSI text, with hyperlinks if `links`."""
    out: list[str] = []
    text, style, link = "", "", ""
    for next_text, next_style, next_link in row:
        if (next_style, next_link) == (style, link):
            text += next_text
            continue
        out.append(_span_to_ansi(text, style, link if links else ""))
        text, style, link = next_text, next_style, next_link
    out.append(_span_to_ansi(text, style, link if links else ""))
    return "".join(out)


def row_width(row: Iterable[Span]) -> int:
    return sum(display_width(text) for text, _, _ in row)


def split_row(row: Row, columns: int) -> list[Row]:
    """The row split every `columns`, as a terminal would wrap it."""
    out: list[Row] = [[]]
    left = columns
    for text, style, link in row:
        while text:
            head, rest = split_at_width(text, left) if left else ("", text)
            taken = display_width(head)
            if taken > left or not head:
                out.append([])
                left = columns
                head, rest = split_at_width(text, left)
                taken = display_width(head)
            out[-1].append((head, style, link))
            text, left = rest, max(0, left - taken)
    return out


def strip_row(row: Row) -> Row:
    """The row without trailing spaces."""
    while row and not row[-1][0].strip():
        row = row[:-1]
    if row:
        text, style, link = row[-1]
        row = [*row[:-1], (text.rstrip(), style, link)]
    return row


class LineWrapper:
    """Fills rows of `width` columns word by word. Finished rows are in `rows` until they are taken."""

    __slots__ = ("_line", "_space", "_used", "_word", "_word_chars", "_word_width", "rows", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: list[Row] = []
        self._line: Row = []
        self._used = 0
        self._space: Span | None = None
        self._word: Row = []
        self._word_width = self._word_chars = 0

    def add(self, text: str, style: str = "", link: str = "") -> None:
        """Append text; one word may have several styles."""
        for run in _RUNS.findall(text):
            if run == "\n":
                self.newline()
            elif run[0] in " \t\r\f\v":
                self._finish_word()
                self._space = (" " * len(run), style, link)
            elif run.isascii() and not self._word:
                self._grow(run, style, link)
            else:
                for unit in split_units(run):
                    if self._word and can_break(self._word[-1][0][-1], unit[0]):
                        self._finish_word()
                    self._grow(unit, style, link)

    def newline(self) -> None:
        self._finish_word()
        self._emit()

    def close(self) -> None:
        self._finish_word()
        if self._line:
            self._emit()

    def take(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    def fork(self) -> "LineWrapper":
        other = copy(self)
        other.rows, other._line, other._word = [], self._line[:], self._word[:]
        return other

    def resize(self, width: int) -> None:
        """Change the width and wrap the unfinished row again."""
        line, word, space = self._line, self._word, self._space
        self._line, self._used, self._space = [], 0, None
        self._word, self._word_width, self._word_chars = [], 0, 0
        self.width = width
        for part in line:
            self.add(*part)
        if line and (space or word):
            self._finish_word()
        self._space = space
        for part in word:
            self.add(*part)

    def _grow(self, text: str, style: str, link: str) -> None:
        self._word.append((text, style, link))
        self._word_width += display_width(text)
        self._word_chars += len(text)
        if self._word_width > self.width:
            self._overflow()
        elif self._word_chars > MAX_WORD:
            self.newline()

    def _overflow(self) -> None:
        """Split a word that is wider than a row, unless it is a URL, which must stay clickable."""
        if self._word_width <= MAX_ADDRESS and any("://" in text for text, _, _ in self._word):
            return
        if self._line:
            self._emit()
        *full, rest = split_row(self._word, self.width)
        self.rows += full
        self._word, self._word_width, self._space = rest, row_width(rest), None
        self._word_chars = sum(len(text) for text, _, _ in rest)

    def _finish_word(self) -> None:
        if not self._word:
            return
        if self._line:
            between = len(self._space[0]) if self._space else 0
            if self._used + between + self._word_width > self.width:
                self._emit()
            elif self._space:
                self._line.append(self._space)
                self._used += between
        self._line += self._word
        self._used += self._word_width
        self._word, self._word_width, self._word_chars, self._space = [], 0, 0, None

    def _emit(self) -> None:
        self.rows.append(self._line)
        self._line, self._used, self._space = [], 0, None


def wrap_row(row: Row, columns: int) -> list[Row]:
    """The rows of a complete text, at least one."""
    flow = LineWrapper(columns)
    for span in row:
        flow.add(*span)
    flow.close()
    return flow.take() or [[]]


def _span_to_ansi(text: str, style: str, link: str) -> str:
    if style and text:
        text = f"\x1b[{style}m{text}\x1b[0m"
    return f"\x1b]8;;{link}\x1b\\{text}\x1b]8;;\x1b\\" if link and text else text
