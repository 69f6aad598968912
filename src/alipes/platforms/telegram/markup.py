"""Formats marked text as Telegram's HTML."""

from alipes.kernel.platform import MessagePart
from alipes.platforms.markup.markdown import parse_markdown
from alipes.platforms.markup.spans import Span, Spans, TextMark, plain_text, split_text, utf16_length

LONGEST = 4096
CAPTION = 1024
ENTITIES = 100
"""Telegram does not show more marks per message."""
_TAGS = {"bold": "b", "italic": "i", "strike": "s", "code": "code", "quote": "blockquote"}


def format_markdown(markdown: str, longest: int = LONGEST) -> tuple[MessagePart, ...]:
    """Split a text into messages of at most `longest` UTF-16 units, each with complete markup."""

    def fits(spans: Spans) -> bool:
        return utf16_length(plain_text(spans)) <= longest and count_entities(spans) <= ENTITIES

    parts = split_text(parse_markdown(markdown), fits, longest)
    return tuple(MessagePart(text=to_html(part), plain=plain_text(part)) for part in parts)


def to_html(spans: Spans) -> str:
    """Write spans as balanced HTML: each closes what the next does not need."""
    out: list[str] = []
    opened: tuple[TextMark, ...] = ()
    for span in spans:
        marks = _shown(span)
        kept = _shared(opened, marks)
        out += [_close(mark) for mark in reversed(opened[kept:])]
        out += [_open(mark) for mark in marks[kept:]]
        out.append(escape(span.text))
        opened = marks
    out += [_close(mark) for mark in reversed(opened)]
    return "".join(out)


def count_entities(spans: Spans) -> int:
    """Number of Telegram entities in a text."""
    count = 0
    opened: tuple[TextMark, ...] = ()
    for span in spans:
        marks = _shown(span)
        count += len(marks) - _shared(opened, marks)
        opened = marks
    return count


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _shown(span: Span) -> tuple[TextMark, ...]:
    """Marks of a span: each kind once; code excludes other marks, and a link excludes code."""
    if not span.text.strip():
        # marks on spaces are invisible, but must not interrupt an enclosing block
        return tuple(mark for mark in span.marks if mark.kind in ("quote", "pre", "link"))
    kinds = {mark.kind: mark for mark in reversed(span.marks)}
    if "pre" in kinds or ("code" in kinds and "link" not in kinds):
        return tuple(mark for mark in kinds.values() if mark.kind in ("quote", "pre", "code"))[::-1]
    return tuple(mark for mark in reversed(kinds.values()) if mark.kind != "code")


def _shared(one: tuple[TextMark, ...], other: tuple[TextMark, ...]) -> int:
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count


def _open(mark: TextMark) -> str:
    match mark.kind:
        case "link":
            return f'<a href="{escape(mark.value).replace(chr(34), "&quot;")}">'
        case "pre" if mark.value:
            return f'<pre><code class="language-{escape(mark.value).replace(chr(34), "&quot;")}">'
        case "pre":
            return "<pre>"
        case kind:
            return f"<{_TAGS[kind]}>"


def _close(mark: TextMark) -> str:
    match mark.kind:
        case "link":
            return "</a>"
        case "pre":
            return "</code></pre>" if mark.value else "</pre>"
        case kind:
            return f"</{_TAGS[kind]}>"
