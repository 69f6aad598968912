"""Text with marks as Slack's mrkdwn, in messages that Slack takes. It sends nothing."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from alipes.kernel.platforms import Piece
from alipes.platforms.markup import Mark, Span, Spans, cut, plain
from alipes.platforms.markup_reading import read

LONGEST = 4000
"""Beyond this Slack does not change a message any more."""
BREAK = "\u200b"
"""A blank that nobody sees. A sign opens something only if what follows it is no blank, and closes only if
what follows is no letter: there is no other way to say that a sign is none, or that it is one."""
_SIGNS = {"bold": "*", "italic": "_", "strike": "~"}
_WEB = re.compile(r"https?://\S+", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://[^\s<>]*[^\s<>.,;:!?'\")\]*_~`|])")
_OPENS = re.compile(r"(?<![^\W_])[*_~](?=\S)|([*_~`])(?=\1)|`(?=[^`])")
_LINE_START = re.compile(r"^(\s*)(&gt;)", re.MULTILINE)
_WORDS = re.compile(r"(^\s+|\s+$|\s*\n\s*)")


def pieces(markdown: str, longest: int = LONGEST) -> tuple[Piece, ...]:
    """A text as messages of at most `longest` characters, signs and escapes counted."""

    def fits(spans: Spans) -> bool:
        return len(written(spans)) <= longest

    parts = cut(read(markdown), fits, longest)
    return tuple(Piece(text=written(part), plain=plain(part)) for part in parts)


def written(spans: Spans) -> str:
    """The marks as Slack reads them; whatever else it would take for one is made none."""
    return "".join(
        _quoted(_blocks(group)) if quote else _blocks(group)
        for quote, group in groupby(_leading(spans), lambda span: _of(span, "quote"))
    )


def escape(text: str, *, links: bool = True) -> str:
    """What is meant as text stays text, and calls nobody. Addresses lead where they did, if `links`."""
    parts = _ADDRESS.split(text) if links else [text]
    return "".join(_link(part) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    return _LINE_START.sub(rf"\1{BREAK}\2", _OPENS.sub(rf"\g<0>{BREAK}", _entities(text)))


def _link(address: str) -> str:
    return f"<{_entities(address).replace('|', '%7C')}>"


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _leading(spans: Spans) -> Iterator[Span]:
    """Links that show another address than theirs, or that Slack does not follow, tell where they lead."""
    for link, group in groupby(spans, lambda span: _of(span, "link")):
        inside = list(group)
        shown = "".join(span.text for span in inside).strip()
        if link and (not _WEB.fullmatch(link.value) or (_WEB.match(shown) and shown != link.value)):
            inside = [Span(span.text, tuple(m for m in span.marks if m != link)) for span in inside]
            inside.append(Span(f" ({link.value})", tuple(m for m in inside[-1].marks if m.kind == "quote")))
        yield from inside


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _blocks(spans: Iterable[Span]) -> str:
    out = ""
    for code, group in groupby(spans, lambda span: _of(span, "pre")):
        if code:
            text = _entities("".join(span.text for span in group)).replace("```", f"``{BREAK}`")
            out += f"```\n{text}\n```"
        else:
            out += _inline(tuple(group))
    return out


def _inline(spans: Spans) -> str:
    out = ""
    opened: tuple[Mark, ...] = ()
    for text, marks in _atoms(spans):
        kept = sum(1 for _ in _common(opened, marks))
        closing = "".join(_sign(mark, opens=False) for mark in reversed(opened[kept:]))
        opening = "".join(_sign(mark, opens=True) for mark in marks[kept:])
        linked = any(mark.kind == "link" for mark in marks)
        inside = _code(text) if Mark("code") in marks else escape(text, links=not linked)
        out += closing
        if _clings(closing, opening, inside, out):
            out += BREAK
        out += opening + inside
        opened = marks
    return out + "".join(_sign(mark, opens=False) for mark in reversed(opened))


def _clings(closing: str, opening: str, inside: str, out: str) -> bool:
    """Would a sign be read as part of the word, or of the sign, next to it?"""
    if closing:
        return bool(opening) or inside[0].isalnum() or inside[0] in "*_~`"
    return (bool(opening) or inside.startswith("`")) and out[-1:].isalnum()


def _atoms(spans: Spans) -> Iterator[tuple[str, tuple[Mark, ...]]]:
    """Words and the blanks between them, each with its marks: a sign next to a blank is not read as one.
    Nothing but a link goes over the end of a line."""
    words = [(part, _shown(span)) for span in spans for part in _WORDS.split(span.text) if part]
    for number, (text, marks) in enumerate(words):
        if text.strip():
            yield text, marks
            continue
        before = words[number - 1][1] if number else ()
        after = next((its for other, its in words[number:] if other.strip()), ())
        both = tuple(_common(before, after))
        yield text, tuple(mark for mark in both if mark.kind == "link") if "\n" in text else both


def _common(one: tuple[Mark, ...], other: tuple[Mark, ...]) -> Iterator[Mark]:
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            return
        yield mine


def _shown(span: Span) -> tuple[Mark, ...]:
    """Each kind once; a link outermost, since inside one nothing but signs of emphasis is read."""
    kinds = {mark.kind: mark for mark in reversed(span.marks) if mark.kind not in ("quote", "pre")}
    order = {"link": 0, "code": 2}
    return tuple(sorted(reversed(kinds.values()), key=lambda mark: order.get(mark.kind, 1)))


def _sign(mark: Mark, *, opens: bool) -> str:
    match mark.kind:
        case "link":
            return f"{_link(mark.value)[:-1]}|" if opens else ">"
        case "code":
            return ""
        case kind:
            return _SIGNS[kind]


def _code(text: str) -> str:
    return f"`{_entities(text).replace('`', 'ˋ')}`"


def _of(span: Span, kind: str) -> Mark | None:
    return next((mark for mark in span.marks if mark.kind == kind), None)
