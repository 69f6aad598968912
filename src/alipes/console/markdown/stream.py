"""Renders streamed Markdown as terminal lines: final ones and a tail that may change."""

from alipes.console.markdown.blocks import BlockParser
from alipes.console.markdown.inline import strip_unsafe
from alipes.console.markdown.line_parser import LINE_START
from alipes.console.markdown.wrap import Row, row_width, split_row, to_ansi
from alipes.console.theme import Theme

MAX_TAIL_ROWS = 8
_MAX_DRAFT_CHARS = 1000
"""Maximum characters of an unfinished line that are drawn in the tail."""


class MarkdownStream:
    """Renders one text. The final lines do not depend on how the text was split into deltas.

    Every line resets its styles at its end. After `finish` the stream can be used again.
    """

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme, self._columns = theme, max(1, columns)
        self._tail: list[str] | None = None
        self._reset()

    def feed(self, text: str) -> list[str]:
        """Add text; returns the lines that became final."""
        self._tail = None
        first, *others = strip_unsafe(text).split("\n")
        self._take(first)
        for line in others:
            self._end_line()
            self._take(line)
        return self._take_lines()

    def tail(self) -> list[str]:
        """The lines that may still change: at most `MAX_TAIL_ROWS`, none wider than the screen.

        They have no hyperlinks, because they are repainted.
        """
        if self._tail is None:
            self._tail = self._draw_tail()
        return self._tail[:]

    def finish(self) -> list[str]:
        """End the text; returns the remaining lines."""
        if self._parts:
            self._end_line()
        self._blocks.close()
        lines = self._take_lines()
        self._reset()
        return lines

    def resize(self, columns: int) -> None:
        """Change the width; final lines stay as they are."""
        self._columns, self._tail = max(1, columns), None
        self._blocks.resize(columns)

    def _reset(self) -> None:
        self._blocks = BlockParser(self._theme, self._columns)
        self._in_paragraph = False
        """The open line is text and goes directly to its paragraph."""
        self._tail = None
        self._parts: list[str] = []
        """Otherwise, its parts so far."""
        self._start_checked = False
        """Its start was checked and is not enough to decide."""

    def _take(self, text: str) -> None:
        if not text:
            return
        if self._in_paragraph:
            self._blocks.more(text)
            return
        self._parts.append(text)
        if self._start_checked or self._blocks.whole_lines:
            return
        line = "".join(self._parts)
        head = LINE_START.match(line)
        if head is None:
            self._start_checked = len(line) > 1000
            return
        self._start_checked = True
        if self._blocks.begin(head[0], is_whole=False):
            self._parts, self._in_paragraph = [], True
            if len(line) > head.end():
                self._blocks.more(line[head.end() :])

    def _end_line(self) -> None:
        if not self._in_paragraph:
            self._blocks.begin("".join(self._parts), is_whole=True)
        self._parts, self._in_paragraph, self._start_checked = [], False, False

    def _draw_tail(self) -> list[str]:
        draft = self._blocks.fork()
        if self._parts:
            draft.begin(self._partial(), is_whole=True)
        draft.close()
        rows: list[Row] = []
        for row in reversed(draft.take()):
            wrapped = [row] if row_width(row) <= self._columns else split_row(row, self._columns)
            rows[:0] = wrapped
            if len(rows) >= MAX_TAIL_ROWS:
                break
        return [to_ansi(row, links=False) for row in rows[-MAX_TAIL_ROWS:]]

    def _partial(self) -> str:
        """The unfinished line, limited to what the tail can show."""
        step = -1 if self._blocks.whole_lines else 1
        parts, size = [], 0
        for part in self._parts[::step]:
            parts.append(part)
            size += len(part)
            if size >= _MAX_DRAFT_CHARS:
                break
        return "".join(parts[::step])

    def _take_lines(self) -> list[str]:
        return [to_ansi(row, links=self._theme.links) for row in self._blocks.take()]


def render_markdown(text: str, theme: Theme, columns: int) -> list[str]:
    """The lines of a complete text."""
    stream = MarkdownStream(theme, columns)
    return stream.feed(text) + stream.finish()
