"""What stands on the screen below the scrollback: tail, question, waiting messages, input, menu, status."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from wcwidth import iter_graphemes

from alipes.cli.render import one_line
from alipes.cli.terminal.approval import Dialogue
from alipes.cli.terminal.completion import menu
from alipes.cli.terminal.output import View
from alipes.cli.terminal.status import Status
from alipes.cli.terminal.styles import Look, clipped, shortened, styled
from alipes.cli.width import width

INDENT = 2


class Box(NamedTuple):
    rows: list[str]
    cursor: tuple[int, int]
    """A row of `rows` and a column."""


class InputStyle(NamedTuple):
    """How the box is drawn."""

    prompt: str
    """Two columns wide, styles and all; before the first row."""
    label: Callable[[str], str]
    """What is shown for a character that stands for more; empty for any other."""
    style: str = ""
    """Of such labels and of characters that cannot be shown."""


def draw(text: str, cursor: int, columns: int, lines: int, look: InputStyle) -> Box:
    """The box for `text` in at most `lines` rows, with the part of it that the cursor is in."""
    room = max(1, columns - INDENT)
    rows, at = _wrapped(text, cursor, room, look)
    first = min(max(0, at[0] - lines + 1), max(0, len(rows) - lines))
    shown = rows[first : first + lines]
    drawn = [(look.prompt if first + n == 0 else " " * INDENT) + row for n, row in enumerate(shown)]
    return Box(drawn, (at[0] - first, INDENT + at[1]))


def _wrapped(text: str, cursor: int, room: int, look: InputStyle) -> tuple[list[str], tuple[int, int]]:
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


def _pieces(line: str, look: InputStyle) -> Iterator[tuple[int, str, int]]:
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


FIRST = 0xF0000
"""Where the private characters begin that stand for pastes; nobody types these."""
SHORT_LINES, SHORT_TEXT = 5, 1000
"""What is not longer than either is simply put into the input."""
_MARK = re.compile("[\U000f0000-\U000fffff]")
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Pastes:
    """The pastes of this process, by the characters that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def take(self, data: str) -> str:
        """What goes into the input for pasted `data`."""
        text = _UNSAFE.sub("", data.replace("\r\n", "\n").replace("\r", "\n"))
        text = self.expand(_MARK.sub("", text))
        if text.count("\n") < SHORT_LINES and len(text) <= SHORT_TEXT:
            return text
        mark = chr(FIRST + len(self._texts))
        self._texts[mark] = text
        return mark

    def label(self, mark: str) -> str:
        """How the paste behind `mark` is shown; empty for any other character."""
        text = self._texts.get(mark)
        if text is None:
            return ""
        lines = text.count("\n") + (not text.endswith("\n"))
        return f"[pasted {lines:,} lines]" if lines > 1 else f"[pasted {len(text):,} characters]"

    def labelled(self, text: str) -> str:
        """The text with labels in place of marks."""
        return _MARK.sub(lambda found: self.label(found[0]), text)

    def expand(self, text: str) -> str:
        """The text as it is meant, pastes and all."""
        return _MARK.sub(lambda found: self._texts.get(found[0], ""), text)


WAITING = 3
"""Messages that are shown of those that wait."""


class Bottom:
    """Composes the rows from its parts; each part is changed by whoever knows it."""

    def __init__(self, buffer: Buffer, pastes: Pastes, look: Look) -> None:
        self._buffer, self._pastes = buffer, pastes
        self.look = look
        self.status = Status()
        self.dialogue = Dialogue()
        self.waiting: dict[str, str] = {}
        """By turn, the messages that were accepted and have not begun, as they are shown."""
        self.tail: Callable[[], list[str]] = list
        """What is being said and done right now."""
        self.resized: Callable[[int], None] = lambda _columns: None
        self.search: Callable[[], tuple[str, Document] | None] = lambda: None
        """While someone looks for an earlier input: the words looked for, and what was found."""
        self._final: list[str] = []
        self._closed = True
        """The last final row is blank, or there is none."""

    def append(self, rows: list[str]) -> None:
        """Rows for the scrollback."""
        self._final += rows

    def resize(self, columns: int) -> None:
        self.resized(columns)

    def view(self, columns: int, lines: int) -> View:
        final, self._final = self._final, []
        if final:
            self._closed = not final[-1]
        above = self._above(columns)
        box = self._input(columns, max(1, min(12, lines // 2 - 1)))
        below = menu(self._buffer.complete_state, columns, self.look)
        below = below[: max(0, lines - len(box.rows) - 2)]
        if lines > len(box.rows) + len(below):
            below.append(self.status.row(columns, self.look))
        room = max(0, lines - 1 - len(box.rows) - len(below))
        tail = self.tail()
        top = tail + ([""] if (tail or not self._closed) and room else []) + above
        if len(top) > room:
            top = top[len(top) - room :]
        rows = [clipped(row, columns) for row in (*top, *box.rows, *below)]
        return View(final, rows, (len(top) + box.cursor[0], min(box.cursor[1], columns - 1)))

    def _above(self, columns: int) -> list[str]:
        """What stands between the tail and the input."""
        rows = self.dialogue.rows(columns, self.look, typing=bool(self._buffer.text))
        # When nothing goes on a message begins at once: to show it as waiting would only flicker.
        waiting = list(self.waiting.values()) if self.status.doing else []
        shown = waiting[:WAITING]
        for text in shown:
            line = shortened(one_line(text), max(1, columns - 11), self.look.more)
            rows.append(styled(f"{self.look.note} waits: {line}", self.look.faint))
        if (left := len(waiting) - len(shown)) > 0:
            rows.append(styled(f"{self.look.note} and {left} more", self.look.faint))
        return [*rows, ""] if self.dialogue.open else rows

    def _input(self, columns: int, lines: int) -> Box:
        prompt = styled(self.look.prompt, self.look.accent) + " "
        text, cursor = self._buffer.text, self._buffer.cursor_position
        found = self.search()
        if found is not None:
            words, document = found
            text, cursor = document.text, document.cursor_position
            prompt = styled("?", self.look.warn) + " "
        box = draw(text, cursor, columns, lines, InputStyle(prompt, self._pastes.label, self.look.accent))
        if found is None:
            return box
        sought = f"  {styled('earlier input with:', self.look.faint)} {words}"
        return Box([*box.rows, sought], (len(box.rows), 22 + len(words)))
