"""Terminal emulator: turns the output of a program on a pseudo terminal into text."""

import codecs
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from alipes.runtime.processes.child import COLUMNS, ROWS

_MAX_CELL_CHARS = 8
"""Most characters in one cell: a letter and combining marks."""
_TOKEN = (
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<params>[0-?]*)(?P<marks>[ -/]*)(?P<final>[@-~])"
    r"|(?P<string>\x1b[\]PX^_])"
    r"|\x1b(?P<set>[ -/]*)(?P<escape>[0-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)
_UNFINISHED = r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}|[ -/]{1,4})?\Z"
_STRING_END = r"\x07|\x18|\x1a|\x1b\\?"
_MAX_SEQUENCE_CHARS = 48
_LINE_DRAWING = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")


class ScreenRow:
    """Cells up to the last one written; a wide character is followed by an empty cell."""

    __slots__ = ("cells", "wrapped")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.wrapped = False
        """The line continues in the next row."""

    def write(self, x: int, cells: str | list[str]) -> None:
        own = self.cells
        if len(own) < x:
            own.extend(" " * (x - len(own)))
        halves = "" in own
        own[x : x + len(cells)] = cells
        if halves:
            self._repair_halves(x, x + len(cells))

    def shift(self, x: int, count: int) -> None:
        """Insert `count` cells at `x`; negative: delete them."""
        if x < len(self.cells):
            if count > 0:
                self.cells[x:x] = " " * count
                del self.cells[COLUMNS:]
            else:
                del self.cells[x : x - count]
            self._repair_halves(x, x + max(count, 0))

    def erase(self, start: int, end: int) -> None:
        if end >= len(self.cells):
            del self.cells[start:]
            self.wrapped = self.wrapped and end < COLUMNS
            self._repair_halves(start, start)
        elif start < end:
            self.write(start, " " * (end - start))

    def combine(self, x: int, char: str) -> None:
        """Add a combining mark to the character left of `x`."""
        while x > 0 and (x > len(self.cells) or not self.cells[x - 1]):
            x -= 1
        if x > 0 and len(self.cells[x - 1]) < _MAX_CELL_CHARS:
            self.cells[x - 1] += char

    def text(self) -> str:
        """The row as text, with a line end unless the line continues."""
        text = "".join(self.cells)
        return text if self.wrapped else text.rstrip() + "\n"

    def _repair_halves(self, start: int, end: int) -> None:
        """Replace half-overwritten wide characters by blanks."""
        own = self.cells
        if 0 < start <= len(own) and cell_width(own[start - 1][:1]) == 2 and (start == len(own) or own[start]):
            own[start - 1] = " "
        if end < len(own) and not own[end] and (end == 0 or cell_width(own[end - 1][:1]) != 2):
            own[end] = " "


