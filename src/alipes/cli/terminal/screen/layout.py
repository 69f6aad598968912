"""The live area below the scrollback: tail, approval, queued messages, input, menu and status."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from wcwidth import iter_graphemes

from alipes.cli.terminal.input.approval import ApprovalPrompt
from alipes.cli.terminal.input.choices import ChoicePrompt
from alipes.cli.terminal.input.completion import render_menu
from alipes.cli.terminal.pickers.picker import Picker
from alipes.cli.terminal.screen.output import Frame
from alipes.cli.terminal.screen.status import StatusLine
from alipes.console.render import to_one_line, truncate
from alipes.console.styles import TerminalStyle, apply_style, clip_row
from alipes.console.width import display_width

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
    faint: str = ""
    above: str = "↑"
    below: str = "↓"
    """Marks of the rows that are not shown."""


MIN_MARKED_LINES = 3
"""A lower box has no room for the number of hidden rows."""


def draw_input(text: str, cursor: int, columns: int, lines: int, style: InputStyle) -> InputBox:
    """Draw the part of `text` around the cursor in at most `lines` rows, with the number of hidden rows."""
    rows, (y, x) = _wrap_input(text, cursor, max(1, columns - INDENT), style)
    first, last = _visible_range(len(rows), y, lines)
    shown = rows[first:last]
    if lines >= MIN_MARKED_LINES:
        if first:
            shown[0] = apply_style(f"{style.above} {first + 1} more", style.faint)
        if last < len(rows):
            shown[-1] = apply_style(f"{style.below} {len(rows) - last + 1} more", style.faint)
    drawn = [(" " * INDENT if number else style.prompt) + row for number, row in enumerate(shown)]
    return InputBox(drawn, (y - first, INDENT + x))


def _visible_range(count: int, y: int, lines: int) -> tuple[int, int]:
    """The rows that fit, so that row `y` is visible and not replaced by a mark."""
    if count <= lines:
        return 0, count
    spare = 1 if lines >= MIN_MARKED_LINES else 0
    first = max(0, min(y - lines + 1 + spare, count - lines))
    return first, first + lines


class _Piece(NamedTuple):
    """A grapheme of the input."""

    size: int
    shown: str
    width: int
    ends_word: bool


def _wrap_input(text: str, cursor: int, room: int, style: InputStyle) -> tuple[list[str], tuple[int, int]]:
    """The rows, wrapped at words, and the row and column of the cursor."""
    rows: list[str] = []
    at, place = (0, 0), 0
    for line in text.split("\n"):
        wrapped = _wrap_line([*_split_graphemes(line, style)], room)
        for number, pieces in enumerate(wrapped):
            used = 0
            for piece in pieces:
                if place <= cursor < place + piece.size:
                    at = (len(rows), min(used, room - 1))
                used, place = used + piece.width, place + piece.size
            rows.append("".join(piece.shown for piece in pieces))
            if place == cursor and number == len(wrapped) - 1:
                if used >= room:  # the cursor is where the next character will be
                    rows.append("")
                    used = 0
                at = (len(rows) - 1, used)
        place += 1
    return rows, at


def _wrap_line(pieces: list[_Piece], room: int) -> list[list[_Piece]]:
    """Split a line into rows after blanks and wide characters, or anywhere in a word that is too long."""
    rows: list[list[_Piece]] = []
    row: list[_Piece] = []
    used = 0
    for piece in pieces:
        if row and used + piece.width > room:
            if piece.shown == " ":  # a blank at the edge takes no room
                row.append(_Piece(piece.size, "", 0, True))
                used = room
                continue
            end = next((number for number in range(len(row), 0, -1) if row[number - 1].ends_word), len(row))
            rows.append(row[:end])
            row = row[end:]
            used = sum(each.width for each in row)
        row.append(piece)
        used += piece.width
    return [*rows, row]


def _split_graphemes(line: str, style: InputStyle) -> Iterator[_Piece]:
    if line.isascii() and line.isprintable():
        for char in line:
            yield _Piece(1, char, 1, char == " ")
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
        ends_word = taken > 1 or piece.isspace()
        yield _Piece(len(piece), apply_style(shown, style.style) if strange else shown, taken, ends_word)


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
        self._pictures: dict[str, str] = {}
        """Labels of pictures, by their marks."""

    def add_picture(self, mention: str) -> str:
        """The mark to insert for a picture, which is sent as `mention`."""
        mark = chr(FIRST_MARK + len(self._texts))
        self._texts[mark] = mention
        self._pictures[mark] = f"[picture {len(self._pictures) + 1}]"
        return mark

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
        if picture := self._pictures.get(mark):
            return picture
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
KEY_GAP = 4
"""Blank columns between two lists of keys that are side by side."""


def render_keys(table: list[tuple[str, str]], columns: int, style: TerminalStyle) -> list[str]:
    """The rows of the list of keys, in as many lists side by side as fit."""
    for beside in (3, 2, 1):
        height = -(-len(table) // beside)
        blocks = [table[start : start + height] for start in range(0, len(table), height)]
        widths = [_measure_keys(block) for block in blocks]
        if beside == 1 or 2 + sum(keys + texts for keys, texts in widths) + KEY_GAP * (len(blocks) - 1) <= columns:
            break
    if len(blocks) == 1 and 2 + sum(widths[0]) > columns:  # only one key for each action
        blocks = [[(keys.partition(", ")[0], text) for keys, text in table]]
        keys_width = _measure_keys(blocks[0])[0]
        widths = [(keys_width, max(1, columns - 2 - keys_width))]
        blocks = [[(keys, truncate(text, widths[0][1], style.more)) for keys, text in blocks[0]]]
    rows = ["  "] * height
    for block, (keys_width, width) in zip(blocks, widths, strict=True):
        for y, (keys, text) in enumerate(block):
            end = " " * (width - display_width(text) + KEY_GAP) if block is not blocks[-1] else ""
            head = apply_style(keys, style.accent) + " " * (keys_width - display_width(keys))
            rows[y] += f"{head}{apply_style(text, style.faint)}{end}"
    return rows


def _measure_keys(block: list[tuple[str, str]]) -> tuple[int, int]:
    """The columns of the keys, with a gap, and of their descriptions."""
    return max(display_width(keys) for keys, _ in block) + 2, max(display_width(text) for _, text in block)


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
        self.after_turn: set[str] = set()
        """Those that wait for the end of the running turn; the others reach it at its next step."""
        self.held: dict[str, str] = {}
        """Labels of messages that a stop kept back, by turn."""
        self.stashed, self.stash_key = "", ""
        """The draft that was put aside, and the key that brings it back."""
        self.choices = ChoicePrompt()
        self.key_help: list[tuple[str, str]] = []
        """Keys and descriptions while they are shown."""
        self.vi_mark: Callable[[], str] = lambda: ""
        """A letter for the mode of the Vim editing keys, other than the insert mode."""
        self.tail: Callable[[], list[str]] = list
        """The rows of the running turn."""
        self.is_following: Callable[[], bool] = lambda: False
        """True while the output of a background process is shown."""
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
        has_rule = bool(self.style.rule) and lines >= MIN_RULE_LINES
        rule = [apply_style(self.style.rule * columns, self.style.faint)] if has_rule else []
        box, below = self._input_and_below(columns, lines - len(rule))
        room = max(0, lines - 1 - len(rule) - len(box.rows) - len(below))
        above, tail = self._above(columns, room), self.tail()
        top = tail + ([""] if (tail or not self._closed) and room else []) + above
        if len(top) > room:
            top = top[len(top) - room :]
        top += rule
        rows = [clip_row(row, columns) for row in (*top, *box.rows, *below)]
        return Frame(final, rows, (len(top) + box.cursor[0], min(box.cursor[1], columns - 1)))

    def _input_and_below(self, columns: int, lines: int) -> tuple[InputBox, list[str]]:
        """The input with its menu and the status line, or the open list instead of them."""
        if self.picker is not None:
            head, below, cursor = self.picker.draw(columns, lines - 2, self.style)
            return InputBox(head, (len(head) - 1, cursor)), below
        box = self._input(columns, max(1, min(12, lines // 2 - 1)))
        below = render_menu(self._buffer.complete_state, columns, self.style)
        if self.key_help:
            below = render_keys(self.key_help, columns, self.style)
        if (left := len(below) - max(0, lines - len(box.rows) - 2)) > 0:
            below = below[: len(below) - left]
            if self.key_help and below:
                below[-1] = "  " + apply_style(f"{self.style.more} /keys shows all", self.style.faint)
        if lines > len(box.rows) + len(below):
            below.append(self.status.render(columns, self.style))
        return box, below

    def _above(self, columns: int, room: int) -> list[str]:
        """The rows between the tail and the input."""
        typing = bool(self._buffer.text)
        rows = self.approvals.rows(columns, self.style, typing=typing, room=room - 1)
        if not self.approvals.current:
            rows += self.choices.rows(columns, self.style, typing=typing)
        # While idle, a message starts at once: showing it as queued would flicker.
        queued = self.queued if self.status.activity else {}
        later = [label for id, label in queued.items() if id in self.after_turn]
        rows += self._list_messages(
            "next step", [label for id, label in queued.items() if id not in self.after_turn], columns
        )
        rows += self._list_messages("after this turn", later, columns)
        rows += self._list_messages("kept", list(self.held.values()), columns)
        if self.stashed:
            draft = self._pastes.show_labels(self.stashed)
            rows += self._list_messages(f"draft ({self.stash_key})" if self.stash_key else "draft", [draft], columns)
        return [*rows, ""] if self.approvals.current or self.choices.is_open else rows

    def _list_messages(self, word: str, texts: list[str], columns: int) -> list[str]:
        style, rows = self.style, []
        for text in texts[:MAX_QUEUED_ROWS]:
            line = truncate(to_one_line(text), max(1, columns - len(word) - 6), style.more)
            rows.append(apply_style(f"{style.note} {word}: {line}", style.faint))
        if (left := len(texts) - len(rows)) > 0:
            rows.append(apply_style(f"{style.note} and {left} more", style.faint))
        return rows

    def _input(self, columns: int, lines: int) -> InputBox:
        prompt = apply_style(self.vi_mark() or self.style.prompt, self.style.accent) + " "
        text, cursor = self._buffer.text, self._buffer.cursor_position
        found = self.search()
        if found is not None:
            words, document = found
            text, cursor = document.text, document.cursor_position
            prompt = apply_style("?", self.style.warn) + " "
        marks = ("↑", "↓") if self.style.more == "…" else ("^", "v")
        style = InputStyle(prompt, self._pastes.label, self.style.accent, self.style.faint, *marks)
        box = draw_input(text, cursor, columns, lines, style)
        if found is None:
            return box
        sought = f"  {apply_style('history search:', self.style.faint)} {words}"
        return InputBox([*box.rows, sought], (len(box.rows), 18 + len(words)))
