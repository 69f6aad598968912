"""Marked text and splitting it into messages. Each platform writes the marks in its own markup."""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

from msgspec import Struct

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
