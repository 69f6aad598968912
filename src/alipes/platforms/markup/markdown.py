"""Parses Markdown into marked text: blocks become lines, inline markup becomes marks."""

import re
from collections.abc import Callable, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from wcwidth import wcswidth

from alipes.kernel.platform import MessagePart
from alipes.platforms.markup.spans import (
    BLOCK,
    ITEM,
    LINE,
    Border,
    MarkedText,
    Span,
    Spans,
    TextMark,
    join_text,
    plain_text,
    split_text,
    strip_controls,
)

_LINKS = re.compile(r"(?:https?|tg)://[^\s/?#@]+\S*", re.IGNORECASE)
_SPANS = {"strong": TextMark("bold"), "em": TextMark("italic"), "s": TextMark("strike")}


class TextBuilder:
    """Collects the spans of a text and the places where it may be split."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.size = 0
        self.indents: list[str] = []
        """Prefixes of every line, outermost first."""
        self.frame: tuple[TextMark, ...] = ()
        """Marks of the enclosing blocks."""
        self.marks: list[TextMark] = []
        """Open inline marks."""
        self._before: tuple[TextMark, ...] = ()
        self._borders: list[Border] = []

    @property
    def flow(self) -> MarkedText:
        return MarkedText(tuple(self.spans), tuple(self._borders))

    def put(self, text: str, *more: TextMark) -> None:
        if text := strip_controls(text):
            self._add(Span(text, (*self.frame, *self.marks, *more)))

    def begin(self, breaks: int, rank: int) -> None:
        """Start a block `breaks` lines below the text so far. A quote continues over the gap if both are in it."""
        if self.size:
            self._add(Span("\n" * breaks, self.frame if self.frame == self._before else ()))
            self._borders.append((self.size, rank))

    def indent(self) -> None:
        if self.indents:
            self._add(Span("".join(self.indents), self.frame))

    def end_line(self, *more: TextMark) -> None:
        """Start the next line of the same block."""
        self.put("\n", *more)
        self._borders.append((self.size, LINE))

    def lines(self, text: str, mark: TextMark) -> None:
        for number, line in enumerate(text.split("\n")):
            if number:
                self.end_line(mark)
            self.put(line.expandtabs(4), mark)

    def _add(self, span: Span) -> None:
        self.spans.append(span)
        self.size += len(span.text)
        self._before = self.frame


def write_inline(tokens: Sequence[Token], page: TextBuilder) -> None:
    """Add the inline content of one block."""
    for token in tokens:
        match token.type:
            case "text" | "text_special":
                page.put(token.content)
            case "softbreak" | "hardbreak":
                page.end_line()
                page.put("".join(page.indents))
            case "code_inline":
                page.put(token.content, TextMark("code"))
            case "image":
                _image(token, page)
            case "link_open":
                page.marks.append(_link(token, "href"))
            case "link_close":
                _end_link(page)
            case "strong_open" | "em_open" | "s_open":
                page.marks.append(_SPANS[token.tag])
            case "strong_close" | "em_close" | "s_close":
                page.marks.pop()


def _end_link(page: TextBuilder) -> None:
    link = page.marks.pop()
    begin = len(page.spans)
    while begin and link in page.spans[begin - 1].marks:
        begin -= 1
    inside = page.spans[begin:]
    if inside and _LINKS.fullmatch(link.value):
        return
    # what a messenger does not accept as a link is written out behind its text
    shown = join_text(inside)
    page.spans[begin:] = [span.without(link) for span in inside]
    if link.value and link.value not in (shown, f"mailto:{shown}"):
        page.put(f" ({link.value})" if inside else link.value)


def _image(token: Token, page: TextBuilder) -> None:
    address = _link(token, "src")
    shown = strip_controls("".join(child.content for child in token.children or [])) or "image"
    if _LINKS.fullmatch(address.value):
        page.put(shown, address)
    else:
        page.put(f"{shown} ({address.value})" if address.value else shown)


def _link(token: Token, name: str) -> TextMark:
    return TextMark("link", strip_controls(str(token.attrGet(name) or "")))


WIDEST = 64
_PRE = TextMark("pre")


def draw_table(rows: Sequence[Sequence[Spans]]) -> list[list[Span]]:
    """Lines of a table; the first row is its head."""
    cells = [[" ".join(plain_text(cell).split()) for cell in row] for row in rows]
    widths = [max(_width(row[column]) for row in cells if column < len(row)) for column in range(len(cells[0]))]
    if sum(widths) + 3 * (len(widths) - 1) > WIDEST and len(rows) > 1 and len(widths) > 1:
        return _stacked(rows)
    lines = [_row(row, widths) for row in cells]
    lines.insert(1, "─┼─".join("─" * width for width in widths))
    return [[Span(line, (_PRE,))] for line in lines]


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
    return " │ ".join(padded).rstrip()


def _stacked(rows: Sequence[Sequence[Spans]]) -> list[list[Span]]:
    """One line per cell, with the name of its column; an empty line between rows."""
    head, *rest = rows
    lines: list[list[Span]] = []
    for number, row in enumerate(rest):
        if number:
            lines.append([])
        for name, cell in zip(head, row, strict=False):
            bold = [Span(span.text, (TextMark("bold"), *span.marks)) for span in name]
            lines.append([*bold, Span(": " if name else ""), *cell])
    return lines


def _width(text: str) -> int:
    columns = len(text) if text.isascii() else wcswidth(text)
    return columns if columns >= 0 else len(text)


DEEPEST = 60
_PARSER = (
    # link definitions stay text: an unused one would be lost
    MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    .enable(["table", "strikethrough"])
    .disable("reference")
)
_NEWLINE = re.compile(r"\r\n?|\n")
_PIPES = re.compile(r"(?<!\\)\|")


def format_parts(
    markdown: str, longest: int, fits: Callable[[Spans], bool], write: Callable[[Spans], str]
) -> tuple[MessagePart, ...]:
    """Split a text into messages that fit, none longer than `longest`, each with complete markup."""
    parts = split_text(parse_markdown(markdown), fits, longest)
    return tuple(MessagePart(text=write(part), plain=plain_text(part)) for part in parts)


def parse_markdown(markdown: str) -> MarkedText:
    """Parse a Markdown text. Nothing visible in the source is lost."""
    tokens = _PARSER.parse(markdown)
    if any(token.level >= DEEPEST - 1 for token in tokens):
        # the parser drops what is nested deeper
        return _as_written(markdown)
    return _Blocks(tokens, markdown).read()


def _as_written(text: str) -> MarkedText:
    spans, borders, size = [], [], 0
    for line in strip_controls(text.replace("\r", "\n")).splitlines(keepends=True):
        borders.append((size, LINE))
        spans.append(Span(line))
        size += len(line)
    return MarkedText(tuple(spans), tuple(borders))


class _Blocks:
    """Folds the parser's tokens into text."""

    def __init__(self, tokens: Sequence[Token], source: str) -> None:
        self._tokens, self._source = tokens, source
        self._page = TextBuilder()
        self._numbers: list[int | None] = []
        """Next number of each open list; None for bullets."""
        self._list_begins = False
        self._on_bullet = False
        """True right after a bullet."""
        self._below_heading = False
        self._quotes = 0
        self._depth = 0
        """Number of open quotes."""

    def read(self) -> MarkedText:
        place = 0
        while place < len(self._tokens):
            token = self._tokens[place]
            if token.type == "table_open":
                place = self._table(place)
            else:
                self._take(token, self._tokens[place + 1] if place + 1 < len(self._tokens) else token)
            place += 1
        return self._page.flow

    def _take(self, token: Token, following: Token) -> None:
        match token.type:
            case "paragraph_open":
                self._line(1 if token.hidden else 2)
            case "inline":
                self._on_bullet = False
                write_inline(token.children or [], self._page)
            case "heading_open":
                self._line(2)
                self._page.marks.append(TextMark("bold"))
            case "heading_close":
                self._page.marks.pop()
                self._below_heading = True
            case "fence" | "code_block":
                self._code(token)
            case "hr":
                self._line(2)
                self._page.put("———")
            case _:
                self._nest(token, following)

    def _nest(self, token: Token, following: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                start = token.attrGet("start")
                ordered = token.type == "ordered_list_open"
                self._numbers.append(None if not ordered else 1 if start is None else int(start))
                self._list_begins = True
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
            case "list_item_open":
                self._item(following)
            case "list_item_close":
                self._page.indents.pop()
                self._on_bullet = False
            case "blockquote_open":
                self._quotes += 1
                self._depth += 1
                if self._depth > 1:
                    self._page.indents.append("> ")
                else:
                    self._page.frame = (TextMark("quote", str(self._quotes)),)
            case "blockquote_close":
                self._depth -= 1
                if self._depth:
                    self._page.indents.pop()
                else:
                    self._page.frame = ()

    def _item(self, following: Token) -> None:
        number = self._numbers[-1]
        bullet = "• " if number is None else f"{number}. "
        # a list is separated from the text before it, an item only if the source separates items
        spaced = following.type == "paragraph_open" and not following.hidden
        self._line(2 if (spaced or self._list_begins) and len(self._numbers) == 1 else 1, ITEM)
        self._list_begins = False
        self._page.put(bullet)
        if number is not None:
            self._numbers[-1] = number + 1
        self._page.indents.append(" " * len(bullet))
        self._on_bullet = True

    def _line(self, breaks: int, rank: int = BLOCK, *, apart: bool = False) -> None:
        """Start a line for a block. Text continues behind a bullet, except for blocks that stand `apart`."""
        beside, self._on_bullet = self._on_bullet, False
        if beside and not apart:
            return
        page = self._page
        if self._below_heading or len(page.indents) > 1:
            rank = LINE
        elif page.indents or page.frame:
            rank = min(rank, ITEM)
        page.begin(1 if beside else breaks, rank)
        self._below_heading = False
        if not apart:
            page.indent()

    def _code(self, token: Token) -> None:
        self._line(2, apart=True)
        language = token.info.split()[0] if token.info.split() else ""
        self._page.lines(token.content.rstrip("\n") or " ", TextMark("pre", strip_controls(language)))

    def _table(self, place: int) -> int:
        """Draw the table that starts here; returns the index of its end."""
        end = next(n for n in range(place, len(self._tokens)) if self._tokens[n].type == "table_close")
        rows: list[list[Spans]] = []
        for token in self._tokens[place:end]:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                write_inline(token.children or [], cell := TextBuilder())
                rows[-1].append(cell.flow.spans)
        self._line(2, apart=True)
        if lines := self._surplus(self._tokens[place].map or [0, 0], len(rows[0])):
            self._page.lines("\n".join(lines), TextMark("pre"))
            return end
        for number, line in enumerate(draw_table(rows)):
            if number:
                self._page.end_line(*(mark for span in line[:1] for mark in span.marks if mark.kind == "pre"))
            for span in line:
                self._page.put(span.text, *span.marks)
        return end

    def _surplus(self, where: Sequence[int], columns: int) -> list[str]:
        """Source lines of a table with more cells in a row than in its head: the parser would drop them."""
        lines = [line.strip() for line in _NEWLINE.split(self._source)[where[0] : where[1]]]
        counts = [len(_PIPES.findall(line.strip("|"))) + 1 for line in lines]
        return lines if any(count > columns for count in counts) else []
