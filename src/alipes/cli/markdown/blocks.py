"""The open blocks of a text and the rows they have finished. It is told lines and knows no screen."""

from alipes.cli.markdown.code import Fence
from alipes.cli.markdown.flow import Flow, Row
from alipes.cli.markdown.inline import whole
from alipes.cli.markdown.leaves import Html, Indented, Paragraph
from alipes.cli.markdown.lines import FENCE, Leaf, Plan, plan
from alipes.cli.markdown.margin import Margin
from alipes.cli.markdown.table import Table
from alipes.cli.theme import Theme

WIDEST_RULE = 64


class Blocks:
    """Takes a text line by line; a line of plain text may also come bit by bit.

    Finished rows wait in `rows`. A row is finished when nothing that may still come can change it.
    """

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme = theme
        self._margin = Margin(theme, columns)
        self._leaf: Leaf | None = None
        self.rows: list[Row] = []

    @property
    def whole_lines(self) -> bool:
        """The block that is open takes whole lines only."""
        return self._leaf is not None and self._leaf.whole_lines

    def begin(self, text: str, *, is_whole: bool) -> bool:
        """Take a line, or the beginning of one. False: it must come again when it is whole."""
        found = plan(text, self._margin.stack, self._leaf, whole=is_whole)
        if found is None:
            return False
        self._apply(found)
        return True

    def more(self, text: str) -> None:
        """More of the line of text that was begun."""
        assert isinstance(self._leaf, Paragraph)
        self._emit(self._leaf.add(text))

    def close(self) -> None:
        self._leave(0)

    def take(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    def fork(self) -> "Blocks":
        """A draft: the same blocks, on which the unfinished rest can be tried."""
        other = Blocks(self._theme, 0)
        other._margin = self._margin.fork()
        other._leaf = self._leaf and self._leaf.fork()
        other.rows = self.rows[:]
        return other

    def resize(self, columns: int) -> None:
        self._margin.resize(columns)
        if self._leaf is not None:
            self._emit(self._leaf.resize(self._margin.room))

    def _apply(self, found: Plan) -> None:
        leaf = self._leaf
        if leaf is not None and (found.kind == "line" or found.continues):
            self._emit(leaf.line(found.rest.lstrip(" ") if found.continues else found.rest))
            self._leaf = None if leaf.over else leaf
        elif leaf is not None and found.kind == "table":
            self._leaf = Table(self._theme, self._margin.room, leaf.source, found.rest)
        elif leaf is not None and found.kind == "setext":
            self._leaf = None
            self._head(leaf.source, 1 if found.rest.lstrip(" ")[0] == "=" else 2)
        else:
            self._leave(found.matched)
            for container in found.opened:
                self._margin.enter(container)
            self._open(found)

    def _open(self, found: Plan) -> None:
        rest = found.rest
        match found.kind:
            case "blank":
                self._margin.gap = self._margin.gap or not found.opened
            case "heading":
                self._head(*_heading(rest))
            case "rule":
                length = min(self._margin.room, WIDEST_RULE)
                self._emit([[(self._theme.glyphs.rule * length, self._theme.faint, "")]])
            case "fence":
                self._open_fence(rest)
            case "indented":
                self._leaf = Indented(self._theme)
                self._emit(self._leaf.line(rest))
            case "html":
                html = Html(self._theme, rest)
                self._emit(html.line(rest))
                self._leaf = None if html.over else html
            case _:
                text = self._margin.tick(rest.lstrip(" "))
                paragraph = self._leaf = Paragraph(self._theme, self._margin.room, held=found.kind == "held")
                self._emit(paragraph.add(text))

    def _open_fence(self, rest: str) -> None:
        found = FENCE.match(rest.rstrip())
        assert found is not None
        mark, info = (found[1], found[2]) if found[1] else (found[3], found[4])
        fence = self._leaf = Fence(self._theme, mark, info, found.start(1 if found[1] else 3))
        self._emit(fence.open())

    def _head(self, text: str, level: int) -> None:
        """A heading stands apart from what is above it, whether the source says so or not."""
        self._margin.gap = self._margin.gap or not self._margin.fresh
        flow = Flow(self._margin.room)
        style = self._theme.headings[level - 1]
        if self._theme.marks:
            flow.add("#" * level + " ", style)
        for span in whole(text.strip(), self._theme, style):
            flow.add(*span)
        flow.close()
        self._emit(flow.take())

    def _leave(self, remaining: int) -> None:
        """Close the innermost block, and all containers but the outer `remaining`."""
        if self._leaf is not None:
            self._emit(self._leaf.close())
            self._margin.gap = self._margin.gap or (isinstance(self._leaf, Indented) and self._leaf.trailing)
            self._leaf = None
        self.rows += self._margin.leave(remaining)

    def _emit(self, rows: list[Row]) -> None:
        self.rows += self._margin.framed(rows)


def _heading(line: str) -> tuple[str, int]:
    """The text of a heading and its level; marks that close it are not text."""
    marks, _, text = line.strip().partition(" ")
    bare = text.rstrip("#")
    return (bare if bare[-1:] in ("", " ") else text), len(marks)
