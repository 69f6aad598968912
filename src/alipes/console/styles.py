"""Styles and symbols of the terminal, styled text, and detection of terminal features."""

import re
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.config.environment import Variables
from alipes.console.images import ImageProtocol
from alipes.console.markdown.wrap import to_ansi, wrap_row
from alipes.console.screen_diff import visible_width
from alipes.console.theme import ThemeName
from alipes.console.width import display_width, split_at_width

_PARTS = re.compile(r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[_P][^\x1b]*\x1b\\|[78])|[^\x1b]+")


class TerminalStyle(Struct, frozen=True):
    """Styles are SGR codes (between `ESC [` and `m`); an empty one means no style."""

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
    chosen: str = "▸"
    """Marks the chosen row of a menu."""
    rule: str = "─"
    gauge: tuple[str, str] = ("▰", "▱")
    """A used and a free part of the context gauge."""
    expand_key: str = "Ctrl-O"
    """The key that shows what was left out."""
    images: ImageProtocol = ""


def make_style(
    name: ThemeName, *, ascii_only: bool = False, images: ImageProtocol = "", expand_key: str = "Ctrl-O"
) -> TerminalStyle:
    marks: dict[str, Any] = {"images": images, "expand_key": expand_key} | (
        {"prompt": ">", "done": "+", "failed": "x", "refused": "x", "working": "*"}
        | {"thinking": "~", "bar": "|", "note": "-", "more": "...", "chosen": "*", "rule": "-", "gauge": ("#", ".")}
        if ascii_only
        else {}
    )
    if name == "none":
        return TerminalStyle(**marks)
    bright: dict[str, Any] = {"accent": "96", "good": "92", "bad": "91", "warn": "93"}
    deep: dict[str, Any] = {"accent": "36", "good": "32", "bad": "31", "warn": "33"}
    return TerminalStyle(**bright if name == "dark" else deep, faint="2", strong="1", thought="2;3", **marks)


def apply_style(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def wrap_text(text: str, columns: int, style: str = "", first: str = "", rest: str = "") -> list[str]:
    """The text wrapped to `columns`; the first row starts with `first`, the others with `rest`."""
    room = max(1, columns - max(visible_width(first), visible_width(rest)))
    rows = [to_ansi(row, links=False) for row in wrap_row([(text, style, "")], room)]
    return [(rest if number else first) + row for number, row in enumerate(rows)]


def clip_row(row: str, columns: int) -> str:
    """The row cut to `columns`; its styles are still closed."""
    if visible_width(row) <= columns:
        return row
    out, left = [], columns
    for part in _PARTS.findall(row):
        if part.startswith("\x1b"):
            out.append(part)
        elif left > 0:
            fits = part if display_width(part) <= left else split_at_width(part, left)[0]
            fits = fits if display_width(fits) <= left else ""
            out.append(fits)
            left = left - display_width(fits) if fits == part else 0
    return "".join(out)


_NO_QUERY = ("linux", "vt", "cons", "dumb", "sun", "emacs")
"""Terminals that would print the background query instead of answering it."""
NotificationKind: TypeAlias = Literal["bell", "osc9", "osc777"]
_NO_REFLOW = ("linux", "st-", "vt", "cons")
"""Terminals that cut rows when they become narrower; others wrap them."""


class TerminalFeatures(Struct, frozen=True):
    theme: ThemeName
    query_background: bool = False
    """The background is unknown, so the terminal is asked."""
    reflows: bool = True
    ascii_only: bool = False
    images: ImageProtocol = ""
    titles: bool = True
    """The terminal accepts window titles."""
    notifications: NotificationKind = "bell"
    query_keyboard: bool = True
    """The terminal may be asked for its keyboard protocol."""


def detect_features(
    variables: Variables, chosen: Literal["auto", "dark", "light"] = "auto", *, utf8: bool = True
) -> TerminalFeatures:
    """Detect the features from the environment. `chosen`: the theme from the settings."""
    term = variables.get("TERM")
    stiff = bool(variables.get("XTERM_VERSION")) or f"{term}-".startswith(_NO_REFLOW)
    if term.startswith("screen") and not variables.get("TMUX"):
        stiff = True
    theme: ThemeName = "dark"
    asks = False
    background = variables.get("COLORFGBG").rpartition(";")[2]  # some terminals set palette numbers
    if variables.get("NO_COLOR"):
        theme = "none"
    elif chosen != "auto":
        theme = chosen
    elif background.isdecimal():
        theme = "light" if int(background) == 7 or 9 <= int(background) <= 15 else "dark"
    else:
        asks = not term.startswith(_NO_QUERY)
    answers = not term.startswith(_NO_QUERY)
    return TerminalFeatures(
        theme,
        asks,
        not stiff,
        not utf8,
        _detect_images(variables, term),
        query_keyboard=answers,
        titles=answers,
        notifications=_detect_notifications(variables, term),
    )


def _detect_images(variables: Variables, term: str) -> ImageProtocol:
    """Detect the image protocol by name; multiplexers do not pass images through."""
    if variables.get("TMUX") or term.startswith(("screen", "tmux")):
        return ""
    program = variables.get("TERM_PROGRAM")
    if term.startswith(("xterm-kitty", "xterm-ghostty")) or variables.get("KITTY_WINDOW_ID") or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty", "vscode"):
        return "iterm"
    return "sixel" if term.startswith(("foot", "mlterm", "contour")) or "sixel" in term else ""


def _detect_notifications(variables: Variables, term: str) -> NotificationKind:
    """The way to notify by name; multiplexers pass only the bell through."""
    program = variables.get("TERM_PROGRAM")
    if variables.get("TMUX") or variables.get("STY") or term.startswith(("screen", "tmux")):
        return "bell"
    if term.startswith(("xterm-kitty", "xterm-ghostty")) or program in ("iTerm.app", "WezTerm", "ghostty"):
        return "osc9"
    return "osc777" if term.startswith(("rxvt-unicode", "foot", "contour")) else "bell"
