"""Computes the shortest output that updates the live rows at the end of the screen.

All cursor movements are relative, so the scrollback is never touched.
"""

import re
from collections.abc import Sequence

from alipes.console.width import display_width, split_at_width

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[_P][^\x1b]*\x1b\\|[78])")
_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_RESET = "\x1b[0m"
_LINK_END = re.compile(r"\x1b\]8;;(?:\x07|\x1b\\)")
_UNSURE = re.compile("[\u0900-\u109f\u1780-\u17ff\u200d\ufe0e\ufe0f\U0001f000-\U0001ffff]")
"""Characters whose width differs between terminals, so columns after them are uncertain."""
_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"
ERASE_REST = "\x1b[K"
"""At the end of a row: fills the rest of the line with the background of the row."""
ERASE_BELOW = "\x1b[K\x1b[C\x1b[J\r"
"""At the start of a line: erases it and all below. Not by one sequence from the first column: if the line is the first
of the screen, tmux takes that for a clear screen and moves what is there into the scrollback."""


def strip_escapes(row: str) -> str:
    return _ESCAPE.sub("", row) if "\x1b" in row else row


def visible_width(row: str) -> int:
    """The columns that a row takes, without escape sequences."""
    return display_width(strip_escapes(row))


def pin_row(row: str) -> str:
    """The row as output that stays on its line, also on a terminal that counts its characters as wider."""
    return f"{_WRAP_OFF}{row}{_WRAP_ON}" if _UNSURE.search(row) else row


