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
    added: str = ""
    removed: str = ""
    """Added and removed rows of a diff: their text and background."""
    added_word: str = ""
    removed_word: str = ""
    """Words that differ in such a row."""
    tints_code: bool = False
    """Code in these rows keeps the colours of its language."""
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


ColourDepth: TypeAlias = Literal[16, 256, 16_777_216]


def make_style(
    name: ThemeName,
    *,
    ascii_only: bool = False,
    images: ImageProtocol = "",
    expand_key: str = "Ctrl-O",
    colours: ColourDepth = 16,
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
    marks |= _diff_styles(name, colours)
    return TerminalStyle(**bright if name == "dark" else deep, faint="2", strong="1", thought="2;3", **marks)


def _diff_styles(name: ThemeName, colours: ColourDepth) -> dict[str, Any]:
    """Text and background of changed rows. With sixteen colours there is no pale background for other text colours."""
    if colours == 16:
        return {"added": "30;42", "removed": "97;41", "added_word": "30;42;1;4", "removed_word": "97;41;1;4"}
    rows = {
        ("dark", 256): ("48;5;22", "48;5;52", "48;5;28", "48;5;88"),
        ("light", 256): ("48;5;194", "48;5;224", "48;5;157", "48;5;217"),
        ("dark", 16_777_216): ("48;2;18;52;32", "48;2;68;24;28", "48;2;30;92;54", "48;2;124;38;44"),
        ("light", 16_777_216): ("48;2;218;251;225", "48;2;255;235;233", "48;2;172;238;187", "48;2;255;206;203"),
    }[name, colours]
    text = "97" if name == "dark" else "30"
    added, removed, added_word, removed_word = (f"{text};{background}" for background in rows)
    words = {"added_word": f"{added_word};1", "removed_word": f"{removed_word};1"}
    return {"added": added, "removed": removed, "tints_code": True, **words}


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
    colours: ColourDepth = 16


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
        colours=_detect_colours(variables, term),
    )


def _detect_colours(variables: Variables, term: str) -> ColourDepth:
    if variables.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("-direct"):
        return 16_777_216
    return 256 if "256color" in term or term.startswith(("xterm-kitty", "xterm-ghostty", "foot")) else 16


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
