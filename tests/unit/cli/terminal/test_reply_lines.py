"""Replies of commands at all widths."""

import pytest

from alipes.cli.terminal.commands import format_reply_line

NAME, TEXT = "/export [FILE] [--force]", "export this conversation as Markdown, HTML or .json"


@pytest.mark.parametrize("columns", [24, 30, 40, 60, 80, 120])
def test_a_line_of_two_columns_fits_and_keeps_its_words(columns):
    rows = format_reply_line(f"  {NAME}  {TEXT}", columns)
    assert all(len(row) <= columns for row in rows)
    assert " ".join(" ".join(rows).split()) == f"{NAME} {TEXT}"


def test_the_second_column_is_wrapped_beside_the_first_if_there_is_room():
    """B1: the hanging indent is not taken off the first row."""
    assert format_reply_line("now   about 4,519 tokens of many", 30) == [
        "  now   about 4,519 tokens of",
        "        many",
    ]
    assert format_reply_line("a long name here  some text", 20) == ["  a long name here", "     some text"]
