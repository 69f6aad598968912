"""The live area below the scrollback: tail, approval, queued messages, input, menu and status."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from wcwidth import iter_graphemes

from alipes.cli.render import to_one_line, truncate
from alipes.cli.terminal.approval import ApprovalPrompt
from alipes.cli.terminal.completion import render_menu
from alipes.cli.terminal.output import Frame
from alipes.cli.terminal.picker import Picker
from alipes.cli.terminal.status import StatusLine
from alipes.cli.terminal.styles import TerminalStyle, apply_style, clip_row
from alipes.cli.width import display_width

INDENT = 2


class InputBox(NamedTuple):
    rows: list[str]
    cursor: tuple[int, int]
    """Index into `rows`, and the column."""


class InputStyle(NamedTuple):
    prompt: str
    """Styled prompt of the first row, two columns wide."""
    label: Callable[[str], str]
    """The label of a character that represents a paste; empty for others."""
    style: str = ""
    """Style of labels and control characters."""


def draw_input(text: str, cursor: int, columns: int, lines: int, style: InputStyle) -> InputBox:
    """Draw the part of `text` around the cursor in at most `lines` rows."""
    room = max(1, columns - INDENT)
    rows, at = _wrap_input(text, cursor, room, style)
    first = min(max(0, at[0] - lines + 1), max(0, len(rows) - lines))
    shown = rows[first : first + lines]
    drawn = [(style.prompt if first + n == 0 else " " * INDENT) + row for n, row in enumerate(shown)]
    return InputBox(drawn, (at[0] - first, INDENT + at[1]))


def _wrap_input(text: str, cursor: int, room: int, style: InputStyle) -> tuple[list[str], tuple[int, int]]:
    rows: list[str] = []
    at, place = (0, 0), 0
    for line in text.split("\n"):
        row, used = "", 0
        for size, shown, taken in _split_graphemes(line, style):
            if used + taken > room and used:
                rows.append(row)
                row, used = "", 0
            if place <= cursor < place + size:
                at = (len(rows), used)
            row, used, place = row + shown, used + taken, place + size
        if place == cursor:
            if used >= room:  # the cursor is where the next character will be
                rows.append(row)
                row, used = "", 0
            at = (len(rows), used)
        rows.append(row)
        place += 1
    return rows, at


def _split_graphemes(line: str, style: InputStyle) -> Iterator[tuple[int, str, int]]:
    """For each grapheme: its length in the text, how it is shown, and its width."""
    if line.isascii() and line.isprintable():
        for char in line:
            yield 1, char, 1
        return
    for piece in iter_graphemes(line):
        shown, strange = piece, False
        if label := style.label(piece):
            shown, strange = label, True
        elif piece == "\t":
            shown = "    "
        elif not piece.isprintable() and len(piece) == 1 and ord(piece) < 0xA0:
            shown, strange = f"^{chr(ord(piece) ^ 64)}" if ord(piece) < 0x80 else "?", True
        taken = display_width(shown)
        yield len(piece), apply_style(shown, style.style) if strange else shown, taken


FIRST_MARK = 0xF0000
"""First of the private-use characters that stand for pastes."""
INLINE_LINES, INLINE_CHARS = 5, 1000
"""Shorter pastes are inserted as they are."""
_MARK = re.compile("[\U000f0000-\U000fffff]")
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class PasteStore:
    """Long pastes by the characters that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def collapse(self, data: str) -> str:
        """The text or the mark to insert for pasted `data`."""
        text = _UNSAFE.sub("", data.replace("\r\n", "\n").replace("\r", "\n"))
        text = self.expand(_MARK.sub("", text))
        if text.count("\n") < INLINE_LINES and len(text) <= INLINE_CHARS:
            return text
        mark = chr(FIRST_MARK + len(self._texts))
        self._texts[mark] = text
        return mark

    def label(self, mark: str) -> str:
        """The label of the paste `mark`; empty for other characters."""
        text = self._texts.get(mark)
        if text is None:
            return ""
        lines = text.count("\n") + (not text.endswith("\n"))
        return f"[pasted {lines:,} lines]" if lines > 1 else f"[pasted {len(text):,} characters]"

    def show_labels(self, text: str) -> str:
        return _MARK.sub(lambda found: self.label(found[0]), text)

    def expand(self, text: str) -> str:
        """The text with the pastes instead of marks."""
        return _MARK.sub(lambda found: self._texts.get(found[0], ""), text)


