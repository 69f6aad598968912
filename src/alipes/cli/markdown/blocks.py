"""The open blocks of a text and the rows they have finished. It is told lines and knows no screen."""

from copy import copy

from alipes.cli.markdown.code_block import Fence
from alipes.cli.markdown.inline import Inline, whole
from alipes.cli.markdown.line_parser import FENCE, TASK, Container, Item, Leaf, Plan, Quote, plan
from alipes.cli.markdown.table import Table
from alipes.cli.markdown.wrap import Flow, Row, Span, trimmed
from alipes.cli.theme import Theme
from alipes.cli.width import width


class Paragraph:
    """Text that flows. A line break in the source is one on the screen, as people who chat mean it."""

    whole_lines = patient = over = False

    def __init__(self, theme: Theme, width: int, *, held: bool = False) -> None:
        self._inline, self._flow = Inline(theme), Flow(width)
        self._held: str | None = "" if held else None
        """A line that may be the head of a table is kept back until the next one tells."""
        self._draft = False
        self.source = ""
        self._alone = True

    def accepts(self, text: str) -> bool:
        return False

    def add(self, text: str) -> list[Row]:
        """More of the line that is open."""
        if self._alone:
            self.source += text
        if self._held is not None:
            self._held += text
            return []
        self._pour(text)
        return self._taken()

    def line(self, text: str) -> list[Row]:
        """A new line; what was the only line so far no longer is."""
        self._alone, self.source = False, ""
        held, self._held = self._held, None
        self._pour(f"{held or ''}\n{text}")
        return self._flow.take()

    def close(self) -> list[Row]:
        if self._held:
            self._pour(self._held)
        for span in self._inline.close(draft=self._draft):
            self._flow.add(*span)
        self._flow.close()
        return self._flow.take()

    def fork(self) -> "Paragraph":
        other = copy(self)
        other._inline, other._flow, other._draft = self._inline.fork(), self._flow.fork(), True
        return other

    def resize(self, width: int) -> list[Row]:
        self._flow.resize(width)
        return self._taken()

    def _taken(self) -> list[Row]:
        rows = self._flow.take()
        if rows:
            self._alone, self.source = False, ""
        return rows

    def _pour(self, text: str) -> None:
        for span in self._inline.feed(text):
            self._flow.add(*span)


class Indented:
    """Code by indentation. Blank lines within it are shown, those behind it are not."""

    whole_lines, patient, over, source = True, False, False, ""

    def __init__(self, theme: Theme) -> None:
        self._style = theme.code
        self._blanks = 0

    def accepts(self, text: str) -> bool:
        return not text.strip() or text.startswith("    ")

    def line(self, text: str) -> list[Row]:
        if not text.strip():
            self._blanks += 1
            return []
        rows: list[Row] = [[] for _ in range(self._blanks)]
        self._blanks = 0
        return [*rows, [(text[:4].lstrip(" ") + text[4:], self._style, "")]]

    def close(self) -> list[Row]:
        return []

    @property
    def trailing(self) -> bool:
        """Blank lines came behind it, which are now between it and what follows."""
        return self._blanks > 0

    def fork(self) -> "Indented":
        return copy(self)

    def resize(self, width: int) -> list[Row]:
        return []


class Html:
    """Raw HTML, line by line as it was written: a terminal has no use for it, a reader may have."""

    whole_lines, patient, source = True, False, ""

    def __init__(self, theme: Theme, first: str) -> None:
        self._style = theme.faint
        start = first.lstrip(" ").lower()
        ends = {"<!--": "-->", "<script": "</script>", "<style": "</style>", "<pre": "</pre>"}
        self._end = next((end for begin, end in ends.items() if start.startswith(begin)), "")
        self.over = False

    def accepts(self, text: str) -> bool:
        return bool(self._end or text.strip())

    def line(self, text: str) -> list[Row]:
        self.over = bool(self._end) and self._end in text.lower()
        return [[(text, self._style, "")]]

    def close(self) -> list[Row]:
        return []

    def fork(self) -> "Html":
        return copy(self)

    def resize(self, width: int) -> list[Row]:
        return []


NARROWEST = 10


class Margin:
    """The containers that are open, from the outside in, on a screen of `columns`."""

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme = theme
        self.columns = max(NARROWEST, columns)
        self.stack: list[Container] = []
        self.gap = False
        """A blank line belongs before the next row."""
        self._begun = False

    @property
    def room(self) -> int:
        """The columns left to what the containers hold."""
        return max(NARROWEST, self.columns - sum(width(self._lead(holder)[0]) for holder in self._shown()))

    @property
    def fresh(self) -> bool:
        """The next row is the first in some container, so it stands beside a marker."""
        return any(container.fresh for container in self.stack)

    def enter(self, container: Container) -> None:
        if isinstance(container, Item):
            bullets = self._theme.glyphs.bullets
            depth = sum(isinstance(outer, Item) and not outer.number for outer in self.stack)
            container.marker = f"{container.number or bullets[depth % len(bullets)]} "
            container.style = self._theme.marker
        self.stack.append(container)

    def leave(self, remaining: int) -> list[Row]:
        """Close containers from the inside; an item in which nothing was said still shows its marker."""
        rows: list[Row] = []
        while len(self.stack) > remaining:
            innermost = self.stack[-1]
            if isinstance(innermost, Item) and innermost.fresh:
                rows += self.framed([[]])
            self.stack.pop()
        return rows

    def tick(self, text: str) -> str:
        """A box at the beginning of the text becomes the marker of its item; the rest of the text."""
        item = self.stack[-1] if self.stack else None
        if not isinstance(item, Item) or not item.fresh or not (task := TASK.match(text)):
            return text
        done = task[1] != " "
        item.marker = f"[{'x' if done else ' '}] "
        item.style = self._theme.done if done else self._theme.marker
        return text[task.end() :]

    def framed(self, rows: list[Row]) -> list[Row]:
        """The rows as they stand within the containers, behind a blank line where one belongs."""
        out: list[Row] = []
        for row in rows:
            if self.gap and self._begun:
                out.append(trimmed([self._lead(container) for container in self._old()]))
            self.gap, self._begun = False, True
            lead = [self._lead(container) for container in self._shown()]
            for container in self.stack:
                container.fresh = False
            out.append(lead + row if row else trimmed(lead))
        return out

    def resize(self, columns: int) -> None:
        self.columns = max(NARROWEST, columns)

    def fork(self) -> "Margin":
        other = Margin(self._theme, self.columns)
        other.stack = [_copy(container) for container in self.stack]
        other.gap, other._begun = self.gap, self._begun
        return other

    def _old(self) -> list[Container]:
        """The containers that hold both what was shown last and what comes next."""
        for place, container in enumerate(self.stack):
            if container.fresh:
                return self.stack[:place]
        return self._shown()

    def _shown(self) -> list[Container]:
        """The innermost containers for which there is room; half the screen is left to what they hold."""
        left = self.columns // 2
        for place in range(len(self.stack) - 1, -1, -1):
            left -= width(self._lead(self.stack[place])[0])
            if left < 0:
                return self.stack[place + 1 :]
        return self.stack

    def _lead(self, container: Container) -> Span:
        """What stands before a row in this container."""
        if isinstance(container, Quote):
            return (f"{self._theme.glyphs.bar} ", self._theme.faint, "")
        if container.fresh:
            return (container.marker, container.style, "")
        return (" " * width(container.marker), "", "")


def _copy(container: Container) -> Container:
    if isinstance(container, Quote):
        return Quote(container.fresh)
    return Item(container.indent, container.number, container.marker, container.style, container.fresh)


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
