"""What the variables tell about the terminal we are in: its colours, its letters, its manners. Pure."""

from typing import Literal

from msgspec import Struct

from alipes.cli.terminal.pictures import Way
from alipes.cli.theme import Name
from alipes.config.variables import Variables

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
