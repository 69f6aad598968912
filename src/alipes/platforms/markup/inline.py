"""The inside of a block: emphasis, code, links and pictures become spans on a `Page`. It knows no blocks."""

import re
from collections.abc import Sequence

from markdown_it.token import Token

from alipes.platforms.markup import LINE, Border, Flow, Mark, Span, harmless

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
