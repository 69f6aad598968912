"""Keys and replies of the terminal, over a real pty."""

import os
import pty
import select
import tty

import pytest
from prompt_toolkit.keys import Keys

from alipes.cli.terminal.keyboard import Keyboard


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
    monkeypatch.setattr("alipes.cli.terminal.keyboard.REPLY_TIMEOUT_S", -1.0)
    line.keyboard.query_sent()
    assert not line.keyboard.awaits_reply
    assert line.typed(b"a\x1b]11;rgb:ffff/ffff/ffff\x07b") == "ab"
    assert line.received == [False]


def test_alt_and_a_bracket_is_a_key_without_a_query(line):
    assert line.typed(b"\x1b]11;x") == "\x1b]11;x"


def test_a_partial_reply_that_never_ends_is_typed(line, monkeypatch):
    line.keyboard.query_sent()
    assert line.typed(b"\x1b]1") == ""
    monkeypatch.setattr("alipes.cli.terminal.keyboard.REPLY_TIMEOUT_S", -1.0)
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
