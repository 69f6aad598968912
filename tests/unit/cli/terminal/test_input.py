"""The input box: all characters, the cursor, and the limits of the screen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.cli.terminal.layout import InputStyle, draw_input
from alipes.cli.terminal.screen_diff import strip_escapes, visible_width

LOOK = InputStyle("> ", lambda char: "[pasted 9 lines]" if char == "\U000f0000" else "", "36")


def test_an_empty_input_is_a_prompt():
    assert draw_input("", 0, 80, 10, LOOK) == (["> "], (0, 2))


def test_lines_are_below_each_other():
    assert draw_input("one\ntwo", 7, 80, 10, LOOK) == (["> one", "  two"], (1, 5))
    assert draw_input("one\n", 4, 80, 10, LOOK) == (["> one", "  "], (1, 2))


def test_long_lines_are_wrapped_at_the_edge_with_the_cursor():
    assert draw_input("abcdef", 6, 5, 10, LOOK) == (["> abc", "  def", "  "], (2, 2))
    assert draw_input("abcdef", 3, 5, 10, LOOK) == (["> abc", "  def"], (1, 2))
    assert draw_input("abc\nd", 3, 5, 10, LOOK) == (["> abc", "  ", "  d"], (1, 2))


def test_wide_characters_take_two_columns_and_are_never_split():
    assert draw_input("日本語", 3, 7, 10, LOOK) == (["> 日本", "  語"], (1, 4))
    assert draw_input("a👩\u200d👧b", 4, 80, 10, LOOK).cursor == (0, 5)


def test_a_paste_is_shown_as_its_label_and_is_one_cursor_step():
    box = draw_input("a\U000f0000b", 2, 80, 10, LOOK)
    assert box.rows == ["> a\x1b[36m[pasted 9 lines]\x1b[0mb"]
    assert box.cursor == (0, 19)


def test_control_characters_are_shown_in_caret_notation():
    assert [strip_escapes(row) for row in draw_input("a\x1b\tb\x85", 0, 80, 10, LOOK).rows] == ["> a^[    b?"]


def test_a_tall_input_shows_the_part_with_the_cursor():
    text = "\n".join("abcdef")
    assert draw_input(text, 11, 80, 3, LOOK) == (["  d", "  e", "  f"], (2, 3))
    assert draw_input(text, 0, 80, 3, LOOK) == (["> a", "  b", "  c"], (0, 2))
    assert draw_input(text, 4, 80, 3, LOOK) == (["> a", "  b", "  c"], (2, 2))


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 80])
@given(st.text("ab 日\n\t\x07é\U000f0000", max_size=40), st.data())
@settings(max_examples=60, deadline=None)
def test_the_cursor_is_always_inside_and_nothing_is_lost(columns, text, data):
    cursor = data.draw(st.integers(0, len(text)))
    box = draw_input(text, cursor, columns, 100_000, LOOK)
    y, x = box.cursor
    assert 0 <= y < len(box.rows) and 2 <= x <= max(columns, 3)
    if columns >= 24:
        assert all(visible_width(row) <= columns for row in box.rows)
        before = draw_input(text[:cursor], cursor, columns, 100_000, LOOK)
        assert len(before.rows) - 1 == y or len(before.rows) == y
    shown = "".join(strip_escapes(row)[2:] for row in box.rows)
    wanted = text.replace("\t", "    ").replace("\x07", "^G").replace("\U000f0000", "[pasted 9 lines]")
    assert shown.replace("\n", "") == wanted.replace("\n", "")
