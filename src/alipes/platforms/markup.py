"""Marked text: parsed from Markdown, split into messages, and written by each platform in its own markup."""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from wcwidth import wcswidth

from alipes.kernel.platform import MessagePart
from alipes.runtime.links import is_misleading

Kind: TypeAlias = Literal["bold", "italic", "strike", "code", "pre", "link", "quote"]
Border: TypeAlias = tuple[int, int]
"""Where a message may end (an offset), and how good that is (0 to 4)."""

BLOCK, ITEM, LINE, SENTENCE, WORD = 4, 3, 2, 1, 0
_FLOORS = {BLOCK: 0.3, ITEM: 0.4, LINE: 0.5, SENTENCE: 0.6, WORD: 0.5}
"""How full a message must be for a border of this rank to count; otherwise parts would get too small."""
_SENTENCE = re.compile(r"[.!?…:;]['\")\]»”]*\s+|[。！？；]")
_WORD = re.compile(r"\s+|[、，]")
_CLINGING = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp", "Zs"))
_UNSAYABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class TextMark(Struct, frozen=True):
    """How some text is shown. Marks with different values are different, also side by side."""

    kind: Kind
    value: str = ""
    """Address of a link, language of code, or number of a quote."""


Marks: TypeAlias = tuple[TextMark, ...]


class Span(Struct, frozen=True):
    text: str
    marks: Marks = ()
    """Outermost first."""

    def find(self, *kinds: Kind) -> TextMark | None:
        """The outermost mark of these kinds."""
        return next((mark for mark in self.marks if mark.kind in kinds), None)

    def without(self, mark: TextMark) -> "Span":
        return Span(self.text, tuple(each for each in self.marks if each != mark))


Spans: TypeAlias = tuple[Span, ...]


class MarkedText(Struct, frozen=True):
    """A whole text and the places where it may be split."""

    spans: Spans
    borders: tuple[Border, ...] = ()


def join_text(spans: Iterable[Span]) -> str:
    return "".join(span.text for span in spans)


def inline_marks(span: Span) -> Marks:
    """Marks of a span inside of its block: each kind once, the innermost last, and code innermost of all."""
    kinds = {mark.kind: mark for mark in reversed(span.marks) if mark.kind not in ("quote", "pre")}
    return tuple(sorted(reversed(kinds.values()), key=lambda mark: mark.kind == "code"))


