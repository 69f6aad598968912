"""Reads Markdown into a `Flow`: blocks become lines, marks stay marks. It knows no platform."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from alipes.platforms.markup import BLOCK, ITEM, LINE, Flow, Mark, Span, Spans, harmless
from alipes.platforms.markup.inline import Page, write
from alipes.platforms.markup.table import drawn

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
