"""Keys and replies of the terminal, over a real pty."""

import os
import pty
import select
import tty

import pytest
from prompt_toolkit.keys import Keys

from alipes.cli.terminal.input.keyboard import CTRL_ENTER, ESCAPE_KEY, SHIFT_ENTER, Keyboard


class Line:
    """A pty with a keyboard at its end."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        tty.setraw(slave)
        self.stdin = os.fdopen(slave)
        self.received: list[bool] = []
        self.keyboard = Keyboard(self.stdin, self.received.append)

    def typed(self, data: bytes) -> str:
        """What arrives as keys for these bytes."""
        os.write(self.master, data)
        return "".join(press.data for press in self.keyboard.read_keys())

    def close(self) -> None:
        os.close(self.master)
        self.stdin.close()


@pytest.fixture
def line():
    line = Line()
    yield line
    line.close()


@pytest.mark.parametrize(
    ("answer", "dark"),
    [
        (b"\x1b]11;rgb:1616/1818/1d1d\x1b\\", True),
        (b"\x1b]11;rgb:ff/ff/f0\x07", False),
        (b"\x1b]11;rgba:ffff/ffff/ffff/ffff\x07", False),
    ],
)
def test_a_reply_is_reported_and_not_typed(line, answer, dark):
    line.keyboard.query_sent()
    assert line.typed(b"ab" + answer + b"cd") == "abcd"
    assert line.received == [dark] and not line.keyboard.awaits_reply


def test_a_reply_in_pieces_is_assembled(line):
    line.keyboard.query_sent()
    answer = b"\x1b]11;rgb:0000/0000/0000\x1b\\"
    typed = "".join(line.typed(bytes([byte])) for byte in b"x" + answer + b"y")
    typed += "".join(press.data for press in line.keyboard.flush_keys())
    assert typed == "xy" and line.received == [True]


def test_a_late_reply_is_not_typed_either(line, monkeypatch):
    monkeypatch.setattr("alipes.cli.terminal.input.keyboard.REPLY_TIMEOUT_S", -1.0)
    line.keyboard.query_sent()
    assert not line.keyboard.awaits_reply
    assert line.typed(b"a\x1b]11;rgb:ffff/ffff/ffff\x07b") == "ab"
    assert line.received == [False]


def test_alt_and_a_bracket_is_a_key_without_a_query(line):
    assert line.typed(b"\x1b]11;x") == "\x1b]11;x"


def test_a_partial_reply_that_never_ends_is_typed(line, monkeypatch):
    line.keyboard.query_sent()
    assert line.typed(b"\x1b]1") == ""
    monkeypatch.setattr("alipes.cli.terminal.input.keyboard.REPLY_TIMEOUT_S", -1.0)
    assert "".join(press.data for press in line.keyboard.flush_keys()) == "\x1b]1"


def test_text_typed_before_the_start_is_read_with_enter_as_enter(line):
    os.write(line.master, b"early\nlate")
    select.select([line.stdin], [], [])
    with line.keyboard.raw_mode():
        keys = line.keyboard.read_keys()
        assert [press.key for press in keys][5] == Keys.ControlM
        assert line.typed(b"\n") == "\n"


def test_invalid_bytes_are_shown_as_replacement_characters(line):
    assert line.typed("zwölf".encode() + b"\xff!") == "zwölf\ufffd!"


def test_a_closed_terminal_closes_the_input(line):
    assert line.keyboard.read_keys() == [] and not line.keyboard.closed
    os.close(line.master)
    assert line.keyboard.read_keys() == [] and line.keyboard.closed
    line.master = os.open(os.devnull, os.O_RDONLY)


def keys(line: Line, data: bytes) -> list[str]:
    """The keys that arrive, with those of a sequence that never ends."""
    os.write(line.master, data)
    pressed = [*line.keyboard.read_keys(), *line.keyboard.flush_keys()]
    return [ESCAPE_KEY if press.data == ESCAPE_KEY else getattr(press.key, "value", press.key) for press in pressed]


@pytest.mark.parametrize(
    ("data", "pressed"),
    [
        (b"\x1b[27u", [ESCAPE_KEY]),
        (b"\x1b[99;5u", ["c-c"]),
        (b"\x1b[1089::99;5u", ["c-c"]),  # on a Cyrillic keyboard
        (b"\x1b[109;3u", ["escape", "m"]),
        (b"\x1b[97:65;4u", ["escape", "A"]),
        (b"\x1b[13;2u", [SHIFT_ENTER]),
        (b"\x1b[27;2;13~", [SHIFT_ENTER]),
        (b"\x1b[27;5;13~", [CTRL_ENTER]),
        (b"\x1b[13;3u", ["escape", "c-m"]),
        (b"\x1b[9;2u", ["s-tab"]),
        (b"\x1b[127;5u", ["c-w"]),
        (b"\x1b[32;5u", ["c-@"]),
        (b"\x1b[1;129A", ["up"]),  # with Num Lock
        (b"\x1b[1;133C", ["c-right"]),
        (b"\x1b[57414u", ["c-m"]),  # Enter of the keypad
        (b"\x1b[57404u", ["5"]),
        (b"\x1b[97;9u", []),  # with the Super key
        (b"\x1b[57441;2u", []),  # Shift itself
        (b"\x1b[1;10A", []),
        (b"\x1b[?1;2c", []),
        (b"\x1b[I", []),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x1b\x1b", [ESCAPE_KEY, ESCAPE_KEY]),
        (b"\x1bm", ["escape", "m"]),
        (b"\x1b", [ESCAPE_KEY]),
        (b"\x1b[", ["escape", "["]),
        (b"\x1b[12", []),
        (b"a\x1b[200~\x1b[13;2u\x1b[201~b", ["a", "<bracketed-paste>", "b"]),
    ],
)
def test_sequences_are_keys(line, data, pressed):
    assert keys(line, data) == pressed


def test_a_sequence_in_pieces_is_one_key(line):
    assert [line.typed(b"\x1b"), line.typed(b"[1;"), line.typed(b"5C")] == ["", "", "\x1b[1;5C"]


def test_escape_before_another_key_in_a_second_read_is_escape(line):
    assert line.typed(b"\x1b") == ""
    assert line.typed(b"\r") == ESCAPE_KEY + "\r"


def test_the_protocol_of_the_terminal_is_reported(line):
    found = []
    line.keyboard = Keyboard(line.stdin, line.received.append, found.append)
    line.keyboard.query_sent()
    assert line.typed(b"\x1b[?0u\x1b[?62;c") == "" and found == ["kitty", "kitty"]
    assert not line.keyboard.awaits_reply


def test_a_terminal_without_the_kitty_protocol_may_have_that_of_xterm(line):
    found = []
    line.keyboard = Keyboard(line.stdin, line.received.append, found.append)
    line.keyboard.query_sent()
    assert line.typed(b"x\x1b[?1;2c") == "x" and found == ["xterm"]
