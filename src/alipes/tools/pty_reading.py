"""Reads what a program writes to its terminal and keeps a screen by it. It shows nothing and runs nothing."""

import codecs
import re
from collections.abc import Callable

from alipes.runtime.ptys import COLUMNS, ROWS
from alipes.tools.pty_screen import Screen

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
