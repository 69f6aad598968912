"""Markdown blocks: turns lines into rows, with the open containers and the open block."""

import re
from copy import copy
from typing import TYPE_CHECKING, Self

from alipes.console.markdown import line_parser
from alipes.console.markdown.inline import InlineParser, parse_inline
from alipes.console.markdown.maths import to_readable
from alipes.console.markdown.table import MarkdownTable
from alipes.console.markdown.wrap import LineWrapper, Row, Span, row_width, strip_row, wrap_row
from alipes.console.theme import Theme
from alipes.console.width import display_width

if TYPE_CHECKING:
    from alipes.console.markdown.highlight import PygmentsHighlighter

MAX_LINES = 5000
MAX_COLUMNS = 1000
MAX_DRAFT_COLUMNS = 300
MAX_NAME = 30


def find_highlighter(language: str, styles: dict[str, str]) -> "PygmentsHighlighter | None":
    """A highlighter; None if the language is unknown or Pygments is not installed."""
    try:
        from alipes.console.markdown.highlight import open_highlighter  # noqa: PLC0415
    except ImportError:
        return None
    return open_highlighter(language, styles)


class CodeBlock(line_parser.LeafBlock):
    """A block from its opening to its closing fence."""

    keeps_outdented = True

    def __init__(self, theme: Theme, mark: str, info: str, indent: int) -> None:
        self._theme, self._indent = theme, indent
        self._closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}\s*$")
        self._mark = mark
        name = info.strip().strip("{}").removeprefix(".")
        self._language = name.split()[0][:MAX_NAME] if name.split() else ""
        coloured = self._language and theme.tokens
        self._highlighter = find_highlighter(self._language, theme.tokens) if coloured else None
        self._lines = 0
        self._draft = False

    def open(self) -> list[Row]:
        fence = self._theme.glyphs.fence
        name = f"{'' if fence[0] == '`' else ' '}{self._language}" if self._language else ""
        return [[(f"{fence}{name}", self._theme.faint, "")]]

    def accepts(self, text: str) -> bool:
        return True

    def line(self, text: str) -> list[Row]:
        if self._closing.match(text):
            return self.close()
        if self._draft and text.strip() and self._mark.startswith(text.strip()):
            return []  # probably the start of the closing fence
        indent = len(text) - len(text.lstrip(" "))
        return [self._highlight(text[min(indent, self._indent) :])]

    def close(self) -> list[Row]:
        if self.closed or self._draft:
            return []
        self.closed = True
        return [[(self._theme.glyphs.fence, self._theme.faint, "")]]

    def fork(self) -> Self:
        other = super().fork()
        other._highlighter = self._highlighter and self._highlighter.fork()
        other._draft = True
        return other

    def _highlight(self, text: str) -> Row:
        self._lines += 1
        if self._highlighter is None:
            return [(text, "", "")]
        row = None
        if len(text) <= (MAX_DRAFT_COLUMNS if self._draft else MAX_COLUMNS) and self._lines <= MAX_LINES:
            row = self._highlighter.highlight(text)
        if row is None:  # the highlighter has lost its state
            self._highlighter = None
        return row or [(text, "", "")]


class Paragraph(line_parser.LeafBlock):
    """Wrapped text. Line breaks are preserved, as in a chat."""

    whole_lines = False

    def __init__(self, theme: Theme, width: int, *, held: bool = False) -> None:
        self._inline, self._flow = InlineParser(theme), LineWrapper(width)
        self._table_head: str | None = "" if held else None
        """A line that may be a table head, held until the next line."""
        self._draft = False
        self._single_line = True

    def add(self, text: str) -> list[Row]:
        """Add to the current line."""
        if self._single_line:
            self.source += text
        if self._table_head is not None:
            self._table_head += text
            return []
        self._wrap(text)
        return self._take_rows()

    def line(self, text: str) -> list[Row]:
        self._single_line, self.source = False, ""
        held, self._table_head = self._table_head, None
        self._wrap(f"{held or ''}\n{text}")
        return self._flow.take()

    def close(self) -> list[Row]:
        if self._table_head:
            self._wrap(self._table_head)
        for span in self._inline.close(draft=self._draft):
            self._flow.add(*span)
        self._flow.close()
        return self._flow.take()

    def fork(self) -> Self:
        other = super().fork()
        other._inline, other._flow, other._draft = self._inline.fork(), self._flow.fork(), True
        return other

    def resize(self, width: int) -> list[Row]:
        self._flow.resize(width)
        return self._take_rows()

    def _take_rows(self) -> list[Row]:
        rows = self._flow.take()
        if rows:
            self._single_line, self.source = False, ""
        return rows

    def _wrap(self, text: str) -> None:
        for span in self._inline.feed(text):
            self._flow.add(*span)