MAX_QUEUED_ROWS = 3
MIN_RULE_LINES = 8
"""A smaller screen has no room for the rule above the input."""


class BottomArea:
    """Composes the live rows from their parts."""

    def __init__(self, buffer: Buffer, pastes: PasteStore, style: TerminalStyle) -> None:
        self._buffer, self._pastes = buffer, pastes
        self.style = style
        self.status = StatusLine()
        self.approvals = ApprovalPrompt()
        self.picker: Picker | None = None
        """The open list."""
        self.queued: dict[str, str] = {}
        """Labels of queued messages, by turn."""
        self.held: dict[str, str] = {}
        """Labels of messages that a stop kept back, by turn."""
        self.tail: Callable[[], list[str]] = list
        """The rows of the running turn."""
        self.on_resize: Callable[[int], None] = lambda _columns: None
        self.search: Callable[[], tuple[str, Document] | None] = lambda: None
        """During a history search: the search text and the match."""
        self._final: list[str] = []
        self._closed = True
        """The last final row is blank, or there is none."""

    def append(self, rows: list[str]) -> None:
        """Rows for the scrollback."""
        self._final += rows

    def resize(self, columns: int) -> None:
        self.on_resize(columns)

    def frame(self, columns: int, lines: int) -> Frame:
        final, self._final = self._final, []
        if final:
            self._closed = not final[-1]
        above = self._above(columns)
        box, below = self._input_and_below(columns, lines)
        has_rule = bool(self.style.rule) and lines >= MIN_RULE_LINES
        rule = [apply_style(self.style.rule * columns, self.style.faint)] if has_rule else []
        room = max(0, lines - 1 - len(rule) - len(box.rows) - len(below))
        tail = self.tail()
        top = tail + ([""] if (tail or not self._closed) and room else []) + above
        if len(top) > room:
            top = top[len(top) - room :]
        top += rule
        rows = [clip_row(row, columns) for row in (*top, *box.rows, *below)]
        return Frame(final, rows, (len(top) + box.cursor[0], min(box.cursor[1], columns - 1)))

    def _input_and_below(self, columns: int, lines: int) -> tuple[InputBox, list[str]]:
        """The input with its menu and the status line, or the open list instead of them."""
        if self.picker is not None:
            head, below, cursor = self.picker.draw(columns, lines - 1, self.style)
            return InputBox(head, (len(head) - 1, cursor)), below
        box = self._input(columns, max(1, min(12, lines // 2 - 1)))
        below = render_menu(self._buffer.complete_state, columns, self.style)
        below = below[: max(0, lines - len(box.rows) - 2)]
        if lines > len(box.rows) + len(below):
            below.append(self.status.render(columns, self.style))
        return box, below

    def _above(self, columns: int) -> list[str]:
        """The rows between the tail and the input."""
        rows = self.approvals.rows(columns, self.style, typing=bool(self._buffer.text))
        # While idle, a message starts at once: showing it as queued would flicker.
        rows += self._list_messages("queued", list(self.queued.values()) if self.status.activity else [], columns)
        rows += self._list_messages("kept", list(self.held.values()), columns)
        return [*rows, ""] if self.approvals.current else rows

    def _list_messages(self, word: str, texts: list[str], columns: int) -> list[str]:
        style, rows = self.style, []
        for text in texts[:MAX_QUEUED_ROWS]:
            line = truncate(to_one_line(text), max(1, columns - len(word) - 6), style.more)
            rows.append(apply_style(f"{style.note} {word}: {line}", style.faint))
        if (left := len(texts) - len(rows)) > 0:
            rows.append(apply_style(f"{style.note} and {left} more", style.faint))
        return rows

    def _input(self, columns: int, lines: int) -> InputBox:
        prompt = apply_style(self.style.prompt, self.style.accent) + " "
        text, cursor = self._buffer.text, self._buffer.cursor_position
        found = self.search()
        if found is not None:
            words, document = found
            text, cursor = document.text, document.cursor_position
            prompt = apply_style("?", self.style.warn) + " "
        box = draw_input(text, cursor, columns, lines, InputStyle(prompt, self._pastes.label, self.style.accent))
        if found is None:
            return box
        sought = f"  {apply_style('history search:', self.style.faint)} {words}"
        return InputBox([*box.rows, sought], (len(box.rows), 18 + len(words)))
