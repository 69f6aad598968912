"""How the terminal's own words look: colours and marks as values, and text styled and fitted with them."""

import re
from typing import Any

from msgspec import Struct

from alipes.cli.markdown.flow import Flow, paint
from alipes.cli.terminal.canvas import plain, span
from alipes.cli.terminal.pictures import Way
from alipes.cli.theme import Name
from alipes.cli.width import cut, width

_PARTS = re.compile(
    r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[_P][^\x1b]*\x1b\\|[78])|[^\x1b]+"
)


class Look(Struct, frozen=True):
    """Styles are the codes between `ESC [` and `m`; an empty one leaves text as it is."""

    accent: str = ""
    faint: str = ""
    strong: str = ""
    good: str = ""
    bad: str = ""
    warn: str = ""
    thought: str = ""
    prompt: str = "›"
    done: str = "✓"
    failed: str = "✗"
    refused: str = "⊘"
    working: str = "•"
    thinking: str = "∴"
    bar: str = "│"
    note: str = "·"
    more: str = "…"
    pictures: Way = ""
    """How pictures are drawn here."""


def make_look(name: Name, *, ascii_only: bool = False, pictures: Way = "") -> Look:
    marks: dict[str, Any] = {"pictures": pictures} | (
        {"prompt": ">", "done": "+", "failed": "x", "refused": "x", "working": "*"}
        | {"thinking": "~", "bar": "|", "note": "-", "more": "..."}
        if ascii_only
        else {}
    )
    styles: dict[str, Any]
    match name:
        case "dark":
            styles = {"accent": "96", "good": "92", "bad": "91", "warn": "93"}
        case "light":
            styles = {"accent": "36", "good": "32", "bad": "31", "warn": "33"}
        case _:
            return Look(**marks)
    return Look(**styles, faint="2", strong="1", thought="2;3", **marks)


def styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def wrapped(text: str, columns: int, style: str = "", first: str = "", rest: str = "") -> list[str]:
    """The text in rows of at most `columns`, between words where it can be; the first begins with `first`."""
    flow = Flow(max(1, columns - max(span(first), span(rest))))
    flow.add(text, style)
    flow.close()
    rows = [paint(row, links=False) for row in flow.take()] or [""]
    return [(first if number == 0 else rest) + row for number, row in enumerate(rows)]


def clipped(row: str, columns: int) -> str:
    """The row, its end left out where it takes more than `columns`; styles still end."""
    if span(row) <= columns:
        return row
    out, left = [], columns
    for part in _PARTS.findall(row):
        if part.startswith("\x1b"):
            out.append(part)
        elif left > 0:
            fits = part if width(part) <= left else cut(part, left)[0]
            fits = fits if width(fits) <= left else ""
            out.append(fits)
            left = left - width(fits) if fits == part else 0
    return "".join(out)


def shortened(text: str, columns: int, mark: str = "…") -> str:
    """A text without styles, cut with a mark where it is longer than `columns`."""
    if width(text) <= columns:
        return text
    room = columns - width(mark)
    return cut(text, room)[0].rstrip() + mark if room > 0 else cut(text, max(1, columns))[0]


__all__ = ["Look", "clipped", "make_look", "plain", "shortened", "styled", "wrapped"]
