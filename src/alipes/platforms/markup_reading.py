"""Reads Markdown into a `Flow`: blocks become lines, marks stay marks. It knows no platform."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from alipes.platforms.markup import BLOCK, ITEM, LINE, Border, Flow, Mark, Span, Spans, harmless
from alipes.platforms.markup_table import drawn

DEEPEST = 60
_PARSER = (
    # Definitions of links stay text: one that nobody refers to would be lost.
    MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    .enable(["table", "strikethrough"])
    .disable("reference")
)
_LINKS = re.compile(r"(?:https?|tg)://[^\s/?#@]+\S*", re.IGNORECASE)
_PIPES = re.compile(r"(?<!\\)\|")
_SPANS = {"strong": Mark("bold"), "em": Mark("italic"), "s": Mark("strike")}


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
        self._spans: list[Span] = []
        self._borders: list[Border] = []
        self._size = 0
        self._indents: list[str] = []
        self._frame: tuple[Mark, ...] = ()
        """The marks of the blocks we are in; and of those the last text was in."""
        self._before: tuple[Mark, ...] = ()
        self._marks: list[Mark] = []
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
        return Flow(tuple(self._spans), tuple(self._borders))

    def _take(self, token: Token, following: Token) -> None:
        match token.type:
            case "paragraph_open":
                self._line(1 if token.hidden else 2)
            case "inline":
                self._inline(token.children or [])
            case "heading_open":
                self._line(2)
                self._marks.append(Mark("bold"))
            case "heading_close":
                self._marks.pop()
                self._below_heading = True
            case "fence" | "code_block":
                self._code(token)
            case "hr":
                self._line(2)
                self._put("———")
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
                self._indents.pop()
                self._on_bullet = False
            case "blockquote_open":
                self._quotes += 1
                self._depth += 1
                if self._depth > 1:
                    self._indents.append("> ")
                else:
                    self._frame = (Mark("quote", str(self._quotes)),)
            case "blockquote_close":
                self._depth -= 1
                if self._depth:
                    self._indents.pop()
                else:
                    self._frame = ()

    def _item(self, following: Token) -> None:
        number = self._numbers[-1]
        bullet = "• " if number is None else f"{number}. "
        # A list stands off from what is before it, an item only if the source spaced its items.
        spaced = following.type == "paragraph_open" and not following.hidden
        self._line(2 if (spaced or self._list_begins) and len(self._numbers) == 1 else 1, ITEM)
        self._list_begins = False
        self._put(bullet)
        if number is not None:
            self._numbers[-1] = number + 1
        self._indents.append(" " * len(bullet))
        self._on_bullet = True

    def _line(self, breaks: int, rank: int = BLOCK, *, apart: bool = False) -> None:
        """Begin a line for a block; behind a bullet a text goes on, but not what stands `apart`."""
        beside, self._on_bullet = self._on_bullet, False
        if beside and not apart:
            return
        if self._size:
            nested = bool(self._indents) or bool(self._frame)
            rank = (
                LINE if self._below_heading or len(self._indents) > 1 else min(rank, ITEM) if nested else rank
            )
            shared = self._frame if self._frame == self._before else ()
            self._add(Span("\n" * (1 if beside else breaks), shared))
            self._borders.append((self._size, rank))
        self._below_heading = False
        if self._indents and not apart:
            self._add(Span("".join(self._indents), self._frame))

    def _put(self, text: str, *more: Mark) -> None:
        if text := harmless(text):
            self._add(Span(text, (*self._frame, *self._marks, *more)))

    def _add(self, span: Span) -> None:
        self._spans.append(span)
        self._size += len(span.text)
        self._before = self._frame

    def _code(self, token: Token) -> None:
        self._line(2, apart=True)
        language = token.info.split()[0] if token.info.split() else ""
        self._lines(token.content.rstrip("\n") or " ", Mark("pre", harmless(language)))

    def _lines(self, text: str, mark: Mark) -> None:
        for number, line in enumerate(text.split("\n")):
            if number:
                self._put("\n", mark)
                self._borders.append((self._size, LINE))
            self._put(line.expandtabs(4), mark)

    def _inline(self, tokens: Sequence[Token]) -> None:
        self._on_bullet = False
        for token in tokens:
            match token.type:
                case "text" | "text_special":
                    self._put(token.content)
                case "softbreak" | "hardbreak":
                    self._break()
                case "code_inline":
                    self._put(token.content, Mark("code"))
                case "image":
                    self._image(token)
                case "link_open":
                    self._marks.append(_link(token, "href"))
                case "link_close":
                    self._end_link()
                case "strong_open" | "em_open" | "s_open":
                    self._marks.append(_SPANS[token.tag])
                case "strong_close" | "em_close" | "s_close":
                    self._marks.pop()

    def _break(self) -> None:
        self._put("\n")
        self._borders.append((self._size, LINE))
        if self._indents:
            self._put("".join(self._indents))

    def _end_link(self) -> None:
        link = self._marks.pop()
        empty = not (self._spans and link in self._spans[-1].marks)
        if empty or not _LINKS.fullmatch(link.value):
            self._unlinked(link, empty)

    def _unlinked(self, link: Mark, empty: bool) -> None:
        """What is no address for a messenger is written out behind its text, which loses its mark."""
        begin = len(self._spans)
        while begin and link in self._spans[begin - 1].marks:
            begin -= 1
        shown = "".join(span.text for span in self._spans[begin:])
        self._spans[begin:] = [
            Span(span.text, tuple(mark for mark in span.marks if mark != link))
            for span in self._spans[begin:]
        ]
        if link.value and link.value not in (shown, f"mailto:{shown}"):
            self._put(link.value if empty else f" ({link.value})")

    def _image(self, token: Token) -> None:
        address = _link(token, "src")
        shown = harmless("".join(child.content for child in token.children or [])) or "image"
        if _LINKS.fullmatch(address.value):
            self._put(shown, address)
        else:
            self._put(f"{shown} ({address.value})" if address.value else shown)

    def _table(self, place: int) -> int:
        """Draw the table that begins here; gives the place of its end."""
        end = next(n for n in range(place, len(self._tokens)) if self._tokens[n].type == "table_close")
        rows: list[list[Spans]] = []
        for token in self._tokens[place:end]:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(_Blocks((token,), "").read().spans)
        self._line(2, apart=True)
        lines = self._surplus(self._tokens[place].map or [0, 0], len(rows[0]))
        if lines:
            self._lines("\n".join(lines), Mark("pre"))
            return end
        for number, line in enumerate(drawn(rows)):
            if number:
                self._put("\n", *(line[0].marks[:1] if line and line[0].marks[:1] == (Mark("pre"),) else ()))
                self._borders.append((self._size, LINE))
            for span in line:
                self._put(span.text, *span.marks)
        return end

    def _surplus(self, where: Sequence[int], columns: int) -> list[str]:
        """The source of a table with a row that has more cells than the head: the parser would drop them."""
        lines = [line.strip() for line in self._source.splitlines()[where[0] : where[1]]]
        counts = [len(_PIPES.findall(line.strip("|"))) + 1 for line in lines]
        return lines if any(count > columns for count in counts) else []


def _link(token: Token, name: str) -> Mark:
    return Mark("link", harmless(str(token.attrGet(name) or "")))
