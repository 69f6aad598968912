"""Tables: widths, alignment, narrow screens and long tables."""

from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.console.markdown.line_parser import split_cells
from alipes.console.markdown.stream import MarkdownStream, render_markdown
from alipes.console.markdown.table import MEASURED_ROWS
from alipes.console.width import display_width
from tests.unit.console.markdown.test_stream import DARK, NONE, SEQUENCE, shown

SMALL = "| a | bb |\n|---|---|\n| ccc | d |\n"


def test_columns_are_as_wide_as_their_widest_cell():
    assert shown(SMALL) == ["a   │ bb", "────┼───", "ccc │ d"]


def test_cells_are_aligned_by_the_delimiter_row():
    assert shown("|left|right|mid|\n|:--|--:|:-:|\n|a|b|c|\n|dddddd|eeeeee|fffff|") == [
        "left   │  right │  mid",
        "───────┼────────┼──────",
        "a      │      b │   c",
        "dddddd │ eeeeee │ fffff",
    ]


def test_wide_characters_and_emoji_keep_the_columns_aligned():
    lines = shown("| 名前 | x |\n|---|---|\n| 日本語 | 1 |\n| 👨‍👩‍👧 ok | 2 |\n| é | 3 |")
    assert [display_width(line.split("│")[0]) for line in lines if "│" in line] == [7, 7, 7, 7]
    assert lines[1] == "───────┼──"


def test_the_bars_at_the_ends_are_optional_and_cells_may_be_missing_or_too_many():
    assert shown("a | b\n--|--\n1\\|2 | 3\n4 |\n5 | 6 | 7") == [
        "a   │ b",
        "────┼──────",
        "1|2 │ 3",
        "4   │",
        "5   │ 6 | 7",
    ]


def test_a_bar_in_code_does_not_end_a_cell():
    assert split_cells("| `a|b` | ``c`|`` | d \\| e |") == ["`a|b`", "``c`|``", "d | e"]
    assert split_cells("| `a | b |") == ["`a", "b"]


def test_cells_may_contain_marks_and_line_breaks():
    assert render_markdown("| a |\n|---|\n| **b** |", DARK, 80)[-1] == "\x1b[1mb\x1b[0m"
    assert shown("| a | b |\n|---|---|\n| x<br>y | z |") == ["a │ b", "──┼──", "x │ z", "y │"]


def test_a_wide_table_wraps_its_cells_and_separates_its_rows():
    text = "| id | what |\n|---|---|\n| 1 | some words that do not fit |\n| 2 | short |"
    assert shown(text, columns=20) == [
        "id │ what",
        "───┼────────────────",
        "1  │ some words that",
        "   │ do not fit",
        "   │",
        "2  │ short",
    ]


def test_narrow_columns_keep_their_width_when_a_wide_one_shrinks():
    lines = shown("| key | value |\n|---|---|\n| abc | " + "word " * 30 + "|", columns=30)
    assert lines[2].startswith("abc │ word word")
    assert all(display_width(line) <= 30 for line in lines)


def test_a_screen_too_narrow_for_columns_shows_the_cells_below_each_other():
    text = "| one | two | three |\n|---|---|---|\n| a | b | c |\n| d | e | f |"
    assert shown(text, columns=12) == ["one: a", "two: b", "three: c", "", "one: d", "two: e", "three: f"]


def test_a_table_ends_with_a_line_without_bars_or_another_block():
    assert shown(SMALL + "text")[-1] == "text"
    assert shown(SMALL + "- a | b")[-1] == "• a | b"
    assert shown(SMALL + "\n| x |")[-2:] == ["", "| x |"]


def test_a_table_may_directly_follow_text():
    assert shown("Look:\n" + SMALL)[:2] == ["Look:", "a   │ bb"]


def test_bars_without_a_line_of_delimiters_are_text():
    assert shown("| a | b |\n| c | d |\n|---|\ne | f\n") == ["| a | b |", "| c | d |", "|---|", "e | f"]
    assert shown("a | b\n---") == ["## a | b"]


def test_a_header_wider_than_the_screen_waits_for_its_table():
    head = "| " + " | ".join(f"column {n}" for n in range(5)) + " |"
    stream = MarkdownStream(NONE, 40)
    assert stream.feed(head + "\n") == []
    stream.feed("|---" * 5 + "|\n| a | b | c | d | e |\n")
    assert stream.finish()[0].split(" │ ")[0].strip() == "colum"


def test_a_table_has_no_final_rows_before_its_widths_are_known():
    stream = MarkdownStream(NONE, 80)
    assert stream.feed(SMALL + "| e | ") == []
    assert stream.tail() == ["a   │ bb", "────┼───", "ccc │ d", "e   │"]
    assert stream.feed("wider |\n\n") == ["a   │ bb", "────┼──────", "ccc │ d", "e   │ wider"]


def test_a_long_table_streams_with_fixed_widths():
    stream = MarkdownStream(NONE, 80)
    lines = stream.feed("| n | x |\n|---|---|\n" + "".join(f"| {n} | y |\n" for n in range(MEASURED_ROWS)))
    assert lines == []
    lines = stream.feed("| 99 | y |\n")
    assert len(lines) == MEASURED_ROWS + 3
    assert stream.feed("| 1000 | and more |\n") == [
        "10 │ a",
        "00 │ n",
        "   │ d",
        "   │ m",
        "   │ o",
        "   │ r",
        "   │ e",
    ]
    stream.resize(40)
    assert stream.feed("| 1 | z |\n") == ["1    │ z"]
    assert stream.finish() == []


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(("", "a", "some words", "漢字", "`c`", "x" * 25, "**b**")), min_size=1, max_size=4),
        max_size=8,
    ),
    st.sampled_from((10, 24, 60)),
)
def test_a_table_fits_the_screen_and_loses_no_cell(rows, columns):
    text = "| h1 | h2 | h3 |\n|---|---|---|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    lines = render_markdown(text, DARK, columns)
    assert all(sum(map(display_width, SEQUENCE.split(line))) <= columns for line in lines)
    said = "".join(SEQUENCE.sub("", line) for line in lines)
    for letter in "ax漢":
        assert said.count(letter) == text.count(letter)
