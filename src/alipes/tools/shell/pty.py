"""Reads what a program writes to its terminal and keeps a screen by it. It shows nothing and runs nothing."""

import codecs
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from alipes.runtime.processes.child import COLUMNS, ROWS

_MARKS = 8
"""Characters that one cell holds at most: a letter and what is written over it."""


class Row:
    """Cells from the left, as far as anything was written; a wide character is followed by an empty one."""

    __slots__ = ("cells", "wrapped")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.wrapped = False
        """The line goes on in the next row: it was too long for one."""

    def write(self, x: int, cells: str | list[str]) -> None:
        own = self.cells
        if len(own) < x:
            own.extend(" " * (x - len(own)))
        halves = "" in own
        own[x : x + len(cells)] = cells
        if halves:
            self._heal(x, x + len(cells))

    def shift(self, x: int, count: int) -> None:
        """Make room for `count` cells at `x`; negative: take them away."""
        if x < len(self.cells):
            if count > 0:
                self.cells[x:x] = " " * count
                del self.cells[COLUMNS:]
            else:
                del self.cells[x : x - count]
            self._heal(x, x + max(count, 0))

    def erase(self, start: int, end: int) -> None:
        if end >= len(self.cells):
            del self.cells[start:]
            self.wrapped = self.wrapped and end < COLUMNS
            self._heal(start, start)
        elif start < end:
            self.write(start, " " * (end - start))

    def mark(self, x: int, char: str) -> None:
        """Write over what is left of `x`, as an accent."""
        while x > 0 and (x > len(self.cells) or not self.cells[x - 1]):
            x -= 1
        if x > 0 and len(self.cells[x - 1]) < _MARKS:
            self.cells[x - 1] += char

    def text(self) -> str:
        """Its part of the text; with the end of the line, unless it goes on."""
        text = "".join(self.cells)
        return text if self.wrapped else text.rstrip() + "\n"

    def _heal(self, start: int, end: int) -> None:
        """Half of a wide character is none."""
        own = self.cells
        if 0 < start <= len(own) and width(own[start - 1][:1]) == 2 and (start == len(own) or own[start]):
            own[start - 1] = " "
        if end < len(own) and not own[end] and (end == 0 or width(own[end - 1][:1]) != 2):
            own[end] = " "


