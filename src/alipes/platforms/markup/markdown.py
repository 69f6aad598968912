"""Reads Markdown into a `Flow`: blocks become lines, marks stay marks. It knows no platform."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from wcwidth import wcswidth

from alipes.platforms.markup.spans import (
    BLOCK,
    ITEM,
    LINE,
    Border,
    Flow,
    Mark,
    Span,
    Spans,
    harmless,
    plain,
)

_LINKS = re.compile(r"(?:https?|tg)://[^\s/?#@]+\S*", re.IGNORECASE)
_SPANS = {"strong": Mark("bold"), "em": Mark("italic"), "s": Mark("strike")}


class Page:
    """What has been written so far, and where it may be cut apart."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.size = 0
        self.indents: list[str] = []
        """What every line begins with, outermost first."""
        self.frame: tuple[Mark, ...] = ()
        """The marks of the blocks we are in."""
        self.marks: list[Mark] = []
        """The marks that are open inside the block."""
        self._before: tuple[Mark, ...] = ()
        self._borders: list[Border] = []

    @property
    def flow(self) -> Flow:
        return Flow(tuple(self.spans), tuple(self._borders))

    def put(self, text: str, *more: Mark) -> None:
        if text := harmless(text):
            self._add(Span(text, (*self.frame, *self.marks, *more)))

    def begin(self, breaks: int, rank: int) -> None:
        """A new block, `breaks` lines below what is there. A frame goes on over the gap if both are in it."""
        if self.size:
            self._add(Span("\n" * breaks, self.frame if self.frame == self._before else ()))
            self._borders.append((self.size, rank))

    def indent(self) -> None:
        if self.indents:
            self._add(Span("".join(self.indents), self.frame))

    def end_line(self, *more: Mark) -> None:
        """The next line of the same block."""
        self.put("\n", *more)
        self._borders.append((self.size, LINE))

    def lines(self, text: str, mark: Mark) -> None:
        for number, line in enumerate(text.split("\n")):
            if number:
                self.end_line(mark)
            self.put(line.expandtabs(4), mark)

    def _add(self, span: Span) -> None:
        self.spans.append(span)
        self.size += len(span.text)
        self._before = self.frame


def write(tokens: Sequence[Token], page: Page) -> None:
    """The text of one block."""
    for token in tokens:
        match token.type:
            case "text" | "text_special":
                page.put(token.content)
            case "softbreak" | "hardbreak":
                page.end_line()
                page.put("".join(page.indents))
            case "code_inline":
                page.put(token.content, Mark("code"))
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


def _end_link(page: Page) -> None:
    link = page.marks.pop()
    begin = len(page.spans)
    while begin and link in page.spans[begin - 1].marks:
        begin -= 1
    inside = page.spans[begin:]
    if inside and _LINKS.fullmatch(link.value):
        return
    # What is no address for a messenger is written out behind its text, which loses its mark.
    shown = "".join(span.text for span in inside)
    page.spans[begin:] = [Span(s.text, tuple(mark for mark in s.marks if mark != link)) for s in inside]
    if link.value and link.value not in (shown, f"mailto:{shown}"):
        page.put(f" ({link.value})" if inside else link.value)


def _image(token: Token, page: Page) -> None:
    address = _link(token, "src")
    shown = harmless("".join(child.content for child in token.children or [])) or "image"
    if _LINKS.fullmatch(address.value):
        page.put(shown, address)
    else:
        page.put(f"{shown} ({address.value})" if address.value else shown)


def _link(token: Token, name: str) -> Mark:
    return Mark("link", harmless(str(token.attrGet(name) or "")))


WIDEST = 64
_PRE = Mark("pre")


def drawn(rows: Sequence[Sequence[Spans]]) -> list[list[Span]]:
    """The lines of a table whose first row is its head."""
    cells = [[" ".join(plain(cell).split()) for cell in row] for row in rows]
    widths = [
        max(_width(row[column]) for row in cells if column < len(row)) for column in range(len(cells[0]))
    ]
    if sum(widths) + 3 * (len(widths) - 1) > WIDEST and len(rows) > 1 and len(widths) > 1:
        return _stacked(rows)
    lines = [_row(row, widths) for row in cells]
    lines.insert(1, "─┼─".join("─" * width for width in widths))
    return [[Span(line, (_PRE,))] for line in lines]


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
    return " │ ".join(padded).rstrip()


