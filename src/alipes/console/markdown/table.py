"""Markdown tables with column widths that fit their content and the screen."""

import re
from bisect import bisect_right
from typing import Self, TypeAlias

from alipes.console.markdown.inline import parse_inline
from alipes.console.markdown.line_parser import LeafBlock, split_cells
from alipes.console.markdown.wrap import Row, row_width, strip_row, wrap_row
from alipes.console.theme import Theme
from alipes.console.width import display_width, split_units

MEASURED_ROWS = 24
"""Rows that determine the widths; longer tables keep the widths of these."""
MIN_COLUMN = 4
DRAFT_ROWS = 8
_OTHER = re.compile(r" {0,3}(?:[-+*] |\d{1,9}[.)] |>|#{1,6} |```|~~~)|    ")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_WORDS = re.compile(r"\S+")

Cells: TypeAlias = list[Row]


class MarkdownTable(LeafBlock):
    """Rows become final once the widths are known: at the end, or after `MEASURED_ROWS`."""

    def __init__(self, theme: Theme, columns: int, head: str, delimiters: str) -> None:
        self._theme, self._columns = theme, columns
        self._aligns = [(cell[:1] == ":", cell[-1:] == ":") for cell in split_cells(delimiters)]
        count = len(self._aligns)
        self._full_widths, self._min_widths = [1] * count, [1] * count
        self._head = self._read(head, theme.bold)
        self._rows: list[Cells] = []
        self._widths: list[int] | None = None
        self._spaced = False
        self._cache: dict[int, tuple[Cells, list[int], list[Row]]] = {}
        """Drawn rows by index, because drafts draw the same rows repeatedly."""
        self._draft = False

    def accepts(self, text: str) -> bool:
        return "|" in text and not _OTHER.match(text)

    def line(self, text: str) -> list[Row]:
        row = self._read(text)
        if self._widths is not None:
            return ([self._gap()] if self._spaced else []) + self._draw(row, self._widths)
        self._rows.append(row)
        return self._fix_widths() if len(self._rows) > MEASURED_ROWS and not self._draft else []

    def close(self) -> list[Row]:
        return self._fix_widths() if self._widths is None else []

    def fork(self) -> Self:
        other = super().fork()
        other._rows, other._full_widths, other._min_widths = self._rows[:], self._full_widths[:], self._min_widths[:]
        other._draft = True
        return other

    def resize(self, width: int) -> list[Row]:
        self._columns = width
        if self._widths is not None:
            self._widths = self._fit()
        return []

    def _read(self, line: str, style: str = "") -> Cells:
        """The cells of a line, one per column; updates the widths."""
        given, count = split_cells(line), len(self._full_widths)
        texts = given[: count - 1] + [" | ".join(given[count - 1 :])] + [""] * (count - len(given) - 1)
        row = [parse_inline(_BREAK.sub("\n", text) if "<" in text else text, self._theme, style) for text in texts]
        for place, cell in enumerate(row):
            text = "".join(text for text, _, _ in cell)
            self._full_widths[place] = max(self._full_widths[place], *map(display_width, text.split("\n")))
            longest = max(
                (display_width(unit) for word in _WORDS.findall(text) for unit in split_units(word)), default=1
            )
            self._min_widths[place] = max(self._min_widths[place], longest)
        return row

    def _fit(self) -> list[int]:
        """The column widths; empty if there is no space for a table."""
        count = len(self._full_widths)
        room = self._columns - 3 * (count - 1)
        if sum(self._full_widths) <= room:
            return self._full_widths[:]
        if room < MIN_COLUMN * count:
            return []
        floors = self._min_widths
        if sum(floors) > room:
            floors = [min(floor, room // count) for floor in floors]

        def widths(level: int) -> list[int]:
            return [max(floor, min(full, level)) for floor, full in zip(floors, self._full_widths, strict=True)]

        # the largest width that all columns can have
        return widths(bisect_right(range(room + 1), room, 1, key=lambda level: sum(widths(level))) - 1)

    def _fix_widths(self) -> list[Row]:
        widths, rows = self._fit(), self._rows
        self._widths, self._rows = widths, []
        skipped = max(0, len(rows) - DRAFT_ROWS) if self._draft else 0
        drawn = [self._cached(place, row, widths) for place, row in enumerate(rows) if place >= skipped]
        self._spaced = not widths or any(len(lines) > 1 for lines in drawn)
        out: list[Row] = []
        if not skipped and widths:
            out += [*self._draw(self._head, widths), self._rule()]
        for place, lines in enumerate(drawn):
            out += ([self._gap()] if place and self._spaced else []) + lines
        return out

    def _cached(self, place: int, row: Cells, widths: list[int]) -> list[Row]:
        known = self._cache.get(place)
        if known is None or known[0] is not row or known[1] != widths:
            known = self._cache[place] = (row, widths, self._draw(row, widths))
        return known[2]

    def _draw(self, row: Cells, widths: list[int]) -> list[Row]:
        if not widths:
            return self._stack(row)
        columns = [wrap_row(cell, room) for cell, room in zip(row, widths, strict=True)]
        bar = (f" {self._theme.glyphs.bar} ", self._theme.faint, "")
        out: list[Row] = []
        for place in range(max(map(len, columns))):
            line: Row = []
            for number, column in enumerate(columns):
                cell = column[place] if place < len(column) else []
                line += [bar] if number else []
                line += self._padded(cell, number, widths)
            out.append(strip_row(line))
        return out

    def _padded(self, cell: Row, number: int, widths: list[int]) -> Row:
        left, right = self._aligns[number]
        spare = max(0, widths[number] - row_width(cell))
        before = spare // 2 if left and right else spare if right else 0
        after = spare - before if number < len(widths) - 1 else 0
        return [(" " * before, "", "")] * (before > 0) + cell + [(" " * after, "", "")] * (after > 0)

    def _rule(self) -> Row:
        glyphs, widths = self._theme.glyphs, self._widths
        cross = f"{glyphs.rule}{glyphs.cross}{glyphs.rule}"
        line = cross.join(glyphs.rule * room for room in widths or ())
        return [(line, self._theme.faint, "")]

    def _gap(self) -> Row:
        """The row between two rows of a table in which cells are wrapped."""
        if not self._widths:
            return []
        bar = (f" {self._theme.glyphs.bar} ", self._theme.faint, "")
        cells = [part for room in self._widths for part in (bar, (" " * room, "", ""))]
        return strip_row(cells[1:])

    def _stack(self, row: Cells) -> list[Row]:
        """For a narrow screen: one line per cell, with the column name in front."""
        out: list[Row] = []
        for name, cell in zip(self._head, row, strict=True):
            out += wrap_row([*name, (": ", "", ""), *cell], self._columns)
        return out