class IndentedCode(line_parser.LeafBlock):
    """Indented code. Blank lines inside it are shown, trailing ones are not."""

    def __init__(self, theme: Theme) -> None:
        self._style = theme.code
        self.blanks = 0
        """Blank lines at its end."""

    def accepts(self, text: str) -> bool:
        return not text.strip() or text.startswith("    ")

    def line(self, text: str) -> list[Row]:
        if not text.strip():
            self.blanks += 1
            return []
        rows: list[Row] = [[] for _ in range(self.blanks)]
        self.blanks = 0
        return [*rows, [(text[:4].lstrip(" ") + text[4:], self._style, "")]]


class HtmlBlock(line_parser.LeafBlock):
    """Raw HTML, shown as it is."""

    def __init__(self, theme: Theme, first: str) -> None:
        self._style = theme.faint
        start = first.lstrip(" ").lower()
        ends = {"<!--": "-->", "<script": "</script>", "<style": "</style>", "<pre": "</pre>"}
        self._end = next((end for begin, end in ends.items() if start.startswith(begin)), "")

    def accepts(self, text: str) -> bool:
        return bool(self._end or text.strip())

    def line(self, text: str) -> list[Row]:
        self.closed = bool(self._end) and self._end in text.lower()
        return [[(text, self._style, "")]]


class FormulaBlock(line_parser.LeafBlock):
    """A formula on lines of its own, up to its closing mark or a blank line."""

    def __init__(self, theme: Theme, width: int) -> None:
        self._theme, self._width = theme, width
        self._end = ""

    def accepts(self, text: str) -> bool:
        return bool(text.strip())

    def line(self, text: str) -> list[Row]:
        """The rows of the line; the first one has the opening mark."""
        inner = text.strip()
        if not self._end:
            self._end = "$$" if inner.startswith("$$") else r"\]"
            inner = inner[2:]
        inner, mark, _ = inner.partition(self._end)
        self.closed = bool(mark)
        if self._theme.marks:
            return wrap_row([(text.strip(), "", "")], self._width)
        shown = to_readable(inner)
        rows = wrap_row([(shown, self._theme.code, "")], max(1, self._width - 2)) if shown else []
        return [[("  ", "", ""), *row] for row in rows]

    def resize(self, width: int) -> list[Row]:
        self._width = width
        return []


MIN_COLUMNS = 10


class ContainerStack:
    """The open containers, outermost first, on a screen of `columns`."""

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme = theme
        self.columns = max(MIN_COLUMNS, columns)
        self.stack: list[line_parser.Container] = []
        self.gap = False
        """A blank line is needed before the next row."""
        self._started = False

    @property
    def room(self) -> int:
        """The columns left for the content."""
        return max(MIN_COLUMNS, self.columns - row_width(self._prefix(holder) for holder in self._visible()))

    @property
    def empty(self) -> bool:
        """The next row is the first of a container, so it has a marker."""
        return any(container.empty for container in self.stack)

    def enter(self, container: line_parser.Container) -> None:
        if isinstance(container, line_parser.ListItem):
            bullets = self._theme.glyphs.bullets
            depth = sum(isinstance(outer, line_parser.ListItem) and not outer.number for outer in self.stack)
            container.marker = f"{container.number or bullets[depth % len(bullets)]} "
            container.style = self._theme.marker
        self.stack.append(container)

    def leave(self, remaining: int) -> list[Row]:
        """Close the inner containers; an empty item still shows its marker."""
        rows: list[Row] = []
        while len(self.stack) > remaining:
            innermost = self.stack[-1]
            if isinstance(innermost, line_parser.ListItem) and innermost.empty:
                rows += self.add_prefixes([[]])
            self.stack.pop()
        return rows

    def take_checkbox(self, text: str) -> str:
        """Use a checkbox at the start of the text as the marker of its item; returns the rest."""
        item = self.stack[-1] if self.stack else None
        if not isinstance(item, line_parser.ListItem) or not item.empty or not (task := line_parser.TASK.match(text)):
            return text
        done = task[1] != " "
        item.marker = f"[{'x' if done else ' '}] "
        item.style = self._theme.done if done else self._theme.marker
        return text[task.end() :]

    def add_prefixes(self, rows: list[Row]) -> list[Row]:
        """The rows with the prefixes of their containers, after a blank line if needed."""
        out: list[Row] = []
        for row in rows:
            if self.gap and self._started:
                out.append(strip_row([self._prefix(container) for container in self._continued()]))
            self.gap, self._started = False, True
            lead = [self._prefix(container) for container in self._visible()]
            for container in self.stack:
                container.empty = False
            out.append(lead + row if row else strip_row(lead))
        return out

    def resize(self, columns: int) -> None:
        self.columns = max(MIN_COLUMNS, columns)

    def fork(self) -> "ContainerStack":
        other = copy(self)
        other.stack = [copy(container) for container in self.stack]
        return other

    def _continued(self) -> list[line_parser.Container]:
        """The containers of both the last row and the next one."""
        for place, container in enumerate(self.stack):
            if container.empty:
                return self.stack[:place]
        return self._visible()

    def _visible(self) -> list[line_parser.Container]:
        """The innermost containers that fit into half of the screen."""
        left = self.columns // 2
        for place in range(len(self.stack) - 1, -1, -1):
            left -= display_width(self._prefix(self.stack[place])[0])
            if left < 0:
                return self.stack[place + 1 :]
        return self.stack

    def _prefix(self, container: line_parser.Container) -> Span:
        if isinstance(container, line_parser.QuoteBlock):
            return (f"{self._theme.glyphs.bar} ", self._theme.faint, "")
        if container.empty:
            return (container.marker, container.style, "")
        return (" " * display_width(container.marker), "", "")


