"""The open blocks of a text and the rows they have finished. It is told lines and knows no screen."""

from alipes.cli.markdown_code import Fence
from alipes.cli.markdown_flow import Flow, Row, Span, trimmed
from alipes.cli.markdown_inline import whole
from alipes.cli.markdown_leaves import Html, Indented, Paragraph
from alipes.cli.markdown_lines import FENCE, TASK, Container, Item, Leaf, Plan, Quote, plan
from alipes.cli.markdown_table import Table
from alipes.cli.theme import Theme
from alipes.cli.width import width

NARROWEST = 10
WIDEST_RULE = 64


class Blocks:
    """Takes a text line by line; a line of plain text may also come bit by bit.

    Finished rows wait in `rows`. A row is finished when nothing that may still come can change it.
    """

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme = theme
        self._columns = max(NARROWEST, columns)
        self._stack: list[Container] = []
        self._leaf: Leaf | None = None
        self._gap = False
        """A blank line belongs before the next row."""
        self._begun = False
        self.rows: list[Row] = []

    @property
    def whole_lines(self) -> bool:
        """The block that is open takes whole lines only."""
        return self._leaf is not None and self._leaf.whole_lines

    def begin(self, text: str, *, is_whole: bool) -> bool:
        """Take a line, or the beginning of one. False: it must come again when it is whole."""
        found = plan(text, self._stack, self._leaf, whole=is_whole)
        if found is None:
            return False
        self._apply(found)
        return True

    def more(self, text: str) -> None:
        """More of the line of text that was begun."""
        assert isinstance(self._leaf, Paragraph)
        self._emit(self._leaf.add(text))

    def close(self) -> None:
        self._close_leaf()
        self._leave(0)

    def take(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    def fork(self) -> "Blocks":
        """A draft: the same blocks, on which the unfinished rest can be tried."""
        other = Blocks(self._theme, self._columns)
        other._stack = [_copy(container) for container in self._stack]
        other._leaf = self._leaf and self._leaf.fork()
        other._gap, other._begun, other.rows = self._gap, self._begun, self.rows[:]
        return other

    def resize(self, columns: int) -> None:
        self._columns = max(NARROWEST, columns)
        if self._leaf is not None:
            self._emit(self._leaf.resize(self._room()))

    def _apply(self, found: Plan) -> None:
        if found.kind == "line":
            assert self._leaf is not None
            self._emit(self._leaf.line(found.rest))
            if self._leaf.over:
                self._leaf = None
        elif found.continues:
            assert self._leaf is not None
            self._emit(self._leaf.line(found.rest.lstrip(" ")))
        elif found.kind in ("setext", "table"):
            self._convert(found)
        else:
            self._close_leaf()
            self._leave(found.matched)
            for container in found.opened:
                self._enter(container)
            self._open(found)

    def _convert(self, found: Plan) -> None:
        """The only line of the paragraph turns out to be a heading, or the head of a table."""
        assert self._leaf is not None
        text, self._leaf = self._leaf.source, None
        if found.kind == "table":
            self._leaf = Table(self._theme, self._room(), text, found.rest)
        else:
            self._head(text, 1 if found.rest.lstrip(" ")[0] == "=" else 2)

    def _open(self, found: Plan) -> None:
        rest = found.rest
        match found.kind:
            case "blank":
                self._gap = self._gap or not found.opened
            case "heading":
                self._open_heading(rest)
            case "rule":
                length = min(self._room(), WIDEST_RULE)
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
                self._open_text(rest, held=found.kind == "held")

    def _open_text(self, rest: str, *, held: bool) -> None:
        text = rest.lstrip(" ")
        item = self._stack[-1] if self._stack else None
        if isinstance(item, Item) and item.fresh and (task := TASK.match(text)):
            text = text[task.end() :]
            done = task[1] != " "
            item.marker = f"[{'x' if done else ' '}] "
            item.style = self._theme.done if done else self._theme.marker
        paragraph = self._leaf = Paragraph(self._theme, self._room(), held=held)
        self._emit(paragraph.add(text))

    def _open_heading(self, rest: str) -> None:
        marks, _, text = rest.strip().partition(" ")
        bare = text.rstrip("#")
        self._head(bare if bare[-1:] in ("", " ") else text, len(marks))

    def _head(self, text: str, level: int) -> None:
        if not any(container.fresh for container in self._stack):
            self._gap = True
        flow = Flow(self._room())
        style = self._theme.headings[level - 1]
        if self._theme.marks:
            flow.add("#" * level + " ", style)
        for span in whole(text.strip(), self._theme, style):
            flow.add(*span)
        flow.close()
        self._emit(flow.take())

    def _open_fence(self, rest: str) -> None:
        found = FENCE.match(rest.rstrip())
        assert found is not None
        mark, info = (found[1], found[2]) if found[1] else (found[3], found[4])
        fence = self._leaf = Fence(self._theme, mark, info, found.start(1 if found[1] else 3))
        self._emit(fence.open())

    def _enter(self, container: Container) -> None:
        if isinstance(container, Item):
            bullets = self._theme.glyphs.bullets
            depth = sum(isinstance(outer, Item) and not outer.number for outer in self._stack)
            container.marker = f"{container.number or bullets[depth % len(bullets)]} "
            container.style = self._theme.marker
        self._stack.append(container)

    def _leave(self, remaining: int) -> None:
        """Close containers from the inside; an item in which nothing was said still shows its marker."""
        while len(self._stack) > remaining:
            innermost = self._stack[-1]
            if isinstance(innermost, Item) and innermost.fresh:
                self._emit([[]])
            self._stack.pop()

    def _close_leaf(self) -> None:
        if self._leaf is not None:
            self._emit(self._leaf.close())
            self._gap = self._gap or (isinstance(self._leaf, Indented) and self._leaf.trailing)
            self._leaf = None

    def _emit(self, rows: list[Row]) -> None:
        for row in rows:
            if self._gap and self._begun:
                self.rows.append(trimmed([self._lead(container) for container in self._old()]))
            self._gap, self._begun = False, True
            lead = [self._lead(container) for container in self._shown()]
            for container in self._stack:
                container.fresh = False
            self.rows.append(lead + row if row else trimmed(lead))

    def _old(self) -> list[Container]:
        """The containers that hold both what was shown last and what comes next."""
        for place, container in enumerate(self._stack):
            if container.fresh:
                return self._stack[:place]
        return self._shown()

    def _shown(self) -> list[Container]:
        """The innermost containers for which there is room; half the screen is left to what they hold."""
        left = self._columns // 2
        for place in range(len(self._stack) - 1, -1, -1):
            left -= width(self._lead(self._stack[place])[0])
            if left < 0:
                return self._stack[place + 1 :]
        return self._stack

    def _lead(self, container: Container) -> Span:
        """What stands before a row in this container."""
        if isinstance(container, Quote):
            return (f"{self._theme.glyphs.bar} ", self._theme.faint, "")
        if container.fresh:
            return (container.marker, container.style, "")
        return (" " * width(container.marker), "", "")

    def _room(self) -> int:
        used = sum(width(self._lead(container)[0]) for container in self._shown())
        return max(NARROWEST, self._columns - used)


def _copy(container: Container) -> Container:
    if isinstance(container, Quote):
        return Quote(container.fresh)
    return Item(container.indent, container.number, container.marker, container.style, container.fresh)