def row_height(row: str, columns: int) -> int:
    """The number of screen lines of a row that the terminal wraps at `columns`."""
    text = strip_escapes(row)
    if display_width(text) <= columns:
        return 1
    if text.isascii():
        return -(-len(text) // columns)
    lines = 0
    while text:
        _, text = split_at_width(text, columns)
        lines += 1
    return lines


class LiveScreen:
    """The live rows on the screen and the cursor in them."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._shown: list[str] = []
        self._cursor = (0, 0)
        self._unknown = True
        """The screen content below the cursor is unknown."""

    def paint(self, final: Sequence[str], live: Sequence[str], cursor: tuple[int, int]) -> str:
        """The output that adds `final` to the scrollback and shows `live` below it.

        A live row must fit into a line. If `live` does not fit on the screen, its last rows are
        shown. `cursor` is a row of `live` and a column.
        """
        if (over := len(live) - self.lines) > 0:
            live, cursor = live[over:], (max(0, cursor[0] - over), cursor[1])
        pen = _CursorWriter(*self._cursor)
        if self._unknown:
            pen.write(f"\r{ERASE_BELOW}")
            self._unknown = False
        unsure = next((number for number, row in enumerate(final) if _UNSURE.search(row)), None)
        if unsure is not None:  # the terminal alone knows how many lines these take, so nothing is placed below them
            first = min(unsure, _common_length(self._shown, final))
            self._append(pen, first, final[first:], live)
        elif final or live != self._shown:
            self._draw(pen, [*final, *live])
        done = sum(row_height(row, self.columns) for row in final)
        self._shown = list(live)
        if not live and done:
            pen.move_to(done - 1)
            pen.write("\r\n")
            pen.y = done
        pen.move_to(done + cursor[0], cursor[1])
        self._cursor = cursor
        return pen.text()

    def erase(self) -> str:
        """The output that removes the live rows."""
        return self._erase(self._cursor[0])

    def resize(self, columns: int, lines: int, *, reflows: bool) -> str:
        """Like `erase`, after a change of the size. `reflows`: the terminal wraps rows that do not fit."""
        above, (y, x) = self._shown[: self._cursor[0]], self._cursor
        if reflows and columns < self.columns:
            y = sum(row_height(row, columns) for row in above) + x // columns
        self.columns, self.lines = columns, lines
        return self._erase(y)

    def invalidate(self) -> None:
        """The live rows are gone, and the cursor is at the start of an empty line."""
        self._shown, self._cursor, self._unknown = [], (0, 0), True

    def _erase(self, y: int) -> str:
        pen = _CursorWriter(y, 1)
        pen.move_to(0, 0)
        pen.write(ERASE_BELOW)
        self._shown, self._cursor = [], (0, 0)
        return pen.text()

    def _draw(self, pen: "_CursorWriter", target: list[str]) -> None:
        old = self._shown
        if min(len(old), len(target)) > 1 and old[-1] != target[-1] and old[-2] == target[-2]:
            # The status row changes by itself: the rows above it are moved, not written again.
            above = target[:-1]
            if row_height(target[-1], self.columns) == 1:
                self._draw_rows(pen, [*above, old[-1]])
                y = sum(row_height(row, self.columns) for row in above)
                self._rewrite(pen, y, [old[-1]], [target[-1]])
                return
        self._draw_rows(pen, target)

    def _draw_rows(self, pen: "_CursorWriter", target: list[str]) -> None:
        old = self._shown
        first = _common_length(old, target)
        last = _common_length(old[first:][::-1], target[first:][::-1])
        before, after = old[first : len(old) - last], target[first : len(target) - last]
        height = sum(row_height(row, self.columns) for row in after)
        more = height - len(before)
        if more > 0 and (not last or len(old) + more - first > self.lines):
            self._append(pen, first, (), target[first:])
            return
        if more > 0:
            pen.move_to(len(old) - 1)
            pen.write("\n" * more)
            pen.y += more
            pen.move_to(len(old) - last)
            pen.write(f"\x1b[{more if more > 1 else ''}L")
        elif more < 0:
            pen.move_to(first + height)
            pen.write(f"\x1b[{-more if more < -1 else ''}M")
        if more:
            pen.x = -1  # the column after these depends on the terminal
        self._rewrite(pen, first, before, after)

    def _rewrite(self, pen: "_CursorWriter", y: int, before: list[str], after: list[str]) -> None:
        """Write `after` over the lines from `y`, of which the first ones show `before` and the others nothing."""
        line = 0
        for row in after:
            height = row_height(row, self.columns)
            if height > 1:  # the terminal wraps it over several lines
                for place in range(line, min(line + height, len(before))):
                    pen.move_to(y + place, 0)
                    pen.write("\x1b[K")
                pen.move_to(y + line, 0)
                pen.write(row)
                pen.y, pen.x = y + line + height - 1, -1
            elif (known := before[line] if line < len(before) else "") == row:
                pass
            elif ERASE_REST in known + row or _UNSURE.search(known + row):
                pen.move_to(y + line, 0)
                pen.write(f"\x1b[K{pin_row(row)}")
                pen.x = -1
            else:
                start, style = _common_start(known, row)
                pen.move_to(y + line, visible_width(row[:start]))
                pen.write(style + row[start : _unchanged_end(known, row, start)])
                if visible_width(row) < visible_width(known):
                    pen.write("\x1b[K")
                pen.x = -1
            line += height

    def _append(self, pen: "_CursorWriter", y: int, whole: Sequence[str], pinned: Sequence[str]) -> None:
        """Write all rows from `y`, so that the screen scrolls. The terminal may wrap the `whole` ones."""
        if y and y == len(self._shown):
            pen.move_to(y - 1)
            pen.write("\r\n")
        else:
            pen.move_to(y, 0)
            pen.write(ERASE_BELOW)
        pen.write("\r\n".join((*whole, *map(pin_row, pinned))))
        pen.y, pen.x = y + sum(row_height(row, self.columns) for row in (*whole, *pinned)) - 1, -1


class _CursorWriter:
    """Collects output and tracks the position of the cursor."""

    def __init__(self, y: int, x: int) -> None:
        self.y, self.x = y, x
        """The column is -1 if it is unknown."""
        self._out: list[str] = []

    def write(self, text: str) -> None:
        self._out.append(text)

    def move_to(self, y: int, x: int | None = None) -> None:
        """Move to a row, and to a column if it is given."""
        if y != self.y:
            far = abs(y - self.y)
            self.write(f"\x1b[{far if far > 1 else ''}{'A' if y < self.y else 'B'}")
            self.y = y
        if x is not None and x != self.x:
            self.write("\r")
            if x:
                self.write(f"\x1b[{x if x > 1 else ''}C")
            self.x = x

    def text(self) -> str:
        return "".join(self._out)


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal rows, or characters, at the start of both."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _common_start(old: str, new: str) -> tuple[int, str]:
    """The length of the equal start of two rows, and the style at that point.

    A row sets a style with one sequence and ends it with a reset, as `markdown.wrap.to_ansi` does.
    """
    end = _boundary(old, new, _common_length(old, new))
    style = outside = ""
    link = -1
    for found in _ESCAPE.finditer(new):
        if found.end() > end:
            end = min(end, found.start())
            break
        if styled := _STYLE.fullmatch(found[0]):
            style = "" if styled[1] in ("", "0") else found[0]
        elif found[0].startswith("\x1b]8;"):
            link, outside = (-1, "") if _LINK_END.fullmatch(found[0]) else (found.start(), style)
    return (end, style) if link < 0 else (link, outside)


def _boundary(old: str, new: str, end: int) -> int:
    """The last index up to `end` where a character starts and the column is certain."""
    if new.isascii() and old.isascii():
        return end
    if _UNSURE.search(new, 0, end + 2) or _UNSURE.search(old, 0, end + 2):
        return 0
    while end and any(end < len(row) and row[end] != "\x1b" and not display_width(row[end]) for row in (old, new)):
        end -= 1
    return end


def _unchanged_end(old: str, new: str, start: int) -> int:
    """The index in `new` from which the screen already shows the rest of the row, without an open style."""
    if _UNSURE.search(old) or _UNSURE.search(new) or "\x1b]" in new:
        return len(new)
    room = min(len(old), len(new)) - start
    common = _common_length(old[::-1][:room], new[::-1][:room])
    rest = new[len(new) - common :]
    reset = rest.find(_RESET)
    if reset < 0:
        return len(new)
    end = len(new) - common + reset + len(_RESET)
    shift = len(old) - len(new)
    return end if visible_width(old[: end + shift]) == visible_width(new[:end]) else len(new)
