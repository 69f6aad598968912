"""Take a picture of a terminal program: run it in a real pty, type, and draw the last screen as SVG.

    python tools/picture.py OUT.svg [--size 92x24] [--theme dark] [--replace OLD=NEW]... [--rename OLD=NEW]...
                            [--steady] [--steps JSON] -- COMMAND...

The steps are a list of pairs: `until` waits for a text on the screen, `gone` until it is not there, `type` types a
text and Enter, `keys` without Enter. Without steps the program runs to its end. `--replace` changes the output
before it is drawn, for paths of this machine in programs that print once and exit; `--rename` changes one row on the
screen. `--steady` draws fixed digits for durations, so that two runs give the same picture.
"""

import argparse
import fcntl
import html
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pyte

THEMES = {
    "dark": {"background": "#16181d", "default": "#d7dae0", "frame": "#2b2f38"},
    "light": {"background": "#fbfbf9", "default": "#2b2f36", "frame": "#d9dad6"},
}
COLOURS = {
    "black": "#3b4048", "red": "#d1605e", "green": "#5a9e63", "brown": "#b58a3c", "blue": "#5486c6",
    "magenta": "#a374b8", "cyan": "#4a9ca6", "white": "#b9bec7", "brightblack": "#7d8590",
    "brightred": "#e07b79", "brightgreen": "#7cc084", "brightbrown": "#d7ab5d", "brightblue": "#79a6e0",
    "brightmagenta": "#c298d4", "brightcyan": "#6fbfc8", "brightwhite": "#ffffff",
}  # fmt: skip
CELL, LINE, MARGIN = 8.4, 18, 14


class Screen(pyte.Screen):
    """With faint text, which pyte does not support: it is stored as blinking."""

    def select_graphic_rendition(self, *attrs: int, **more: bool) -> None:
        named, colour = list[int](), 0
        for at, attr in enumerate(attrs):
            if not colour and attr in (38, 48):  # followed by 5 and a number, or by 2 and three
                colour = 5 if attrs[at + 1 : at + 2] == (2,) else 3
            named.append(5 if attr == 2 and not colour else attr)
            colour -= colour > 0
        super().select_graphic_rendition(*named, **more)


