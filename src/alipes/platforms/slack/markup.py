"""Text with marks as Slack's rich text, in messages that Slack takes. It sends nothing.

Not as mrkdwn: that has no escape for its own signs, and reads them otherwise next to some letters.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec

from alipes.kernel.platform import Piece
from alipes.platforms.markup.markdown import read
from alipes.platforms.markup.spans import Mark, Span, Spans, cut, plain

LONGEST = 4000
"""Beyond this Slack does not change a message any more."""
RICH = '{"type":"rich_text",'
"""How the text of a piece begins that is a block."""
_STYLES = ("bold", "italic", "strike", "code")
_WEB = re.compile(r"https?://\S+", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://[^\s<>]*[^\s<>.,;:!?'\")\]*_~`|])")


def pieces(markdown: str, longest: int = LONGEST) -> tuple[Piece, ...]:
    """A text as messages of at most `longest` characters, counted as Slack is told them without marks."""

    def fits(spans: Spans) -> bool:
        return len(escape(plain(spans))) <= longest

    parts = cut(read(markdown), fits, longest)
    return tuple(Piece(text=_encoded(part), plain=plain(part)) for part in parts)


def escape(text: str) -> str:
    """Words that are words in Slack, and call nobody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def rich(spans: Spans) -> dict[str, Any]:
    """The block that shows this: paragraphs, quotes and code one below the other."""
    parts = [
        _part(kind, tuple(group))
        for kind, group in groupby(spans, lambda span: _of(span, "quote") or _of(span, "pre"))
    ]
    return {"type": "rich_text", "elements": [part for part in parts if part["elements"]]}


def _encoded(spans: Spans) -> str:
    return msgspec.json.encode(rich(spans)).decode()


def _part(kind: Mark | None, spans: Spans) -> dict[str, Any]:
    """Slack sets them apart by itself: empty lines at their edges are left out."""
    spans = _trimmed(spans)
    match kind:
        case Mark("pre"):
            text = "".join(span.text for span in spans)
            return {"type": "rich_text_preformatted", "elements": [_text(text, {})] if text else []}
        case Mark("quote"):
            return {"type": "rich_text_quote", "elements": list(_elements(spans))}
    return {"type": "rich_text_section", "elements": list(_elements(spans))}


def _trimmed(spans: Spans) -> Spans:
    inside = list(spans)
    while inside and not inside[0].text.strip("\n"):
        inside.pop(0)
    while inside and not inside[-1].text.strip("\n"):
        inside.pop()
    if inside:
        inside[0] = Span(inside[0].text.lstrip("\n"), inside[0].marks)
        inside[-1] = Span(inside[-1].text.rstrip("\n"), inside[-1].marks)
    return tuple(inside)


def _elements(spans: Spans) -> Iterator[dict[str, Any]]:
    """Pieces of one style each."""
    for link, group in groupby(spans, lambda span: _of(span, "link")):
        inside = tuple(group)
        shown = "".join(span.text for span in inside)
        misleads = _WEB.match(shown.strip()) and link is not None and shown.strip() != link.value
        leads = link.value if link and _WEB.fullmatch(link.value) and not misleads else ""
        for style, same in groupby(inside, _style):
            text = "".join(span.text for span in same)
            yield from [_link(leads, text, style)] if leads else _addresses(text, style)
        if link and not leads:
            yield from _addresses(f" ({link.value})", {})


def _addresses(text: str, style: dict[str, bool]) -> Iterable[dict[str, Any]]:
    """Words, and the addresses among them, which Slack would show as words."""
    parts = [text] if "code" in style else _ADDRESS.split(text)
    return [
        _link(part, "", style) if number % 2 else _text(part, style)
        for number, part in enumerate(parts)
        if part
    ]


def _text(text: str, style: dict[str, bool]) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"style": style} if style else {})}


def _link(url: str, text: str, style: dict[str, bool]) -> dict[str, Any]:
    shown = {"text": text} if text and text != url else {}
    return {"type": "link", "url": url, **shown, **({"style": style} if style else {})}


def _style(span: Span) -> dict[str, bool]:
    """Code in a quote is only code: Slack takes no block in another."""
    kinds = {"code" if mark.kind == "pre" else mark.kind for mark in span.marks}
    return {kind: True for kind in _STYLES if kind in kinds} if span.text.strip() else {}


def _of(span: Span, kind: str) -> Mark | None:
    return next((mark for mark in span.marks if mark.kind == kind), None)
