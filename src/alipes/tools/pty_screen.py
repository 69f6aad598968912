"""The screen of a pseudo terminal: a grid of cells and a cursor. It reads no escape sequence."""

import unicodedata
from functools import lru_cache

from alipes.runtime.ptys import COLUMNS, ROWS

_MARKS = 8
"""Characters that one cell holds at most: a letter and what is written over it."""


class Row:
    """Cells from the left, as far as anything was written; a wide character is followed by an empty one."""

    __slots__ = ("cells", "wrapped")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.wrapped = False
        """The line goes on in the next row: it was too long for one."""

    def write(self, x: int, cells: str | list[str]) -> None:
        own = self.cells
        if len(own) < x:
            own.extend(" " * (x - len(own)))
        halves = "" in own
        own[x : x + len(cells)] = cells
        if halves:
            self._heal(x, x + len(cells))

    def shift(self, x: int, count: int) -> None:
        """Make room for `count` cells at `x`; negative: take them away."""
        if x < len(self.cells):
            if count > 0:
                self.cells[x:x] = " " * count
                del self.cells[COLUMNS:]
            else:
                del self.cells[x : x - count]
            self._heal(x, x + max(count, 0))

    def erase(self, start: int, end: int) -> None:
        if end >= len(self.cells):
            del self.cells[start:]
            self.wrapped = self.wrapped and end < COLUMNS
            self._heal(start, start)
        elif start < end:
            self.write(start, " " * (end - start))

    def mark(self, x: int, char: str) -> None:
        """Write over what is left of `x`, as an accent."""
        while x > 0 and (x > len(self.cells) or not self.cells[x - 1]):
            x -= 1
        if x > 0 and len(self.cells[x - 1]) < _MARKS:
            self.cells[x - 1] += char

    def text(self) -> str:
        """Its part of the text; with the end of the line, unless it goes on."""
        text = "".join(self.cells)
        return text if self.wrapped else text.rstrip() + "\n"

    def _heal(self, start: int, end: int) -> None:
        """Half of a wide character is none."""
        own = self.cells
        if 0 < start <= len(own) and width(own[start - 1][:1]) == 2 and (start == len(own) or own[start]):
            own[start - 1] = " "
        if end < len(own) and not own[end] and (end == 0 or width(own[end - 1][:1]) != 2):
            own[end] = " "


class Screen:
    """What is on it, and what has scrolled off its top since somebody asked."""

    def __init__(self) -> None:
        self.x = self.y = 0
        """Where the next character goes; `x` is one too far when a row is full and nothing followed yet."""
        self.inserting = False
        self.saved = (0, 0)
        """Where a program wants to come back to."""
        self.rows = _blank()
        self._top, self._bottom = 0, ROWS - 1
        self._main: tuple[list[Row], int, int] | None = None
        self._settled: list[str] = []

    def put(self, text: str) -> None:
        """Write printable characters at the cursor."""
        if not text.isascii():
            for char in text:
                self._put_one(char)
            return
        while text:
            self._turn_over(1)
            piece, text = text[: COLUMNS - self.x], text[COLUMNS - self.x :]
            if self.inserting:
                self.rows[self.y].shift(self.x, len(piece))
            self.rows[self.y].write(self.x, piece)
            self.x += len(piece)

    def move(self, y: int, x: int) -> None:
        self.y, self.x = max(0, min(y, ROWS - 1)), max(0, min(x, COLUMNS - 1))

    def step(self, down: int, x: int) -> None:
        """Move by rows, but not across a margin."""
        low = self._top if self.y >= self._top else 0
        high = self._bottom if self.y <= self._bottom else ROWS - 1
        self.move(max(low, min(self.y + down, high)), x)

    def down(self) -> None:
        """To the next row; at the bottom what is above moves up."""
        if self.y == self._bottom:
            self.scroll(1)
        elif self.y < ROWS - 1:
            self.y += 1

    def up(self) -> None:
        if self.y == self._top:
            self.scroll(-1)
        elif self.y > 0:
            self.y -= 1

    def scroll(self, count: int, top: int | None = None) -> None:
        """Move rows up, or down when negative: those between the margins, or from `top` on."""
        first = self._top if top is None else top
        if not self._top <= first <= self._bottom:
            return
        rows, after = self.rows, self._bottom + 1
        if count > 0:
            count = min(count, after - first)
            if top is None and first == 0 and self._main is None:
                self._settled += [row.text() for row in rows[:count]]
            del rows[first : first + count]
            rows[after - count : after - count] = _blank(count)
        else:
            count = min(-count, after - first)
            del rows[after - count : after]
            rows[first:first] = _blank(count)

    def margins(self, top: int, bottom: int) -> None:
        """Scroll these rows alone from now on; the cursor goes home."""
        if 0 <= top < bottom < ROWS:
            self._top, self._bottom = top, bottom
            self.move(0, 0)

    def erase(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Blank every cell from `start` to before `end`, each a row and a column."""
        for y in range(start[0], min(end[0], ROWS - 1) + 1):
            self.rows[y].erase(start[1] if y == start[0] else 0, end[1] if y == end[0] else COLUMNS)

    def shift(self, count: int) -> None:
        """Push the rest of the row to the right, or pull it to the left when negative."""
        self.rows[self.y].shift(self.x, count)

    def alternate(self, on: bool) -> None:
        """Programs that fill the screen draw on another one and leave the first as they found it."""
        if on and self._main is None:
            self._main = self.rows, self.y, self.x
            self.rows = _blank()
        elif not on and self._main is not None:
            self.rows, self.y, self.x = self._main
            self._main = None
        self._top, self._bottom = 0, ROWS - 1

    def text(self) -> str:
        """What it shows, without the blank rows at its end."""
        return "".join(row.text() for row in self.rows).rstrip()

    def settled(self) -> str:
        """What has scrolled away since this was asked before; it does not change any more."""
        text = "".join(self._settled)
        self._settled.clear()
        return text

    def _put_one(self, char: str) -> None:
        size = width(char)
        row = self.rows[self.y]
        if size == 0:
            row.mark(self.x, char)
            return
        self._turn_over(size)
        row = self.rows[self.y]
        if self.inserting:
            row.shift(self.x, size)
        row.write(self.x, [char, ""][:size])
        self.x += size

    def _turn_over(self, size: int) -> None:
        if self.x + size > COLUMNS:
            self.rows[self.y].wrapped = True
            self.x = 0
            self.down()


@lru_cache(maxsize=4096)
def width(char: str) -> int:
    """Cells that a character takes: two, one, or none."""
    if not char or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _blank(count: int = ROWS) -> list[Row]:
    return [Row() for _ in range(count)]
