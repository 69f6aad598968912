"""Text with marks as Matrix's HTML beside its plain words, in messages that it takes. It sends nothing."""

import json
import re
from itertools import groupby

from alipes.kernel.platforms import Piece
from alipes.platforms.markup import Mark, Span, Spans, cut, plain
from alipes.platforms.markup.reading import read

LONGEST = 8000
"""Characters. An event holds 64 KiB, its words twice and perhaps encrypted; people scroll."""
ROOM = 30_000
"""Bytes of JSON for both forms of the words."""
_TAGS = {"bold": "strong", "italic": "em", "strike": "del", "code": "code", "quote": "blockquote"}
_BLOCKS = ("quote", "pre")
_MARKUP = re.compile(r"<(?!br>)")


def pieces(markdown: str, longest: int = LONGEST, room: int = ROOM) -> tuple[Piece, ...]:
    """A text as messages of at most `longest` characters."""

    def fits(spans: Spans) -> bool:
        words = plain(spans)
        return len(words) <= longest and len(json.dumps((words, html(spans)))) <= room

    parts = cut(read(markdown), fits, longest)
    return tuple(Piece(text=html(part), plain=plain(part)) for part in parts)


def marked(text: str) -> bool:
    """Whether there is more in it than the plain words say."""
    return _MARKUP.search(text) is not None


def html(spans: Spans) -> str:
    """What Matrix's clients show; blocks stand on lines of their own, so the blanks around them go."""
    out: list[str] = []
    after = False
    groups = [(block, tuple(group)) for block, group in groupby(spans, _block)]
    for number, (block, group) in enumerate(groups):
        text = "".join(span.text for span in group)
        if block is None:
            before = number + 1 < len(groups)
            group = _without_edges(group, left=after, right=before)
            out.append(_lines(group))
        elif block.kind == "pre":
            language = f' class="language-{_attribute(block.value)}"' if block.value else ""
            out.append(f"<pre><code{language}>{escape(text)}\n</code></pre>")
        else:
            inside = tuple(Span(span.text, tuple(m for m in span.marks if m != block)) for span in group)
            out.append(f"<blockquote>{html(inside)}</blockquote>")
        after = block is not None
    return "".join(out)


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(span: Span) -> Mark | None:
    return next((mark for mark in span.marks if mark.kind in _BLOCKS), None)


def _without_edges(spans: Spans, *, left: bool, right: bool) -> Spans:
    out = list(spans)
    if left and out:
        out[0] = Span(out[0].text.lstrip("\n"), out[0].marks)
    if right and out:
        out[-1] = Span(out[-1].text.rstrip("\n"), out[-1].marks)
    return tuple(span for span in out if span.text)


def _lines(spans: Spans) -> str:
    """Balanced by construction: what is open at a span's end and not wanted by the next is closed."""
    out: list[str] = []
    opened: tuple[Mark, ...] = ()
    for span in spans:
        marks = _shown(span)
        kept = sum(1 for _ in _common(opened, marks))
        out += [_close(mark) for mark in reversed(opened[kept:])]
        out += [_open(mark) for mark in marks[kept:]]
        out.append(escape(span.text).replace("\n", "<br>"))
        opened = marks
    out += [_close(mark) for mark in reversed(opened)]
    return _indented("".join(out))


def _indented(text: str) -> str:
    """Blanks at the beginning of a line would not be shown."""
    return re.sub(r"(^|<br>)( +)", lambda match: match[1] + "\u00a0" * len(match[2]), text)


def _shown(span: Span) -> tuple[Mark, ...]:
    """Each kind once, code innermost of all."""
    kinds = {mark.kind: mark for mark in reversed(span.marks)}
    return tuple(sorted(reversed(kinds.values()), key=lambda mark: mark.kind == "code"))


def _common(one: tuple[Mark, ...], other: tuple[Mark, ...]) -> list[Mark]:
    found: list[Mark] = []
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        found.append(mine)
    return found


def _open(mark: Mark) -> str:
    return f'<a href="{_attribute(mark.value)}">' if mark.kind == "link" else f"<{_TAGS[mark.kind]}>"


def _close(mark: Mark) -> str:
    return "</a>" if mark.kind == "link" else f"</{_TAGS[mark.kind]}>"


def _attribute(text: str) -> str:
    return escape(text).replace('"', "&quot;")
