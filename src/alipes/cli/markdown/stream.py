"""Markdown that comes in bit by bit, as lines for a terminal: final ones and a tail. It writes nothing."""

from alipes.cli.markdown.blocks import Blocks
from alipes.cli.markdown.inline import harmless
from alipes.cli.markdown.line_parser import HEAD
from alipes.cli.markdown.wrap import Row, paint, row_width, slices
from alipes.cli.theme import Theme

TAIL = 8
"""Rows of the tail, at most."""
_DRAFTED = 1000
"""So much of an unfinished line is looked at for the tail."""


class Stream:
    """One text, from its first delta to its end. The final lines do not depend on how it was cut into deltas.

    Lines carry their own styles and end plain. After `finish` the stream is ready for another text.
    """

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme, self._columns = theme, max(1, columns)
        self._tail: list[str] | None = None
        self._reset()

    def feed(self, text: str) -> list[str]:
        """Take more of the text; the lines that are final now."""
        self._tail = None
        first, *others = harmless(text).split("\n")
        self._take(first)
        for line in others:
            self._end_line()
            self._take(line)
        return self._painted()

    def tail(self) -> list[str]:
        """What is not final yet, as it looks now: at most `TAIL` lines, none wider than the screen.

        These hold no hyperlinks, as a line editor that repaints them would not understand them.
        """
        if self._tail is None:
            self._tail = self._draw_tail()
        return self._tail[:]

    def finish(self) -> list[str]:
        """The text is over; the lines that were not final yet."""
        if self._parts:
            self._end_line()
        self._blocks.close()
        lines = self._painted()
        self._reset()
        return lines

    def resize(self, columns: int) -> None:
        """The screen has another width. Lines that are final stay as they are."""
        self._columns, self._tail = max(1, columns), None
        self._blocks.resize(columns)

    def _reset(self) -> None:
        self._blocks = Blocks(self._theme, self._columns)
        self._flowing = False
        """The line that is open is text and goes straight to its paragraph."""
        self._tail = None
        self._parts: list[str] = []
        """Otherwise, what has come of it."""
        self._judged = False
        """Its beginning was looked at and does not tell what it is."""

    def _take(self, text: str) -> None:
        if not text:
            return
        if self._flowing:
            self._blocks.more(text)
            return
        self._parts.append(text)
        if self._judged or self._blocks.whole_lines:
            return
        line = "".join(self._parts)
        head = HEAD.match(line)
        if head is None:
            self._judged = len(line) > 1000
            return
        self._judged = True
        if self._blocks.begin(head[0], is_whole=False):
            self._parts, self._flowing = [], True
            if len(line) > head.end():
                self._blocks.more(line[head.end() :])

    def _end_line(self) -> None:
        if not self._flowing:
            self._blocks.begin("".join(self._parts), is_whole=True)
        self._parts, self._flowing, self._judged = [], False, False

    def _draw_tail(self) -> list[str]:
        draft = self._blocks.fork()
        if self._parts:
            draft.begin(self._partial(), is_whole=True)
        draft.close()
        rows: list[Row] = []
        for row in reversed(draft.take()):
            wrapped = [row] if row_width(row) <= self._columns else slices(row, self._columns)
            rows[:0] = wrapped
            if len(rows) >= TAIL:
                break
        return [paint(row, links=False) for row in rows[-TAIL:]]

    def _partial(self) -> str:
        """The unfinished line, cut where it is longer than anyone could read in the tail."""
        parts, size = [], 0
        ordered = reversed(self._parts) if self._blocks.whole_lines else self._parts
        for part in ordered:
            parts.append(part)
            size += len(part)
            if size >= _DRAFTED:
                break
        return "".join(reversed(parts) if self._blocks.whole_lines else parts)

    def _painted(self) -> list[str]:
        return [paint(row, links=self._theme.links) for row in self._blocks.take()]


def render(text: str, theme: Theme, columns: int) -> list[str]:
    """The lines of a text that is complete."""
    stream = Stream(theme, columns)
    return stream.feed(text) + stream.finish()
