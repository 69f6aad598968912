"""The input box: all characters, the cursor, and the limits of the screen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.cli.terminal.screen.layout import InputStyle, draw_input
from alipes.console.screen_diff import strip_escapes, visible_width

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


def test_a_tall_input_shows_the_part_with_the_cursor_and_counts_the_rest():
    text = "\n".join("abcdefgh")
    assert draw_input(text, 15, 80, 4, LOOK) == (["> ↑ 5 more", "  f", "  g", "  h"], (3, 3))
    assert draw_input(text, 0, 80, 4, LOOK) == (["> a", "  b", "  c", "  ↓ 5 more"], (0, 2))
    assert draw_input(text, 4, 80, 4, LOOK) == (["> a", "  b", "  c", "  ↓ 5 more"], (2, 2))
    assert draw_input(text, 8, 80, 4, LOOK) == (["> ↑ 3 more", "  d", "  e", "  ↓ 3 more"], (2, 2))


def test_a_box_of_two_rows_has_no_room_for_counts():
    text = "\n".join("abcdef")
    assert draw_input(text, 11, 80, 2, LOOK) == (["> e", "  f"], (1, 3))


def test_words_are_wrapped_whole():
    assert draw_input("the quick brown fox", 19, 12, 10, LOOK) == (["> the quick ", "  brown fox"], (1, 11))
    assert draw_input("the quick brown fox", 10, 12, 10, LOOK) == (["> the quick ", "  brown fox"], (1, 2))
    assert draw_input("abc defghij", 0, 9, 10, LOOK).rows == ["> abc ", "  defghij"]


def test_a_word_longer_than_the_row_is_broken():
    assert draw_input("ab cdefghijklm", 0, 8, 10, LOOK).rows == ["> ab ", "  cdefgh", "  ijklm"]


def test_a_blank_at_the_edge_takes_no_room():
    assert draw_input("abcdef ghi", 6, 8, 10, LOOK) == (["> abcdef", "  ghi"], (0, 7))


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
    # A blank at the edge of a row is not drawn.
    assert "".join(shown.split()) == "".join(wanted.split())