def shared_marks(one: Marks, other: Marks) -> Marks:
    """The marks with which both begin."""
    return tuple(mine for mine, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def escape_html(text: str) -> str:
    return html.escape(text, quote=False)


def escape_attribute(text: str) -> str:
    return escape_html(text).replace('"', "&quot;")


def write_html(spans: Spans, names: Mapping[str, str], choose_marks: Callable[[Span], Marks]) -> str:
    """Write spans as balanced HTML: each closes what the next does not need. `names`: the tag of each mark."""
    out: list[str] = []
    opened: Marks = ()
    for span in (*spans, Span("")):
        marks = choose_marks(span)
        kept = len(shared_marks(opened, marks))
        out += [_tags(mark, names)[1] for mark in reversed(opened[kept:])]
        out += [_tags(mark, names)[0] for mark in marks[kept:]]
        out.append(escape_html(span.text))
        opened = marks
    return "".join(out)


def _tags(mark: TextMark, names: Mapping[str, str]) -> tuple[str, str]:
    value = escape_attribute(mark.value)
    match mark.kind:
        case "link":
            return f'<a href="{value}">', "</a>"
        case "pre" if value:
            return f'<pre><code class="language-{value}">', "</code></pre>"
        case kind:
            return f"<{names[kind]}>", f"</{names[kind]}>"


def strip_controls(text: str) -> str:
    """Remove control characters, direction marks and lone surrogates."""
    return text if text.isprintable() else _UNSAYABLE.sub("", text)


def utf16_length(text: str) -> int:
    """Length in UTF-16 units, as Telegram counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def plain_text(spans: Iterable[Span]) -> str:
    """Text without marks; addresses of links are written out."""
    out: list[str] = []
    link, shown = "", ""

    def leave() -> None:
        if link and link not in (shown.strip(), f"mailto:{shown.strip()}"):
            out.append(f" ({link})")

    for span in spans:
        leads = next((mark.value for mark in span.marks if mark.kind == "link"), "")
        if leads != link:
            leave()
            link, shown = leads, ""
        shown += span.text
        out.append(span.text)
    leave()
    return "".join(out)


def split_text(flow: MarkedText, fits: Callable[[Spans], bool], longest: int) -> tuple[Spans, ...]:
    """Split a text into parts that fit, each at the best border near its end. Only whitespace is dropped.

    If `fits` accepts a text it must accept every beginning of it; no part longer than `longest` fits.
    """
    rest, borders, parts = _Rest(flow.spans), flow.borders, []
    while rest.left:
        room = _room(rest, fits, longest)
        # if less than one character fits, take one anyway
        end = rest.left if room >= rest.left else max(1, _end(rest, room, borders))
        if part := _trimmed(rest.take(end)):
            parts.append(part)
        rest.skip_lines()
    return tuple(parts)


class _Rest:
    """The part of a text that is not split off yet. Borders keep their offsets in the whole text."""

    def __init__(self, spans: Spans) -> None:
        self._spans = [span for span in reversed(spans) if span.text]
        self.left = sum(len(span.text) for span in self._spans)
        self.gone = 0

    def peek(self, count: int) -> Spans:
        out: list[Span] = []
        for span in reversed(self._spans):
            if count <= 0:
                break
            out.append(span if len(span.text) <= count else Span(span.text[:count], span.marks))
            count -= len(span.text)
        return tuple(out)

    def take(self, count: int) -> Spans:
        out = self.peek(count)
        self.left, self.gone = self.left - count, self.gone + count
        while count > 0:
            span = self._spans.pop()
            if len(span.text) > count:
                self._spans.append(Span(span.text[count:], span.marks))
            count -= len(span.text)
        return out

    def skip_lines(self) -> None:
        while self._spans and (first := self._spans[-1].text).startswith("\n"):
            self.take(len(first) - len(first.lstrip("\n")))


def _room(rest: _Rest, fits: Callable[[Spans], bool], longest: int) -> int:
    """Number of characters of the rest that fit."""
    low, high = 0, min(rest.left, longest)
    if fits(rest.peek(high)):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if fits(rest.peek(middle)):
            low = middle
        else:
            high = middle - 1
    return low


def _end(rest: _Rest, room: int, borders: Sequence[Border]) -> int:
    here = rest.gone
    known = [(at - here, rank) for at, rank in borders if here < at <= here + room]
    text = join_text(rest.peek(room + 1))
    for rank, floor in _FLOORS.items():
        found = [at for at, its in known if its == rank]
        if rank < LINE:
            pattern = _SENTENCE if rank == SENTENCE else _WORD
            found = [match.end() for match in pattern.finditer(text) if match.end() <= room]
        if found and max(found) >= room * floor:
            return max(found)
    end = min(room, len(text))
    while 1 < end < len(text) and (_CLINGING.match(text[end]) or text[end - 1] == "\u200d"):
        end -= 1
    return end if end > room // 2 else room


def _trimmed(spans: Spans) -> Spans:
    """Remove empty lines at both ends. Code keeps its spaces, and the first line its indent."""
    out = list(spans)
    while out:
        last = out[-1]
        kept = last.text.rstrip("\n") if last.find("pre") else last.text.rstrip()
        out[-1] = Span(kept, last.marks)
        if kept:
            break
        out.pop()
    while out and not out[0].text.strip("\n"):
        out.pop(0)
    return tuple(out) if any(_seen(span.text) for span in out) else ()


def _seen(text: str) -> bool:
    """True if anything is visible: messengers reject messages of whitespace."""
    return any(unicodedata.category(char) not in _UNSEEN and char not in "\u2800\u3164\uffa0" for char in text)


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
    shown = join_text(inside)
    if inside and _LINKS.fullmatch(link.value) and not is_misleading(shown, link.value):
        return
    # what a messenger does not accept as a link, or what misleads, is written out behind its text
    page.spans[begin:] = [span.without(link) for span in inside]
    if link.value and link.value not in (shown, f"mailto:{shown}"):
        page.put(f" ({link.value})" if inside else link.value)


def _image(token: Token, page: TextBuilder) -> None:
    address = _link(token, "src")
    shown = strip_controls("".join(child.content for child in token.children or [])) or "image"
    if _LINKS.fullmatch(address.value) and not is_misleading(shown, address.value):
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
