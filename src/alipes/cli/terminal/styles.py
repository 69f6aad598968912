"""How the terminal's own words look: colours and marks as values, and text styled and fitted with them."""

import re
from typing import Any, Literal

from msgspec import Struct

from alipes.cli.markdown.wrap import Flow, paint
from alipes.cli.terminal.images import Way
from alipes.cli.terminal.screen_diff import plain, span
from alipes.cli.theme import Name
from alipes.cli.width import cut, width
from alipes.config.environment import Variables

__all__ = ["Look", "clipped", "make_look", "plain", "shortened", "styled", "wrapped"]


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


_MUTE = ("linux", "vt", "cons", "dumb", "sun", "emacs")
"""Terminals that would print the question for their background instead of answering it."""
_STIFF = ("linux", "st-", "vt", "cons")
"""Terminals that cut rows when they get narrower; the others break them."""


class Surroundings(Struct, frozen=True):
    theme: Name
    asks: bool = False
    """The background is not known: the terminal is asked for it."""
    reflows: bool = True
    ascii_only: bool = False
    pictures: Way = ""
    """How pictures are drawn."""


def look_around(
    variables: Variables, chosen: Literal["auto", "dark", "light"] = "auto", *, utf8: bool = True
) -> Surroundings:
    """`chosen`: the operator's word on the background."""
    term = variables.get("TERM")
    stiff = bool(variables.get("XTERM_VERSION")) or f"{term}-".startswith(_STIFF)
    if term.startswith("screen") and not variables.get("TMUX"):
        stiff = True
    theme: Name = "dark"
    asks = False
    if variables.get("NO_COLOR"):
        theme = "none"
    elif chosen != "auto":
        theme = chosen
    elif (known := _background(variables.get("COLORFGBG"))) is not None:
        theme = known
    else:
        asks = not term.startswith(_MUTE)
    return Surroundings(theme, asks, not stiff, not utf8, _drawing(variables, term))


def _drawing(variables: Variables, term: str) -> Way:
    """By its name; behind a multiplexer, which keeps pictures to itself, there is no way."""
    if variables.get("TMUX") or term.startswith(("screen", "tmux")):
        return ""
    program = variables.get("TERM_PROGRAM")
    if (
        term.startswith(("xterm-kitty", "xterm-ghostty"))
        or variables.get("KITTY_WINDOW_ID")
        or program == "ghostty"
    ):
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty", "vscode"):
        return "iterm"
    return "sixel" if term.startswith(("foot", "mlterm", "contour")) or "sixel" in term else ""


def _background(colours: str) -> Name | None:
    """By the variable that some terminals set: foreground and background as numbers of the palette."""
    last = colours.rpartition(";")[2]
    if not last.isdecimal():
        return None
    return "light" if int(last) == 7 or 9 <= int(last) <= 15 else "dark"
