"""Tables: columns as wide as what they hold and the screen allows. Where one begins is decided elsewhere."""

import re
from copy import copy
from typing import TypeAlias

from alipes.cli.markdown.inline import whole
from alipes.cli.markdown.line_parser import cells
from alipes.cli.markdown.wrap import Flow, Row, row_width, trimmed
from alipes.cli.theme import Theme
from alipes.cli.width import units, width

PATIENCE = 24
"""So many rows are waited for to learn the widths; longer tables keep the widths of these."""
NARROWEST = 4
DRAFTED = 8
_OTHER = re.compile(r" {0,3}(?:[-+*] |\d{1,9}[.)] |>|#{1,6} |```|~~~)|    ")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_WORDS = re.compile(r"\S+")

Cells: TypeAlias = list[Row]


class Table:
    """Nothing of it is final before its widths are: at its end, or after `PATIENCE` rows."""

    whole_lines, patient, over, source = True, False, False, ""

    def __init__(self, theme: Theme, columns: int, head: str, delimiters: str) -> None:
        self._theme, self._columns = theme, columns
        self._aligns = [(cell[:1] == ":", cell[-1:] == ":") for cell in cells(delimiters)]
        count = len(self._aligns)
        self._natural, self._floors = [1] * count, [1] * count
        self._head = self._read(head, theme.bold)
        self._rows: list[Cells] = []
        self._widths: list[int] | None = None
        self._ruled = False
        self._drawn: dict[int, tuple[Cells, list[int], list[Row]]] = {}
        """Rows as they were last drawn, by their place; drafts draw the same ones again and again."""
        self._draft = False

    def accepts(self, text: str) -> bool:
        return "|" in text and not _OTHER.match(text)

    def line(self, text: str) -> list[Row]:
        row = self._read(text)
        if self._widths is not None:
            return ([self._rule()] if self._ruled else []) + self._draw(row, self._widths)
        self._rows.append(row)
        return self._freeze() if len(self._rows) > PATIENCE and not self._draft else []

    def close(self) -> list[Row]:
        return self._freeze() if self._widths is None else []

    def fork(self) -> "Table":
        other = copy(self)
        other._rows, other._natural, other._floors = self._rows[:], self._natural[:], self._floors[:]
        other._draft = True
        return other

    def resize(self, width: int) -> list[Row]:
        self._columns = width
        if self._widths is not None:
            self._widths = self._fit()
        return []

    def _read(self, line: str, style: str = "") -> Cells:
        """The cells of a line, as many as the table has columns; the columns learn their widths."""
        given, count = cells(line), len(self._natural)
        texts = given[: count - 1] + [" | ".join(given[count - 1 :])] + [""] * (count - len(given) - 1)
        row = [whole(_BREAK.sub("\n", text) if "<" in text else text, self._theme, style) for text in texts]
        for place, cell in enumerate(row):
            text = "".join(text for text, _, _ in cell)
            self._natural[place] = max(self._natural[place], *map(width, text.split("\n")))
            longest = max((width(unit) for word in _WORDS.findall(text) for unit in units(word)), default=1)
            self._floors[place] = max(self._floors[place], longest)
        return row

    def _fit(self) -> list[int]:
        """The widths of the columns; none where there is no room for a table."""
        count = len(self._natural)
        room = self._columns - 3 * (count - 1)
        if sum(self._natural) <= room:
            return self._natural[:]
        if room < NARROWEST * count:
            return []
        floors = self._floors if sum(self._floors) <= room else [min(f, room // count) for f in self._floors]
        low, high = 0, room
        while low < high:  # the highest level up to which every column can be filled
            level = (low + high + 1) // 2
            if sum(map(_filled, floors, self._natural, [level] * count)) <= room:
                low = level
            else:
                high = level - 1
        return list(map(_filled, floors, self._natural, [low] * count))

    def _freeze(self) -> list[Row]:
        widths, rows = self._fit(), self._rows
        self._widths, self._rows = widths, []
        skipped = max(0, len(rows) - DRAFTED) if self._draft else 0
        drawn = [self._cached(place, row, widths) for place, row in enumerate(rows) if place >= skipped]
        self._ruled = not widths or any(len(lines) > 1 for lines in drawn)
        out: list[Row] = []
        if not skipped and widths:
            out += [*self._draw(self._head, widths), self._rule()]
        for place, lines in enumerate(drawn):
            out += ([self._rule()] if place and self._ruled else []) + lines
        return out

    def _cached(self, place: int, row: Cells, widths: list[int]) -> list[Row]:
        known = self._drawn.get(place)
        if known is None or known[0] is not row or known[1] != widths:
            known = self._drawn[place] = (row, widths, self._draw(row, widths))
        return known[2]

    def _draw(self, row: Cells, widths: list[int]) -> list[Row]:
        if not widths:
            return self._stack(row)
        columns = [_flow(cell, room) for cell, room in zip(row, widths, strict=True)]
        bar = (f" {self._theme.glyphs.bar} ", self._theme.faint, "")
        out: list[Row] = []
        for place in range(max(map(len, columns))):
            line: Row = []
            for number, column in enumerate(columns):
                cell = column[place] if place < len(column) else []
                line += [bar] if number else []
                line += self._padded(cell, number, widths)
            out.append(trimmed(line))
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
        line = cross.join(glyphs.rule * room for room in widths) if widths else glyphs.rule * 3
        return [(line, self._theme.faint, "")]

    def _stack(self, row: Cells) -> list[Row]:
        """Too narrow for columns: every cell below the other, with the name of its column before it."""
        out: list[Row] = []
        for name, cell in zip(self._head, row, strict=True):
            out += _flow([*name, (": ", "", ""), *cell], self._columns)
        return out


def _filled(floor: int, natural: int, level: int) -> int:
    return max(floor, min(natural, level))


def _flow(cell: Row, room: int) -> list[Row]:
    flow = Flow(room)
    for span in cell:
        flow.add(*span)
    flow.close()
    return flow.take() or [[]]
