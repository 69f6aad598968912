"""Formats marked text as Telegram's HTML."""

from itertools import pairwise

from alipes.kernel.platform import MessagePart
from alipes.platforms.markup import Marks, Span, Spans, format_parts, plain_text, shared_marks, utf16_length, write_html

LONGEST = 4096
CAPTION = 1024
ENTITIES = 100
"""Telegram does not show more marks per message."""
_TAGS = {"bold": "b", "italic": "i", "strike": "s", "code": "code", "quote": "blockquote", "pre": "pre"}


def format_markdown(markdown: str, longest: int = LONGEST) -> tuple[MessagePart, ...]:
    """Split a text into messages of at most `longest` UTF-16 units."""

    def fits(spans: Spans) -> bool:
        return utf16_length(plain_text(spans)) <= longest and _count_entities(spans) <= ENTITIES

    return format_parts(markdown, longest, fits, lambda spans: write_html(spans, _TAGS, _shown))


def _count_entities(spans: Spans) -> int:
    marks = [_shown(span) for span in spans]
    return sum(len(after) - len(shared_marks(before, after)) for before, after in pairwise(((), *marks)))


def _shown(span: Span) -> Marks:
    """Marks of a span: each kind once; code excludes other marks, and a link excludes code."""
    if not span.text.strip():
        # marks on spaces are invisible, but must not interrupt an enclosing block
        return tuple(mark for mark in span.marks if mark.kind in ("quote", "pre", "link"))
    kinds = {mark.kind: mark for mark in reversed(span.marks)}
    if "pre" in kinds or ("code" in kinds and "link" not in kinds):
        return tuple(mark for mark in kinds.values() if mark.kind in ("quote", "pre", "code"))[::-1]
    return tuple(mark for mark in reversed(kinds.values()) if mark.kind != "code")
