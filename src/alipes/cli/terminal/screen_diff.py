"""The rows at the end of the output that may still change: rows in, the fewest bytes that show them out.

It only ever moves relative to where it is, so what scrolled up stays what it was. It writes to nothing.
"""

import re
from collections.abc import Sequence

from alipes.cli.width import cut, width

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[_P][^\x1b]*\x1b\\|[78])")
_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_LINK_END = re.compile(r"\x1b\]8;;(?:\x07|\x1b\\)")
_UNSURE = re.compile("[\u200d\ufe0e\ufe0f\U0001f000-\U0001ffff]")
"""Terminals disagree on how wide these are: behind one of them no column is certain."""


def plain(row: str) -> str:
    """The row without its escape sequences."""
    return _ESCAPE.sub("", row) if "\x1b" in row else row


def span(row: str) -> int:
    """The columns that a row takes."""
    return width(plain(row))


def height(row: str, columns: int) -> int:
    """The lines of the screen that a row fills where the terminal breaks it at `columns`."""
    text = plain(row)
    if width(text) <= columns:
        return 1
    if text.isascii():
        return -(-len(text) // columns)
    lines = 0
    while text:
        _, text = cut(text, columns)
        lines += 1
    return lines


class Canvas:
    """Knows what stands on the screen from the first live row down, and where the cursor is in it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._shown: list[str] = []
        self._home = (0, 0)
        self._fresh = True
        """Nobody knows what stands below the cursor."""

    def paint(self, final: Sequence[str], live: Sequence[str], cursor: tuple[int, int]) -> str:
        """What to write so that `final` joins the scrollback and `live` stands below it.

        A live row must fit into a line, and `live` as a whole on the screen: of more, the last
        rows are shown. `cursor` is a row of `live` and a column. Nothing is written twice.
        """
        if (over := len(live) - self.lines) > 0:
            live, cursor = live[over:], (max(0, cursor[0] - over), cursor[1])
        pen = _Pen(*self._home)
        if self._fresh:
            pen.write("\r\x1b[J")
            self._fresh = False
        if final or live != self._shown:
            self._draw(pen, [*final, *live])
        done = sum(height(row, self.columns) for row in final)
        self._shown = list(live)
        if not live and done:
            pen.go(done - 1)
            pen.write("\r\n")
            pen.y = done
        pen.go(done + cursor[0], cursor[1])
        self._home = cursor
        return pen.taken()

    def erase(self) -> str:
        """Take the live rows off the screen; what is painted next stands in their place."""
        return self._erase(self._home[0])

    def resize(self, columns: int, lines: int, *, reflows: bool) -> str:
        """The same, on a screen of another size. `reflows`: the terminal breaks rows that no longer fit."""
        above, (y, x) = self._shown[: self._home[0]], self._home
        if reflows and columns < self.columns:
            y = sum(height(row, columns) for row in above) + x // columns
        self.columns, self.lines = columns, lines
        return self._erase(y)

    def forget(self) -> None:
        """Whatever was shown is gone, and the cursor stands at the beginning of an empty line."""
        self._shown, self._home, self._fresh = [], (0, 0), True

    def _erase(self, y: int) -> str:
        pen = _Pen(y, 1)
        pen.go(0, 0)
        pen.write("\x1b[J")
        self._shown, self._home = [], (0, 0)
        return pen.taken()

    def _draw(self, pen: "_Pen", target: list[str]) -> None:
        old = self._shown
        first = _same(old, target)
        last = _same(old[first:][::-1], target[first:][::-1])
        before, after = old[first : len(old) - last], target[first : len(target) - last]
        more = len(after) - len(before)
        grows = more > 0 and (not last or len(old) + more - first > self.lines)
        if grows or any(height(row, self.columns) > 1 for row in after):
            self._append(pen, first, target[first:])
            return
        if more > 0:
            pen.go(len(old) - 1)
            pen.write("\n" * more)
            pen.y += more
            pen.go(len(old) - last)
            pen.write(f"\x1b[{more if more > 1 else ''}L")
        elif more < 0:
            pen.go(first + len(after))
            pen.write(f"\x1b[{-more if more < -1 else ''}M")
        if more:
            pen.x = -1  # where these leave the column is up to the terminal
        self._rewrite(pen, first, before, after)

    def _rewrite(self, pen: "_Pen", y: int, before: list[str], after: list[str]) -> None:
        for number, row in enumerate(after):
            known = before[number] if number < len(before) else ""
            if known != row:
                start, style = _agreement(known, row)
                pen.go(y + number, span(row[:start]))
                pen.write(style + row[start:])
                if span(row) < span(known):
                    pen.write("\x1b[K")
                pen.x = -1

    def _append(self, pen: "_Pen", y: int, rows: list[str]) -> None:
        """Write all rows from `y` on one after the other, and let the screen scroll."""
        if y and y == len(self._shown):
            pen.go(y - 1)
            pen.write("\r\n")
        else:
            pen.go(y, 0)
            pen.write("\x1b[J")
        pen.write("\r\n".join(rows))
        pen.y, pen.x = y + sum(height(row, self.columns) for row in rows) - 1, -1


class _Pen:
    """Collects what is to be written and keeps count of where that leaves the cursor."""

    def __init__(self, y: int, x: int) -> None:
        self.y, self.x = y, x
        """The column is -1 where it does not matter."""
        self._out: list[str] = []

    def write(self, text: str) -> None:
        self._out.append(text)

    def go(self, y: int, x: int | None = None) -> None:
        """To a row, and to a column of it if that is given."""
        if y != self.y:
            far = abs(y - self.y)
            self.write(f"\x1b[{far if far > 1 else ''}{'A' if y < self.y else 'B'}")
            self.y = y
        if x is not None and x != self.x:
            self.write("\r")
            if x:
                self.write(f"\x1b[{x if x > 1 else ''}C")
            self.x = x

    def taken(self) -> str:
        return "".join(self._out)


def _same(one: list[str], other: list[str]) -> int:
    """How many rows both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _agreement(old: str, new: str) -> tuple[int, str]:
    """Up to where two rows look the same, and the style in force there.

    A row sets a style by one sequence and ends it by a reset, as `markdown.flow.paint` does.
    """
    end = min(len(old), len(new))
    if old[:end] != new[:end]:
        end = next(at for at in range(end) if old[at] != new[at])
    end = _boundary(old, new, end)
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
    """The last place up to `end` where a character begins and the column is certain."""
    if new.isascii() and old.isascii():
        return end
    if _UNSURE.search(new, 0, end + 2) or _UNSURE.search(old, 0, end + 2):
        return 0
    while end and any(end < len(row) and row[end] != "\x1b" and not width(row[end]) for row in (old, new)):
        end -= 1
    return end
