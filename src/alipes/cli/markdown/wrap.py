"""Styled words flow into rows of a given width, and rows become text with escapes. It reads no Markdown."""

import re
from collections.abc import Iterable
from copy import copy
from typing import TypeAlias

from alipes.cli.width import breakable, cut, units, width

Span: TypeAlias = tuple[str, str, str]
"""Text, its style, and the address it links to."""
Row: TypeAlias = list[Span]

LONGEST_ADDRESS = 2000
LONGEST_WORD = 4000
"""In characters: one that hardly has a width, as of marks upon marks, is not kept waiting forever."""
_RUNS = re.compile(r"\n|[ \t\r\f\v]+|[^ \t\r\f\v\n]+")


def paint(row: Iterable[Span], *, links: bool) -> str:
    """The row as a terminal takes it; hyperlinks only where `links` allows them."""
    out: list[str] = []
    text, style, link = "", "", ""
    for next_text, next_style, next_link in row:
        if (next_style, next_link) == (style, link):
            text += next_text
            continue
        out.append(_painted(text, style, link if links else ""))
        text, style, link = next_text, next_style, next_link
    out.append(_painted(text, style, link if links else ""))
    return "".join(out)


def row_width(row: Iterable[Span]) -> int:
    return sum(width(text) for text, _, _ in row)


def slices(row: Row, columns: int) -> list[Row]:
    """The row cut into pieces of at most `columns`, as a terminal itself would wrap it."""
    out: list[Row] = [[]]
    left = columns
    for text, style, link in row:
        while text:
            head, rest = cut(text, left) if left else ("", text)
            taken = width(head)
            if taken > left or not head:
                out.append([])
                left = columns
                head, rest = cut(text, left)
                taken = width(head)
            out[-1].append((head, style, link))
            text, left = rest, max(0, left - taken)
    return out


def trimmed(row: Row) -> Row:
    """The row without blanks at its end."""
    while row and not row[-1][0].strip():
        row = row[:-1]
    if row:
        text, style, link = row[-1]
        row = [*row[:-1], (text.rstrip(), style, link)]
    return row


class Flow:
    """Fills rows of `width` columns, word by word. Finished rows wait in `rows` until they are taken."""

    __slots__ = ("_line", "_size", "_space", "_used", "_wide", "_word", "rows", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: list[Row] = []
        self._line: Row = []
        self._used = 0
        self._space: Span | None = None
        self._word: Row = []
        self._wide = self._size = 0

    def add(self, text: str, style: str = "", link: str = "") -> None:
        """Text that goes on where the last one ended; a word may come in several styles."""
        for run in _RUNS.findall(text):
            if run == "\n":
                self.newline()
            elif run[0] in " \t\r\f\v":
                self._settle()
                self._space = (" " * len(run), style, link)
            elif run.isascii() and not self._word:
                self._grow(run, style, link)
            else:
                for unit in units(run):
                    if self._word and breakable(self._word[-1][0][-1], unit[0]):
                        self._settle()
                    self._grow(unit, style, link)

    def newline(self) -> None:
        self._settle()
        self._emit()

    def close(self) -> None:
        """The last word is whole, and so is the last row."""
        self._settle()
        if self._line:
            self._emit()

    def take(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    def fork(self) -> "Flow":
        other = copy(self)
        other.rows, other._line, other._word = [], self._line[:], self._word[:]
        return other

    def resize(self, width: int) -> None:
        """What is not in a finished row yet flows again."""
        line, word, space = self._line, self._word, self._space
        self._line, self._used, self._space = [], 0, None
        self._word, self._wide, self._size = [], 0, 0
        self.width = width
        for part in line:
            self.add(*part)
        if line and (space or word):
            self._settle()
        self._space = space
        for part in word:
            self.add(*part)

    def _grow(self, text: str, style: str, link: str) -> None:
        self._word.append((text, style, link))
        self._wide += width(text)
        self._size += len(text)
        if self._wide > self.width:
            self._overflow()
        elif self._size > LONGEST_WORD:
            self.newline()

    def _overflow(self) -> None:
        """The word is wider than a whole row. An address stays in one piece, so it can be clicked."""
        if self._wide <= LONGEST_ADDRESS and any("://" in text for text, _, _ in self._word):
            return
        if self._line:
            self._emit()
        *full, rest = slices(self._word, self.width)
        self.rows += full
        self._word, self._wide, self._space = rest, row_width(rest), None
        self._size = sum(len(text) for text, _, _ in rest)

    def _settle(self) -> None:
        if not self._word:
            return
        if self._line:
            between = len(self._space[0]) if self._space else 0
            if self._used + between + self._wide > self.width:
                self._emit()
            elif self._space:
                self._line.append(self._space)
                self._used += between
        self._line += self._word
        self._used += self._wide
        self._word, self._wide, self._size, self._space = [], 0, 0, None

    def _emit(self) -> None:
        self.rows.append(self._line)
        self._line, self._used, self._space = [], 0, None


def _painted(text: str, style: str, link: str) -> str:
    if style and text:
        text = f"\x1b[{style}m{text}\x1b[0m"
    return f"\x1b]8;;{link}\x1b\\{text}\x1b]8;;\x1b\\" if link and text else text