class Screen:
    """What is on it, and what has scrolled off its top since somebody asked."""

    def __init__(self) -> None:
        self.x = self.y = 0
        """Where the next character goes; `x` is one too far when a row is full and nothing followed yet."""
        self.inserting = False
        self.saved = (0, 0)
        """Where a program wants to come back to."""
        self.rows = _blank()
        self._top, self._bottom = 0, ROWS - 1
        self._main: tuple[list[Row], int, int] | None = None
        self._settled: list[str] = []

    def put(self, text: str) -> None:
        """Write printable characters at the cursor."""
        if not text.isascii():
            for char in text:
                self._put_one(char)
            return
        while text:
            self._turn_over(1)
            piece, text = text[: COLUMNS - self.x], text[COLUMNS - self.x :]
            if self.inserting:
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
        """To the next row; at the bottom what is above moves up."""
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
        """Move rows up, or down when negative: those between the margins, or from `top` on."""
        first = self._top if top is None else top
        if not self._top <= first <= self._bottom:
            return
        rows, after = self.rows, self._bottom + 1
        if count > 0:
            count = min(count, after - first)
            if top is None and first == 0 and self._main is None:
                self._settled += [row.text() for row in rows[:count]]
            del rows[first : first + count]
            rows[after - count : after - count] = _blank(count)
        else:
            count = min(-count, after - first)
            del rows[after - count : after]
            rows[first:first] = _blank(count)

    def margins(self, top: int, bottom: int) -> None:
        """Scroll these rows alone from now on; the cursor goes home."""
        if 0 <= top < bottom < ROWS:
            self._top, self._bottom = top, bottom
            self.move(0, 0)

    def erase(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Blank every cell from `start` to before `end`, each a row and a column."""
        for y in range(start[0], min(end[0], ROWS - 1) + 1):
            self.rows[y].erase(start[1] if y == start[0] else 0, end[1] if y == end[0] else COLUMNS)

    def shift(self, count: int) -> None:
        """Push the rest of the row to the right, or pull it to the left when negative."""
        self.rows[self.y].shift(self.x, count)

    def alternate(self, on: bool) -> None:
        """Programs that fill the screen draw on another one and leave the first as they found it."""
        if on and self._main is None:
            self._main = self.rows, self.y, self.x
            self.rows = _blank()
        elif not on and self._main is not None:
            self.rows, self.y, self.x = self._main
            self._main = None
        self._top, self._bottom = 0, ROWS - 1

    def text(self) -> str:
        """What it shows, without the blank rows at its end."""
        return "".join(row.text() for row in self.rows).rstrip()

    def settled(self) -> str:
        """What has scrolled away since this was asked before; it does not change any more."""
        text = "".join(self._settled)
        self._settled.clear()
        return text

    def _put_one(self, char: str) -> None:
        size = width(char)
        row = self.rows[self.y]
        if size == 0:
            row.mark(self.x, char)
            return
        self._turn_over(size)
        row = self.rows[self.y]
        if self.inserting:
            row.shift(self.x, size)
        row.write(self.x, [char, ""][:size])
        self.x += size

    def _turn_over(self, size: int) -> None:
        if self.x + size > COLUMNS:
            self.rows[self.y].wrapped = True
            self.x = 0
            self.down()


@lru_cache(maxsize=4096)
def width(char: str) -> int:
    """Cells that a character takes: two, one, or none."""
    if not char or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _blank(count: int = ROWS) -> list[Row]:
    return [Row() for _ in range(count)]


_TOKEN = (
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<params>[0-?]*)(?P<marks>[ -/]*)(?P<final>[@-~])"
    r"|(?P<string>\x1b[\]PX^_])"
    r"|\x1b(?P<set>[ -/]*)(?P<escape>[0-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)
_UNFINISHED = r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}|[ -/]{1,4})?\Z"
_STRING_END = r"\x07|\x18|\x1a|\x1b\\?"
_LONGEST = 48
_LINES = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
"""The line-drawing set, in which boxes are letters."""


class Rendering:
    """Turns the raw output of a terminal program into text, as a person would have seen it.

    What scrolls off the top of the screen is final and given out by `feed`; what is on the
    screen may still change, and is `live`.
    """

    def __init__(self) -> None:
        self.replies = bytearray()
        """What the program asked its terminal; whoever feeds us sends it back, and clears it."""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.screen = Screen()
        # compiled here and not when imported: few sessions ever need a terminal
        self._token, self._unfinished = re.compile(_TOKEN), re.compile(_UNFINISHED)
        self._string_end = re.compile(_STRING_END)
        self._held = ""
        self._in_string = False
        self._drawing = [False, False]
        self._shifted = 0
        self._last = " "

    def feed(self, raw: bytes) -> bytes:
        """Take in the next piece; the text that has become final by it."""
        text = self._held + self._decode(raw)
        unfinished = self._unfinished.search(text, max(0, len(text) - _LONGEST))
        end = unfinished.start() if unfinished else len(text)
        self._held = text[end:]
        at = 0
        while at < end:
            at = self._skip_string(text, at, end) if self._in_string else self._step(text, at, end)
        return self.screen.settled().encode(errors="replace")

    def live(self) -> str:
        """What the screen shows now."""
        return self.screen.text()

    def finish(self) -> bytes:
        """Nothing more will come: what was live is final too."""
        self.screen.alternate(False)
        text = self.screen.text()
        self.screen = Screen()
        return f"{text}\n".encode(errors="replace") if text else b""

    def _step(self, text: str, at: int, end: int) -> int:
        token = self._token.match(text, at, end)
        if token is None:  # an escape that begins nothing
            return at + 1
        if run := token["text"]:
            self._put(run)
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
        """Titles, links, pictures: nothing of it is text."""
        found = self._string_end.search(text, at, end)
        if found is None:
            return end
        self._in_string = False
        return found.start() if found[0] == "\x1b" else found.end()

    def _put(self, run: str) -> None:
        self.screen.put(run.translate(_LINES) if self._drawing[self._shifted] else run)
        self._last = run[-1]

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
                self._shifted = int(char == "\x0e")

    def _escape(self, kind: str, final: str) -> None:
        if kind in ("(", ")"):
            self._drawing["()".index(kind)] = final == "0"
        elif not kind and final == "c":
            self.screen = Screen()
            self._drawing, self._shifted = [False, False], 0
        elif not kind and final in _ESCAPES:
            _ESCAPES[final](self.screen)

    def _sequence(self, params: str, marks: str, final: str) -> None:
        if marks or params[:1] in ("<", "=", ">"):
            return
        private = params[:1] == "?"
        numbers = [_number(each) for each in params.lstrip("?").split(";")]
        if final in "hl":
            self._mode(private, numbers, final == "h")
        elif final in "nc":
            self._answer(private, numbers[0], final)
        elif final == "b":
            self.screen.put(self._last * min(max(1, numbers[0]), COLUMNS))
        elif not private and final in _SEQUENCES:
            _SEQUENCES[final](self.screen, numbers)

    def _mode(self, private: bool, numbers: list[int], on: bool) -> None:
        if private and not {47, 1047, 1049}.isdisjoint(numbers):
            self.screen.alternate(on)
        elif not private and 4 in numbers:
            self.screen.inserting = on

    def _answer(self, private: bool, number: int, final: str) -> None:
        """Some programs ask who and where they are, and wait for it."""
        if len(self.replies) > 1000:  # asked without end and never read
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


def _erase_display(screen: Screen, numbers: list[int]) -> None:
    here, after = (screen.y, screen.x), (screen.y, screen.x + 1)
    _erase(screen, numbers, ((0, 0), here, after, (ROWS - 1, COLUMNS)))


def _erase_line(screen: Screen, numbers: list[int]) -> None:
    y, x = screen.y, screen.x
    _erase(screen, numbers, ((y, 0), (y, x), (y, x + 1), (y, COLUMNS)))


def _erase(screen: Screen, numbers: list[int], places: tuple[tuple[int, int], ...]) -> None:
    first, here, after, last = places
    match numbers[0]:
        case 0:
            screen.erase(here, last)
        case 1:
            screen.erase(first, after)
        case 2:
            screen.erase(first, last)


def _relative(y: int, x: int, *, home: bool = False) -> Callable[[Screen, list[int]], None]:
    """Move by so many times the first number."""

    def move(screen: Screen, numbers: list[int]) -> None:
        count = max(1, numbers[0])
        column = 0 if home else min(screen.x, COLUMNS - 1) + x * count
        screen.step(y * count, column)

    return move


def _place(screen: Screen, numbers: list[int]) -> None:
    screen.move(max(1, numbers[0]) - 1, max(1, *numbers[1:2], 1) - 1)


def _margins(screen: Screen, numbers: list[int]) -> None:
    bottom = numbers[1] if len(numbers) > 1 and numbers[1] else ROWS
    screen.margins(max(1, numbers[0]) - 1, min(bottom, ROWS) - 1)


def _save(screen: Screen) -> None:
    screen.saved = screen.y, screen.x


def _restore(screen: Screen) -> None:
    screen.move(*screen.saved)


def _next_line(screen: Screen) -> None:
    screen.x = 0
    screen.down()


_ESCAPES: dict[str, Callable[[Screen], None]] = {
    "7": _save,
    "8": _restore,
    "D": Screen.down,
    "E": _next_line,
    "M": Screen.up,
}
_SEQUENCES: dict[str, Callable[[Screen, list[int]], None]] = {
    "@": lambda screen, n: screen.shift(min(max(1, n[0]), COLUMNS)),
    "A": _relative(-1, 0),
    "B": _relative(1, 0),
    "C": _relative(0, 1),
    "D": _relative(0, -1),
    "E": _relative(1, 0, home=True),
    "F": _relative(-1, 0, home=True),
    "G": lambda screen, n: screen.move(screen.y, max(1, n[0]) - 1),
    "H": _place,
    "I": lambda screen, n: screen.move(screen.y, (screen.x // 8 + max(1, n[0])) * 8),
    "J": _erase_display,
    "K": _erase_line,
    "L": lambda screen, n: screen.scroll(-max(1, n[0]), screen.y),
    "M": lambda screen, n: screen.scroll(max(1, n[0]), screen.y),
    "P": lambda screen, n: screen.shift(-min(max(1, n[0]), COLUMNS)),
    "S": lambda screen, n: screen.scroll(max(1, n[0])),
    "T": lambda screen, n: screen.scroll(-max(1, n[0])),
    "X": lambda screen, n: screen.erase((screen.y, screen.x), (screen.y, screen.x + max(1, n[0]))),
    "Z": lambda screen, n: screen.move(screen.y, ((screen.x - 1) // 8 - max(1, n[0]) + 1) * 8),
    "a": _relative(0, 1),
    "d": lambda screen, n: screen.move(max(1, n[0]) - 1, screen.x),
    "e": _relative(1, 0),
    "f": _place,
    "r": _margins,
    "s": lambda screen, n: _save(screen),
    "u": lambda screen, n: _restore(screen),
    "`": lambda screen, n: screen.move(screen.y, max(1, n[0]) - 1),
}