class PtyScreen:
    """Grid of rows with a cursor, and the rows that scrolled off the top."""

    def __init__(self) -> None:
        self.x = self.y = 0
        """Cursor. `x` is one past the last column when a row is full and nothing followed yet."""
        self.insert_mode = False
        self.saved = (0, 0)
        self.rows = _blank_rows()
        self._top, self._bottom = 0, ROWS - 1
        self._main: tuple[list[ScreenRow], int, int] | None = None
        self._scrolled: list[str] = []

    def put(self, text: str) -> None:
        """Write printable characters at the cursor."""
        if not text.isascii():
            for char in text:
                self._put_one(char)
            return
        while text:
            self._wrap_if_full(1)
            piece, text = text[: COLUMNS - self.x], text[COLUMNS - self.x :]
            if self.insert_mode:
                self.rows[self.y].shift(self.x, len(piece))
            self.rows[self.y].write(self.x, piece)
            self.x += len(piece)

    def move(self, y: int, x: int) -> None:
        self.y, self.x = max(0, min(y, ROWS - 1)), max(0, min(x, COLUMNS - 1))

    def step(self, down: int, x: int) -> None:
        """Move by rows, but not across a margin."""
        low = self._top if self.y >= self._top else 0
        high = self._bottom if self.y <= self._bottom else ROWS - 1
        self.move(max(low, min(self.y + down, high)), x)

    def down(self) -> None:
        """Move to the next row; scroll at the bottom."""
        if self.y == self._bottom:
            self.scroll(1)
        elif self.y < ROWS - 1:
            self.y += 1

    def up(self) -> None:
        if self.y == self._top:
            self.scroll(-1)
        elif self.y > 0:
            self.y -= 1

    def scroll(self, count: int, top: int | None = None) -> None:
        """Scroll up, or down if negative, between the margins or from `top`."""
        first = self._top if top is None else top
        if not self._top <= first <= self._bottom:
            return
        rows, after = self.rows, self._bottom + 1
        if count > 0:
            count = min(count, after - first)
            if top is None and first == 0 and self._main is None:
                self._scrolled += [row.text() for row in rows[:count]]
            del rows[first : first + count]
            rows[after - count : after - count] = _blank_rows(count)
        else:
            count = min(-count, after - first)
            del rows[after - count : after]
            rows[first:first] = _blank_rows(count)

    def margins(self, top: int, bottom: int) -> None:
        """Set the scrolling region and move the cursor home."""
        if 0 <= top < bottom < ROWS:
            self._top, self._bottom = top, bottom
            self.move(0, 0)

    def erase(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Blank every cell from `start` to before `end`, each a row and a column."""
        for y in range(start[0], min(end[0], ROWS - 1) + 1):
            self.rows[y].erase(start[1] if y == start[0] else 0, end[1] if y == end[0] else COLUMNS)

    def shift(self, count: int) -> None:
        """Shift the rest of the row right, or left if negative."""
        self.rows[self.y].shift(self.x, count)

    def alternate(self, on: bool) -> None:
        """Switch to the alternate screen of full-screen programs, or back."""
        if on and self._main is None:
            self._main = self.rows, self.y, self.x
            self.rows = _blank_rows()
        elif not on and self._main is not None:
            self.rows, self.y, self.x = self._main
            self._main = None
        self._top, self._bottom = 0, ROWS - 1

    def text(self) -> str:
        """Its text, without blank rows at the end."""
        return "".join(row.text() for row in self.rows).rstrip()

    def take_scrolled(self) -> str:
        """Return and clear the rows that scrolled off since the last call; they are final."""
        text = "".join(self._scrolled)
        self._scrolled.clear()
        return text

    def _put_one(self, char: str) -> None:
        size = cell_width(char)
        if size == 0:
            self.rows[self.y].combine(self.x, char)
            return
        self._wrap_if_full(size)
        row = self.rows[self.y]
        if self.insert_mode:
            row.shift(self.x, size)
        row.write(self.x, [char, ""][:size])
        self.x += size

    def _wrap_if_full(self, size: int) -> None:
        if self.x + size > COLUMNS:
            self.rows[self.y].wrapped = True
            self.x = 0
            self.down()


@lru_cache(maxsize=4096)
def cell_width(char: str) -> int:
    """Cells of a character: 0, 1 or 2."""
    if not char or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _blank_rows(count: int = ROWS) -> list[ScreenRow]:
    return [ScreenRow() for _ in range(count)]


class TerminalEmulator:
    """Turns raw terminal output into the text that a person would see.

    Rows that scroll off the top are final and returned by `feed`; `screen.text()` is what the screen shows now.
    """

    def __init__(self) -> None:
        self.replies = bytearray()
        """Replies to queries of the program; the caller sends and clears them."""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.screen = PtyScreen()
        # compiled here, not at import: few sessions need a terminal
        self._token, self._unfinished = re.compile(_TOKEN), re.compile(_UNFINISHED)
        self._string_end = re.compile(_STRING_END)
        self._incomplete = ""
        self._in_string = False
        self._line_drawing = [False, False]
        self._charset = 0
        self._last = " "

    def feed(self, raw: bytes) -> bytes:
        """Process the next piece; returns the text that became final."""
        text = self._incomplete + self._decode(raw)
        unfinished = self._unfinished.search(text, max(0, len(text) - _MAX_SEQUENCE_CHARS))
        end = unfinished.start() if unfinished else len(text)
        self._incomplete = text[end:]
        at = 0
        while at < end:
            at = self._skip_string(text, at, end) if self._in_string else self._step(text, at, end)
        return self.screen.take_scrolled().encode(errors="replace")

    def finish(self) -> bytes:
        """The output has ended; returns the rest of the text."""
        self.screen.alternate(False)
        text = self.screen.text()
        self.screen = PtyScreen()
        return f"{text}\n".encode(errors="replace") if text else b""

    def _step(self, text: str, at: int, end: int) -> int:
        token = self._token.match(text, at, end)
        if token is None:  # a lone escape
            return at + 1
        if run := token["text"]:
            self.screen.put(run.translate(_LINE_DRAWING) if self._line_drawing[self._charset] else run)
            self._last = run[-1]
        elif token["final"]:
            self._sequence(token["params"], token["marks"], token["final"])
        elif token["string"]:
            self._in_string = True
        elif token["escape"]:
            self._escape(token["set"], token["escape"])
        else:
            self._control(token["control"])
        return token.end()

    def _skip_string(self, text: str, at: int, end: int) -> int:
        """Skip the content of a title, link or picture."""
        found = self._string_end.search(text, at, end)
        if found is None:
            return end
        self._in_string = False
        return found.start() if found[0] == "\x1b" else found.end()

    def _control(self, char: str) -> None:
        screen = self.screen
        match char:
            case "\n" | "\v" | "\f":
                screen.down()
            case "\r":
                screen.x = 0
            case "\b":
                screen.move(screen.y, min(screen.x, COLUMNS - 1) - 1)
            case "\t":
                screen.move(screen.y, (screen.x // 8 + 1) * 8)
            case "\x0e" | "\x0f":
                self._charset = int(char == "\x0e")

    def _escape(self, kind: str, final: str) -> None:
        if kind in ("(", ")"):
            self._line_drawing["()".index(kind)] = final == "0"
        elif not kind and final == "c":
            self.screen = PtyScreen()
            self._line_drawing, self._charset = [False, False], 0
        elif not kind and final in _ESCAPES:
            _ESCAPES[final](self.screen)

    def _sequence(self, params: str, marks: str, final: str) -> None:
        if marks or params[:1] in ("<", "=", ">"):
            return
        private = params[:1] == "?"
        numbers = [_number(each) for each in params.lstrip("?").split(";")]
        if final in "hl" and private and not {47, 1047, 1049}.isdisjoint(numbers):
            self.screen.alternate(final == "h")
        elif final in "hl" and not private and 4 in numbers:
            self.screen.insert_mode = final == "h"
        elif final in "nc":
            self._reply(private, numbers[0], final)
        elif final == "b":
            self.screen.put(self._last * min(max(1, numbers[0]), COLUMNS))
        elif not private and final in _SEQUENCES:
            _SEQUENCES[final](self.screen, numbers)

    def _reply(self, private: bool, number: int, final: str) -> None:
        if len(self.replies) > 1000:  # flooded with queries
            return
        if final == "c" and not private:
            self.replies += b"\x1b[?6c"
        elif final == "n" and number == 5:
            self.replies += b"\x1b[0n"
        elif final == "n" and number == 6:
            place = f"{self.screen.y + 1};{min(self.screen.x, COLUMNS - 1) + 1}"
            self.replies += f"\x1b[{'?' if private else ''}{place}R".encode()


def _number(text: str) -> int:
    digits = text.partition(":")[0][:5]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _erase(screen: PtyScreen, numbers: list[int], first: tuple[int, int], last: tuple[int, int]) -> None:
    here, after = (screen.y, screen.x), (screen.y, screen.x + 1)
    match numbers[0]:
        case 0:
            screen.erase(here, last)
        case 1:
            screen.erase(first, after)
        case 2:
            screen.erase(first, last)


def _move_by(y: int, x: int, *, home: bool = False) -> Callable[[PtyScreen, list[int]], None]:
    """A handler that moves the cursor by a multiple of the first parameter."""

    def move(screen: PtyScreen, numbers: list[int]) -> None:
        count = max(1, numbers[0])
        column = 0 if home else min(screen.x, COLUMNS - 1) + x * count
        screen.step(y * count, column)

    return move


def _move_to(screen: PtyScreen, numbers: list[int]) -> None:
    screen.move(max(1, numbers[0]) - 1, max(1, *numbers[1:2], 1) - 1)


def _set_margins(screen: PtyScreen, numbers: list[int]) -> None:
    bottom = numbers[1] if len(numbers) > 1 and numbers[1] else ROWS
    screen.margins(max(1, numbers[0]) - 1, min(bottom, ROWS) - 1)


def _save(screen: PtyScreen) -> None:
    screen.saved = screen.y, screen.x


def _restore(screen: PtyScreen) -> None:
    screen.move(*screen.saved)


def _next_line(screen: PtyScreen) -> None:
    screen.x = 0
    screen.down()


_ESCAPES: dict[str, Callable[[PtyScreen], None]] = {
    "7": _save,
    "8": _restore,
    "D": PtyScreen.down,
    "E": _next_line,
    "M": PtyScreen.up,
}
_SEQUENCES: dict[str, Callable[[PtyScreen, list[int]], None]] = {
    "@": lambda screen, n: screen.shift(min(max(1, n[0]), COLUMNS)),
    "A": _move_by(-1, 0),
    "B": _move_by(1, 0),
    "C": _move_by(0, 1),
    "D": _move_by(0, -1),
    "E": _move_by(1, 0, home=True),
    "F": _move_by(-1, 0, home=True),
    "G": lambda screen, n: screen.move(screen.y, max(1, n[0]) - 1),
    "H": _move_to,
    "I": lambda screen, n: screen.move(screen.y, (screen.x // 8 + max(1, n[0])) * 8),
    "J": lambda screen, n: _erase(screen, n, (0, 0), (ROWS - 1, COLUMNS)),
    "K": lambda screen, n: _erase(screen, n, (screen.y, 0), (screen.y, COLUMNS)),
    "L": lambda screen, n: screen.scroll(-max(1, n[0]), screen.y),
    "M": lambda screen, n: screen.scroll(max(1, n[0]), screen.y),
    "P": lambda screen, n: screen.shift(-min(max(1, n[0]), COLUMNS)),
    "S": lambda screen, n: screen.scroll(max(1, n[0])),
    "T": lambda screen, n: screen.scroll(-max(1, n[0])),
    "X": lambda screen, n: screen.erase((screen.y, screen.x), (screen.y, screen.x + max(1, n[0]))),
    "Z": lambda screen, n: screen.move(screen.y, ((screen.x - 1) // 8 - max(1, n[0]) + 1) * 8),
    "a": _move_by(0, 1),
    "d": lambda screen, n: screen.move(max(1, n[0]) - 1, screen.x),
    "e": _move_by(1, 0),
    "f": _move_to,
    "r": _set_margins,
    "s": lambda screen, n: _save(screen),
    "u": lambda screen, n: _restore(screen),
    "`": lambda screen, n: screen.move(screen.y, max(1, n[0]) - 1),
}
