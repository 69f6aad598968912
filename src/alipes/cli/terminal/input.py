"""The input as rows: what is being typed, wrapped to the screen, and where the cursor stands in it. Pure."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from wcwidth import iter_graphemes

from alipes.cli.width import width

INDENT = 2


class Box(NamedTuple):
    rows: list[str]
    cursor: tuple[int, int]
    """A row of `rows` and a column."""


class Look(NamedTuple):
    """How the box is drawn."""

    prompt: str
    """Two columns wide, styles and all; before the first row."""
    label: Callable[[str], str]
    """What is shown for a character that stands for more; empty for any other."""
    style: str = ""
    """Of such labels and of characters that cannot be shown."""


def draw(text: str, cursor: int, columns: int, lines: int, look: Look) -> Box:
    """The box for `text` in at most `lines` rows, with the part of it that the cursor is in."""
    room = max(1, columns - INDENT)
    rows, at = _wrapped(text, cursor, room, look)
    first = min(max(0, at[0] - lines + 1), max(0, len(rows) - lines))
    shown = rows[first : first + lines]
    drawn = [(look.prompt if first + n == 0 else " " * INDENT) + row for n, row in enumerate(shown)]
    return Box(drawn, (at[0] - first, INDENT + at[1]))


def _wrapped(text: str, cursor: int, room: int, look: Look) -> tuple[list[str], tuple[int, int]]:
    rows: list[str] = []
    at, place = (0, 0), 0
    for line in text.split("\n"):
        row, used = "", 0
        for size, shown, taken in _pieces(line, look):
            if used + taken > room and used:
                rows.append(row)
                row, used = "", 0
            if place <= cursor < place + size:
                at = (len(rows), used)
            row, used, place = row + shown, used + taken, place + size
        if place == cursor:
            if used >= room:  # the cursor stands where the next character will
                rows.append(row)
                row, used = "", 0
            at = (len(rows), used)
        rows.append(row)
        place += 1
    return rows, at


def _pieces(line: str, look: Look) -> Iterator[tuple[int, str, int]]:
    """Of each character, as a person counts them: its length in the text, how it is shown, and how wide."""
    if line.isascii() and line.isprintable():
        for char in line:
            yield 1, char, 1
        return
    for piece in iter_graphemes(line):
        shown, strange = piece, False
        if label := look.label(piece):
            shown, strange = label, True
        elif piece == "\t":
            shown = "    "
        elif not piece.isprintable() and len(piece) == 1 and ord(piece) < 0xA0:
            shown, strange = f"^{chr(ord(piece) ^ 64)}" if ord(piece) < 0x80 else "?", True
        taken = width(shown)
        yield len(piece), _in(look.style, shown) if strange else shown, taken


def _in(style: str, text: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style else text
