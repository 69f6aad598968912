"""Draw a chat as SVG from the messages of the loopback Telegram server, with their inline keyboards."""

import html
import textwrap
from typing import Any

from msgspec import Struct

THEMES = {
    "dark": {
        "background": "#16181d", "frame": "#2b2f38", "user": "#2f5d8a", "bot": "#262a33", "text": "#e3e6ec",
        "button": "#343a46", "faint": "#8b93a1",
    },
    "light": {
        "background": "#f2f4f7", "frame": "#d9dad6", "user": "#d6e8fb", "bot": "#ffffff", "text": "#23272e",
        "button": "#e2e7ee", "faint": "#6c7480",
    },
}  # fmt: skip
WIDTH, MARGIN, PADDING = 460, 14, 11
LINE, FONT = 19, 14
LETTER, CODE_LETTER = 7.0, 8.0
COLUMNS = 46
SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


class ChatMessage(Struct, frozen=True):
    text: str
    from_bot: bool
    entities: tuple[dict[str, Any], ...] = ()
    """Telegram's: type, offset and length in UTF-16 units."""
    keyboard: tuple[tuple[str, ...], ...] = ()
    """Labels by row."""


def from_wire(wire: dict[str, Any], *, from_bot: bool) -> ChatMessage:
    """A message as the server stores it."""
    rows = (wire.get("reply_markup") or {}).get("inline_keyboard", [])
    return ChatMessage(
        text=str(wire.get("text", "")),
        from_bot=from_bot,
        entities=tuple(wire.get("entities", ())),
        keyboard=tuple(tuple(button["text"] for button in row) for row in rows),
    )


def draw_chat(title: str, messages: list[ChatMessage], theme_name: str) -> str:
    """A phone-sized chat with a title line."""
    theme = THEMES[theme_name]
    out: list[str] = [f'<text x="{MARGIN}" y="26" fill="{theme["text"]}" font-weight="600">{html.escape(title)}</text>']
    y = 40.0
    for message in messages:
        drawn, y = _message(message, y, theme)
        out += drawn
    height = y + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'font-family="{SANS}" font-size="{FONT}">'
    )
    frame = f'<rect width="100%" height="100%" rx="8" fill="{theme["background"]}" stroke="{theme["frame"]}"/>'
    return "\n".join([head, frame, *out, "</svg>"]) + "\n"


def _message(message: ChatMessage, y: float, theme: dict[str, str]) -> tuple[list[str], float]:
    lines = _lines(message)
    width = min(max(_width(line) for line in lines) + 2 * PADDING, WIDTH - 2 * MARGIN - 40)
    if message.keyboard:
        width = WIDTH - 2 * MARGIN - 40
    x = MARGIN if message.from_bot else WIDTH - MARGIN - width
    height = len(lines) * LINE + 2 * PADDING - 4
    fill = theme["bot"] if message.from_bot else theme["user"]
    out = [f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="12" fill="{fill}"/>']
    for n, line in enumerate(lines):
        spans = "".join(_span(text, style) for text, style in line)
        base = y + PADDING + 12 + n * LINE
        place = f'x="{x + PADDING:.0f}" y="{base:.0f}"'
        out.append(f'<text {place} xml:space="preserve" fill="{theme["text"]}">{spans}</text>')
    y += height + 5
    for row in message.keyboard:
        drawn = _buttons(row, x, y, width, theme)
        out += drawn
        y += 33
    return out, y + 7


def _buttons(labels: tuple[str, ...], x: float, y: float, width: float, theme: dict[str, str]) -> list[str]:
    letters = sum(len(label) + 4 for label in labels)
    out, left = [], x
    for label in labels:
        each = (width - 5 * (len(labels) - 1)) * (len(label) + 4) / letters
        place = f'x="{left:.1f}" y="{y:.0f}" width="{each:.1f}" height="28"'
        out.append(f'<rect {place} rx="8" fill="{theme["button"]}"/>')
        out.append(
            f'<text x="{left + each / 2:.1f}" y="{y + 19:.0f}" text-anchor="middle" fill="{theme["text"]}">'
            f"{html.escape(label)}</text>"
        )
        left += each + 5
    return out


def _lines(message: ChatMessage) -> list[list[tuple[str, str]]]:
    """The text wrapped into lines of (text, style) runs."""
    styles = _styles(message)
    lines, at = [], 0
    for paragraph in message.text.split("\n"):
        for part in textwrap.wrap(paragraph, COLUMNS, drop_whitespace=False) or [""]:
            text = part.strip()
            start = at + part.find(text)
            lines.append(_runs(text, styles[start : start + len(text)]))
            at += len(part)
        at += 1
    return lines


def _styles(message: ChatMessage) -> list[str]:
    """The style of each character."""
    units = [n for n, letter in enumerate(message.text) for _ in range(1 + (ord(letter) > 0xFFFF))]
    styles = [""] * len(message.text)
    for entity in message.entities:
        for unit in units[entity["offset"] : entity["offset"] + entity["length"]]:
            styles[unit] = entity["type"]
    return styles


def _runs(text: str, styles: list[str]) -> list[tuple[str, str]]:
    runs: list[tuple[str, str]] = []
    for letter, style in zip(text, styles, strict=False):
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0] + letter, style)
        else:
            runs.append((letter, style))
    return runs


def _width(line: list[tuple[str, str]]) -> float:
    return sum(len(text) * (CODE_LETTER if style in ("code", "pre") else LETTER) for text, style in line)


def _span(text: str, style: str) -> str:
    attributes = {
        "bold": ' font-weight="600"',
        "italic": ' font-style="italic"',
        "code": f' font-family="{MONO}" font-size="13"',
        "pre": f' font-family="{MONO}" font-size="13"',
    }.get(style, "")
    return f"<tspan{attributes}>{html.escape(text)}</tspan>"
