"""Formats marked text as Slack's rich text blocks.

Not as mrkdwn, which cannot escape its own signs and reads them differently next to some letters.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec

from alipes.kernel.platform import MessagePart
from alipes.platforms.markup import Span, Spans, TextMark, escape_html, format_parts, join_text, plain_text

LONGEST = 4000
"""Slack does not edit longer messages."""
RICH_TEXT_PREFIX = '{"type":"rich_text",'
"""Start of a message part that is a rich text block."""
_STYLES = ("bold", "italic", "strike", "code")
_WEB = re.compile(r"https?://\S+", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://[^\s<>]*[^\s<>.,;:!?'\")\]*_~`|])")


def format_markdown(markdown: str, longest: int = LONGEST) -> tuple[MessagePart, ...]:
    """Split a text into messages of at most `longest` characters without markup."""

    def fits(spans: Spans) -> bool:
        return len(escape_html(plain_text(spans))) <= longest

    return format_parts(markdown, longest, fits, _write)


def _write(spans: Spans) -> str:
    """The block for a text: paragraphs, quotes and code below each other."""
    groups = groupby(spans, lambda span: span.find("quote") or span.find("pre"))
    parts = [_part(kind, tuple(group)) for kind, group in groups]
    block = {"type": "rich_text", "elements": [part for part in parts if part["elements"]]}
    return msgspec.json.encode(block).decode()


def _part(kind: TextMark | None, spans: Spans) -> dict[str, Any]:
    """Slack separates the parts itself: drop empty lines at their ends."""
    spans = _trimmed(spans)
    match kind:
        case TextMark("pre"):
            text = join_text(spans)
            return {"type": "rich_text_preformatted", "elements": [_text(text, {})] if text else []}
        case TextMark("quote"):
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
    """Elements of one style each."""
    for link, group in groupby(spans, lambda span: span.find("link")):
        inside = tuple(group)
        shown = join_text(inside)
        misleads = _WEB.match(shown.strip()) and link is not None and shown.strip() != link.value
        leads = link.value if link and _WEB.fullmatch(link.value) and not misleads else ""
        for style, same in groupby(inside, _style):
            text = join_text(same)
            yield from [_link(leads, text, style)] if leads else _addresses(text, style)
        if link and not leads:
            yield from _addresses(f" ({link.value})", {})


def _addresses(text: str, style: dict[str, bool]) -> Iterable[dict[str, Any]]:
    """Text and web addresses, which Slack would show as text otherwise."""
    parts = [text] if "code" in style else _ADDRESS.split(text)
    return [_link(part, "", style) if number % 2 else _text(part, style) for number, part in enumerate(parts) if part]


def _text(text: str, style: dict[str, bool]) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"style": style} if style else {})}


def _link(url: str, text: str, style: dict[str, bool]) -> dict[str, Any]:
    shown = {"text": text} if text and text != url else {}
    return {"type": "link", "url": url, **shown, **({"style": style} if style else {})}


def _style(span: Span) -> dict[str, bool]:
    """Code in a quote stays inline code: Slack does not nest blocks."""
    kinds = {"code" if mark.kind == "pre" else mark.kind for mark in span.marks}
    return {kind: True for kind in _STYLES if kind in kinds} if span.text.strip() else {}