def _stacked(rows: Sequence[Sequence[Spans]]) -> list[list[Span]]:
    """Every cell on a line of its own, behind the name of its column; an empty line between rows."""
    head, *rest = rows
    lines: list[list[Span]] = []
    for number, row in enumerate(rest):
        if number:
            lines.append([])
        for name, cell in zip(head, row, strict=False):
            bold = [Span(span.text, (Mark("bold"), *span.marks)) for span in name]
            lines.append([*bold, Span(": " if name else ""), *cell])
    return lines


def _width(text: str) -> int:
    columns = len(text) if text.isascii() else wcswidth(text)
    return columns if columns >= 0 else len(text)


DEEPEST = 60
_PARSER = (
    # Definitions of links stay text: one that nobody refers to would be lost.
    MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    .enable(["table", "strikethrough"])
    .disable("reference")
)
_NEWLINE = re.compile(r"\r\n?|\n")
_PIPES = re.compile(r"(?<!\\)\|")


def read(markdown: str) -> Flow:
    """What a person sees of a Markdown text. Nothing that could be read in the source is left out."""
    tokens = _PARSER.parse(markdown)
    if any(token.level >= DEEPEST - 1 for token in tokens):
        # The parser leaves out what lies deeper.
        return _as_written(markdown)
    return _Blocks(tokens, markdown).read()


def _as_written(text: str) -> Flow:
    spans, borders, size = [], [], 0
    for line in harmless(text.replace("\r", "\n")).splitlines(keepends=True):
        borders.append((size, LINE))
        spans.append(Span(line))
        size += len(line)
    return Flow(tuple(spans), tuple(borders))


class _Blocks:
    """A fold over the tokens of the parser."""

    def __init__(self, tokens: Sequence[Token], source: str) -> None:
        self._tokens, self._source = tokens, source
        self._page = Page()
        self._numbers: list[int | None] = []
        """Per open list: its next number; None for bullets."""
        self._list_begins = False
        self._on_bullet = False
        """A bullet was written and nothing behind it yet."""
        self._below_heading = False
        self._quotes = 0
        self._depth = 0
        """How many quotes are open."""

    def read(self) -> Flow:
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
                write(token.children or [], self._page)
            case "heading_open":
                self._line(2)
                self._page.marks.append(Mark("bold"))
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
                    self._page.frame = (Mark("quote", str(self._quotes)),)
            case "blockquote_close":
                self._depth -= 1
                if self._depth:
                    self._page.indents.pop()
                else:
                    self._page.frame = ()

    def _item(self, following: Token) -> None:
        number = self._numbers[-1]
        bullet = "• " if number is None else f"{number}. "
        # A list stands off from what is before it, an item only if the source spaced its items.
        spaced = following.type == "paragraph_open" and not following.hidden
        self._line(2 if (spaced or self._list_begins) and len(self._numbers) == 1 else 1, ITEM)
        self._list_begins = False
        self._page.put(bullet)
        if number is not None:
            self._numbers[-1] = number + 1
        self._page.indents.append(" " * len(bullet))
        self._on_bullet = True

    def _line(self, breaks: int, rank: int = BLOCK, *, apart: bool = False) -> None:
        """Begin a line for a block; behind a bullet a text goes on, but not what stands `apart`."""
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
        self._page.lines(token.content.rstrip("\n") or " ", Mark("pre", harmless(language)))

    def _table(self, place: int) -> int:
        """Draw the table that begins here; gives the place of its end."""
        end = next(n for n in range(place, len(self._tokens)) if self._tokens[n].type == "table_close")
        rows: list[list[Spans]] = []
        for token in self._tokens[place:end]:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                write(token.children or [], cell := Page())
                rows[-1].append(cell.flow.spans)
        self._line(2, apart=True)
        if lines := self._surplus(self._tokens[place].map or [0, 0], len(rows[0])):
            self._page.lines("\n".join(lines), Mark("pre"))
            return end
        for number, line in enumerate(drawn(rows)):
            if number:
                self._page.end_line(*(mark for span in line[:1] for mark in span.marks if mark.kind == "pre"))
            for span in line:
                self._page.put(span.text, *span.marks)
        return end

    def _surplus(self, where: Sequence[int], columns: int) -> list[str]:
        """The source of a table with a row that has more cells than the head: the parser would drop them."""
        lines = [line.strip() for line in _NEWLINE.split(self._source)[where[0] : where[1]]]
        counts = [len(_PIPES.findall(line.strip("|"))) + 1 for line in lines]
        return lines if any(count > columns for count in counts) else []
