"""Text with marks as Telegram's HTML, in messages that Telegram takes. It sends nothing."""

from alipes.kernel.platform import Piece
from alipes.platforms.markup.markdown import read
from alipes.platforms.markup.spans import Mark, Span, Spans, cut, plain, utf16

LONGEST = 4096
CAPTION = 1024
ENTITIES = 100
"""Marks beyond these Telegram does not show."""
_TAGS = {"bold": "b", "italic": "i", "strike": "s", "code": "code", "quote": "blockquote"}


def pieces(markdown: str, longest: int = LONGEST) -> tuple[Piece, ...]:
    """A text as messages of at most `longest` units of UTF-16, each with its own complete markup."""

    def fits(spans: Spans) -> bool:
        return utf16(plain(spans)) <= longest and marked(spans) <= ENTITIES

    parts = cut(read(markdown), fits, longest)
    return tuple(Piece(text=html(part), plain=plain(part)) for part in parts)


def html(spans: Spans) -> str:
    """Balanced by construction: what is open at a span's end and not wanted by the next is closed."""
    out: list[str] = []
    opened: tuple[Mark, ...] = ()
    for span in spans:
        marks = _shown(span)
        kept = _shared(opened, marks)
        out += [_close(mark) for mark in reversed(opened[kept:])]
        out += [_open(mark) for mark in marks[kept:]]
        out.append(escape(span.text))
        opened = marks
    out += [_close(mark) for mark in reversed(opened)]
    return "".join(out)


def marked(spans: Spans) -> int:
    """How many entities the text has."""
    count = 0
    opened: tuple[Mark, ...] = ()
    for span in spans:
        marks = _shown(span)
        count += len(marks) - _shared(opened, marks)
        opened = marks
    return count


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _shown(span: Span) -> tuple[Mark, ...]:
    """Each kind once; code holds no other mark, and a link is worth more than code."""
    if not span.text.strip():
        # Marks on blanks are not shown, but a frame around them must not be interrupted.
        return tuple(mark for mark in span.marks if mark.kind in ("quote", "pre", "link"))
    kinds = {mark.kind: mark for mark in reversed(span.marks)}
    if "pre" in kinds or ("code" in kinds and "link" not in kinds):
        return tuple(mark for mark in kinds.values() if mark.kind in ("quote", "pre", "code"))[::-1]
    return tuple(mark for mark in reversed(kinds.values()) if mark.kind != "code")


def _shared(one: tuple[Mark, ...], other: tuple[Mark, ...]) -> int:
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count


def _open(mark: Mark) -> str:
    match mark.kind:
        case "link":
            return f'<a href="{escape(mark.value).replace(chr(34), "&quot;")}">'
        case "pre" if mark.value:
            return f'<pre><code class="language-{escape(mark.value).replace(chr(34), "&quot;")}">'
        case "pre":
            return "<pre>"
        case kind:
            return f"<{_TAGS[kind]}>"


def _close(mark: Mark) -> str:
    match mark.kind:
        case "link":
            return "</a>"
        case "pre":
            return "</code></pre>" if mark.value else "</pre>"
        case kind:
            return f"</{_TAGS[kind]}>"
