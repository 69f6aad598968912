"""A rendered answer below the shell's prompt."""

import os

import pyte

from alipes.console.markdown.answer_view import AnswerView
from alipes.console.theme import make_theme


class Screen:
    def __init__(self, columns: int = 30, lines: int = 10) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self._screen)
        self.size = os.terminal_size((columns, lines))

    def write(self, text: str) -> None:
        self._stream.feed(text.replace("\n", "\r\n"))

    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self._screen.display if row.strip()]

    def view(self) -> AnswerView:
        return AnswerView(self.write, make_theme("light"), lambda: self.size)


def test_an_unfinished_line_is_shown_at_once_and_drawn_again_when_it_changes():
    screen = Screen()
    view = screen.view()
    screen.write("$ alipes ask\n")
    view.write("It is **fo")
    assert screen.rows[0] == "$ alipes ask" and screen.rows[1].startswith("It is")
    view.write("ur**, I think, and no more than that")
    view.finish()
    assert screen.rows == ["$ alipes ask", "It is four, I think, and no", "more than that"]


def test_a_table_that_grows_does_not_leave_old_rows():
    screen = Screen()
    view = screen.view()
    for piece in "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4444444 |\n":
        view.write(piece)
    view.finish()
    assert [row.split() for row in screen.rows if "│" in row] == [
        ["a", "│", "b"],
        ["1", "│", "2"],
        ["3", "│", "4444444"],
    ]


def test_a_second_message_starts_on_a_new_line():
    screen = Screen()
    view = screen.view()
    view.write("one")
    view.finish()
    view.write("two")
    view.finish()
    assert screen.rows == ["one", "two"]


def test_a_narrow_window_is_followed():
    screen = Screen(columns=20)
    view = screen.view()
    view.write("one two three ")
    screen.size = os.terminal_size((10, 10))
    view.write("four five\n\nsix seven eight nine\n")
    view.finish()
    assert " ".join(screen.rows).split() == ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def test_hostile_text_cannot_control_the_terminal():
    written: list[str] = []
    view = AnswerView(written.append, make_theme("none"), lambda: os.terminal_size((80, 24)))
    view.write("\x1b]0;title\x07 and \x1b[2J")
    view.finish()
    assert "\x1b]" not in "".join(written) and "\x1b[2J" not in "".join(written)


def test_emoji_that_the_terminal_counts_as_wider_do_not_leave_old_rows():
    screen = Screen()
    view = screen.view()
    screen.write("$ alipes ask\n")
    for _ in range(12):
        view.write("\U0001f44d\U0001f3fd ")
    view.write("so")
    view.finish()
    assert screen.rows[0] == "$ alipes ask" and "".join(screen.rows).count("so") == 1
    assert "".join(screen.rows[1:]).count("\U0001f44d") == 12