MAX_RULE = 64


class BlockParser:
    """Parses text line by line; a line of plain text may also come in pieces.

    Rows go to `rows` once later text cannot change them.
    """

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme = theme
        self._containers = ContainerStack(theme, columns)
        self._leaf: line_parser.LeafBlock | None = None
        self.rows: list[Row] = []

    @property
    def whole_lines(self) -> bool:
        """True if the open block accepts only complete lines."""
        return self._leaf is not None and self._leaf.whole_lines

    def begin(self, text: str, *, is_whole: bool) -> bool:
        """Parse a line or the start of one. False: call again with the complete line."""
        found = line_parser.parse_line(text, self._containers.stack, self._leaf, whole=is_whole)
        if found is None:
            return False
        self._apply(found)
        return True

    def more(self, text: str) -> None:
        """Add to the current line of text."""
        assert isinstance(self._leaf, Paragraph)
        self._emit(self._leaf.add(text))

    def close(self) -> None:
        self._leave(0)

    def take(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    def fork(self) -> "BlockParser":
        """A copy for drawing the unfinished rest."""
        other = copy(self)
        other._containers = self._containers.fork()
        other._leaf = self._leaf and self._leaf.fork()
        other.rows = self.rows[:]
        return other

    def resize(self, columns: int) -> None:
        self._containers.resize(columns)
        if self._leaf is not None:
            self._emit(self._leaf.resize(self._containers.room))

    def _apply(self, found: line_parser.LineAction) -> None:
        leaf = self._leaf
        if leaf is not None and (found.kind == "line" or found.continues):
            self._emit(leaf.line(found.rest.lstrip(" ") if found.continues else found.rest))
            self._leaf = None if leaf.closed else leaf
        elif leaf is not None and found.kind == "table":
            self._leaf = MarkdownTable(self._theme, self._containers.room, leaf.source, found.rest)
        elif leaf is not None and found.kind == "setext":
            self._leaf = None
            self._add_heading(leaf.source, 1 if found.rest.lstrip(" ")[0] == "=" else 2)
        else:
            self._leave(found.matched)
            for container in found.opened:
                self._containers.enter(container)
            self._open(found)

    def _open(self, found: line_parser.LineAction) -> None:
        rest = found.rest
        match found.kind:
            case "blank":
                self._containers.gap = self._containers.gap or not found.opened
            case "heading":
                marks, _, text = rest.strip().partition(" ")
                bare = text.rstrip("#")  # without closing marks
                self._add_heading(bare if bare[-1:] in ("", " ") else text, len(marks))
            case "rule":
                length = min(self._containers.room, MAX_RULE)
                self._emit([[(self._theme.glyphs.rule * length, self._theme.faint, "")]])
            case "fence":
                self._open_fence(rest)
            case "indented":
                self._leaf = IndentedCode(self._theme)
                self._emit(self._leaf.line(rest))
            case "html":
                html = HtmlBlock(self._theme, rest)
                self._emit(html.line(rest))
                self._leaf = None if html.closed else html
            case "formula":
                formula = FormulaBlock(self._theme, self._containers.room)
                self._emit(formula.line(rest))
                self._leaf = None if formula.closed else formula
            case _:
                text = self._containers.take_checkbox(rest.lstrip(" "))
                paragraph = self._leaf = Paragraph(self._theme, self._containers.room, held=found.kind == "held")
                self._emit(paragraph.add(text))

    def _open_fence(self, rest: str) -> None:
        found = line_parser.FENCE.match(rest.rstrip())
        assert found is not None
        mark, info = (found[1], found[2]) if found[1] else (found[3], found[4])
        fence = self._leaf = CodeBlock(self._theme, mark, info, found.start(1 if found[1] else 3))
        self._emit(fence.open())

    def _add_heading(self, text: str, level: int) -> None:
        """Add a heading, always with a blank line above."""
        self._containers.gap = self._containers.gap or not self._containers.empty
        style = self._theme.headings[level - 1]
        marks: Row = [("#" * level + " ", style, "")] if self._theme.marks else []
        row = marks + parse_inline(text.strip(), self._theme, style)
        self._emit(wrap_row(row, self._containers.room) if row else [])

    def _leave(self, remaining: int) -> None:
        """Close the open block and all containers but the outer `remaining`."""
        if self._leaf is not None:
            self._emit(self._leaf.close())
            if isinstance(self._leaf, IndentedCode) and self._leaf.blanks:
                self._containers.gap = True
            self._leaf = None
        self.rows += self._containers.leave(remaining)

    def _emit(self, rows: list[Row]) -> None:
        self.rows += self._containers.add_prefixes(rows)