class Terminal:
    """A child process in a pty, and its screen."""

    def __init__(self, command: list[str], columns: int, lines: int) -> None:
        self.screen = Screen(columns, lines)
        self.output = b""
        self._stream = pyte.ByteStream(self.screen)
        self._child, self._pty = pty.fork()
        if self._child == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", COLUMNS=str(columns), LINES=str(lines))
            os.execvp(command[0], command)
        fcntl.ioctl(self._pty, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def take(self, kind: str, text: str) -> None:
        """Take one step."""
        match kind:
            case "until":
                self.until(text)
            case "gone":
                self.until(text, shown=False)
            case "type":
                self.type(f"{text}\r")
            case "keys":
                self.type(text)
                self.read(0.4)

    def type(self, text: str) -> None:
        pieces = [text] if text.startswith("\x1b") else text
        for piece in pieces:
            os.write(self._pty, piece.encode())
            self.read(0.02)

    def read(self, seconds: float) -> bool:
        """Draw the output of the next `seconds`; False if the child has exited."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._pty], [], [], left)[0]:
                try:
                    data = os.read(self._pty, 65536)
                except OSError:
                    return False
                if b"\x1b[6n" in data:  # a query for the cursor position
                    answer = f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R"
                    os.write(self._pty, answer.encode())
                self.output += data
                self._stream.feed(data)
        return True

    def until(self, text: str, seconds: float = 30, *, shown: bool = True) -> None:
        end = time.monotonic() + seconds
        running = True
        while (text in "\n".join(self.screen.display)) != shown:
            if time.monotonic() > end or not running:
                raise SystemExit(f"{text!r} did not appear:\n" + "\n".join(self.screen.display))
            running = self.read(0.1)
        self.read(0.4)

    def until_exit(self, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while self.read(0.1):
            if time.monotonic() > end:
                raise SystemExit("the program did not exit:\n" + "\n".join(self.screen.display))

    def close(self) -> None:
        os.kill(self._child, signal.SIGHUP)
        os.waitpid(self._child, 0)


def replay(output: bytes, replacements: list[tuple[str, str]], columns: int, lines: int) -> pyte.Screen:
    """The screen after `output`, with replacements."""
    for old, new in replacements:
        output = output.replace(old.encode(), new.encode())
    screen = Screen(columns, lines)
    pyte.ByteStream(screen).feed(output)
    return screen


def steady(screen: pyte.Screen) -> None:
    """Replace durations by others of the same length."""
    for y, line in enumerate(screen.display):
        for found in re.finditer(r"\d+\.(\d+) ?s\b|(?<=· )(\d+) s\b", line):
            last = max(found.end(1), found.end(2)) - 1
            for x in range(*found.span()):
                cell = screen.buffer[y][x]
                if cell.data.isdigit():
                    screen.buffer[y][x] = cell._replace(data="1" if x == last else "0")


def rename(screen: pyte.Screen, old: str, new: str) -> None:
    """Replace a text on the screen and move the rest of its row."""
    for y, line in enumerate(screen.display):
        if (x := line.find(old)) >= 0:
            cells = [screen.buffer[y][place] for place in range(screen.columns)]
            named = [cells[x]._replace(data=letter) for letter in new]
            moved = [*cells[:x], *named, *cells[x + len(old) :]] + [screen.default_char] * len(old)
            for place in range(screen.columns):
                screen.buffer[y][place] = moved[place]


def draw(screen: pyte.Screen, theme: dict[str, str]) -> str:
    """The screen as SVG: one text element per run of equal style."""
    rows = max((y for y, line in enumerate(screen.display) if line.strip()), default=0) + 1
    width, height = screen.columns * CELL + 2 * MARGIN, rows * LINE + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="{theme["background"]}" stroke="{theme["frame"]}"/>',
    ]
    cursor = screen.cursor
    if not cursor.hidden and cursor.y < rows:
        out.append(_block(cursor.x, cursor.y, 1, f'fill="{theme["default"]}" opacity="0.55"'))
    for y in range(rows):
        out += _row(screen, y, theme)
    return "\n".join([*out, "</svg>"]) + "\n"


def _block(x: int, y: int, cells: int, paint: str, *, height: int = LINE - 1) -> str:
    """A filled area behind the text of some cells."""
    place = f'x="{MARGIN + x * CELL:.1f}" y="{MARGIN + y * LINE - 1}"'
    return f'<rect {place} width="{cells * CELL:.1f}" height="{height}" {paint}/>'


def _row(screen: pyte.Screen, y: int, theme: dict[str, str]) -> list[str]:
    runs: list[tuple[int, tuple[str, str, bool, str], str]] = []
    for x in range(screen.columns):
        cell = screen.buffer[y][x]
        tint = "" if cell.bg == "default" else _colour(cell.bg, theme)
        style = (_colour(cell.fg, theme), _attributes(cell), cell.reverse, tint)
        if runs and runs[-1][1] == style and cell.data:
            runs[-1] = (runs[-1][0], style, runs[-1][2] + cell.data)
        elif cell.data:  # the second half of a wide character is empty
            runs.append((x, style, cell.data))
    base = MARGIN + y * LINE + 13
    drawn = []
    for x, (colour, attributes, reverse, tint), text in runs:
        if tint:
            drawn.append(_block(x, y, len(text), f'fill="{tint}"', height=LINE))
        if reverse:
            drawn.append(_block(x, y, len(text), f'fill="{colour}" rx="2"'))
            colour = theme["background"]
        if text := text.rstrip():
            place = f'x="{MARGIN + x * CELL:.1f}" y="{base}" textLength="{len(text) * CELL:.1f}"'
            drawn.append(f'<text {place} xml:space="preserve" fill="{colour}"{attributes}>{html.escape(text)}</text>')
    return drawn


def _attributes(cell: pyte.screens.Char) -> str:
    style = (' font-weight="600"' if cell.bold else "") + (' font-style="italic"' if cell.italics else "")
    style += ' opacity="0.6"' if cell.blink else ""
    return style + (' text-decoration="underline"' if cell.underscore else "")


def _colour(name: str, theme: dict[str, str]) -> str:
    if name == "default":
        return theme["default"]
    return COLOURS.get(name, f"#{name}" if len(name) == 6 else theme["default"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="92x24")
    parser.add_argument("--theme", choices=THEMES, default="dark")
    parser.add_argument("--steps", type=json.loads, default=[])
    parser.add_argument("--replace", action="append", default=[])
    parser.add_argument("--rename", action="append", default=[])
    parser.add_argument("--steady", action="store_true")
    own, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    options = parser.parse_args(own)
    columns, lines = map(int, options.size.split("x"))
    terminal = Terminal(command, columns, lines)
    try:
        for kind, text in options.steps:
            terminal.take(kind, text)
        if not options.steps:
            terminal.until_exit()
        screen: pyte.Screen = terminal.screen
        if options.replace:
            pairs = [(old, new) for old, _, new in (each.partition("=") for each in options.replace)]
            screen = replay(terminal.output, pairs, columns, lines)
        for old, _, new in (each.partition("=") for each in options.rename):
            rename(screen, old, new)
        if options.steady:
            steady(screen)
        options.out.write_text(draw(screen, THEMES[options.theme]))
    finally:
        terminal.close()


if __name__ == "__main__":
    main()
