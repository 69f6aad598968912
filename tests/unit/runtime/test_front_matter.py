"""Front matter of Markdown files, as skills and templates of other programs have it."""

import pytest

from alipes.runtime.front_matter import MAX_CHARS, field_text, parse_fields, split_front_matter


def test_the_front_matter_is_separated_from_the_text():
    assert split_front_matter("---\nname: a\n---\nBody\n---\nmore") == ("name: a\n", "Body\n---\nmore")


def test_a_byte_order_mark_windows_lines_and_blank_lines_before_it_do_not_matter():
    assert split_front_matter("\ufeff\r\n---\r\nname: a\r\n---\r\nBody") == ("name: a\n", "Body")


def test_a_text_without_front_matter_is_whole():
    assert split_front_matter("# Title\n---\n") == (None, "# Title\n---\n")


@pytest.mark.parametrize(
    ("front", "value"),
    [
        ("x: plain text # a comment", "plain text"),
        ("x: http://host/#part", "http://host/#part"),
        ("x: Use when: the user asks", "Use when: the user asks"),
        ("x: 'it''s'", "it's"),
        (r'x: "a \"b\" \u00e9\n"', 'a "b" é\n'),
        ('x: "over\n  two lines"', "over two lines"),
        ('x: "quoted" and more', '"quoted" and more'),
        ('x: "never closed', '"never closed'),
        ("x: one\n  two\n  three", "one two three"),
        ("x: one\nnot a field\ny: 1", "one not a field"),
        ("x: >\n  one\n  two\n\n  three\n", "one two\nthree"),
        ("x: |-\n  one\n    two\n  three", "one\n  two\nthree"),
        ("x: >-\n  a: b\n  # not a comment", "a: b # not a comment"),
        ("x: 1.0", "1.0"),
        ("x: [a, 'b c', \"d, e\"]", ["a", "b c", "d, e"]),
        ("x: []", []),
        ("x: [not a list", "[not a list"),
        ("x:\n- a\n- b", ["a", "b"]),
        ("x:\n  - a\n  - k: 1\n    l: 2", ["a", {"k": "1", "l": "2"}]),
        ("x:\n  a: 1\n  b:\n    c: 2", {"a": "1", "b": {"c": "2"}}),
        ('x: {"a": {"b": ["c", 1]}, d: e}', {"a": {"b": ["c", "1"]}, "d": "e"}),
        ('x:\n  {\n    "a": [\n      1,\n    ],\n  }', {"a": ["1"]}),
        ("x:", ""),
        ("# a comment\n\nx: a", "a"),
        ("'x': a", "a"),
    ],
)
def test_a_value_is_read_as_a_person_means_it(front, value):
    assert parse_fields(front)["x"] == value


def test_a_field_that_is_taken_verbatim_keeps_its_brackets():
    assert parse_fields("argument-hint: [file] [more]", verbatim=("argument-hint",)) == {
        "argument-hint": "[file] [more]"
    }


def test_a_line_that_is_no_field_is_reported_with_its_number():
    with pytest.raises(ValueError, match="line 2: expected `name: value`"):
        parse_fields("- a\n- b")


@pytest.mark.parametrize(
    "front", ["x: " + "[" * 5000 + "]" * 5000, "x: {" * 3000, "\n".join(" " * n + "a:" for n in range(200))]
)
def test_deeply_nested_fields_do_not_break_the_parser(front):
    try:
        parse_fields(front)
    except ValueError as error:
        assert "nested too deeply" in str(error)


def test_a_huge_front_matter_is_refused():
    with pytest.raises(ValueError, match="longer than"):
        parse_fields("x: " + "a" * MAX_CHARS)


def test_a_list_is_one_text_with_commas():
    assert field_text(["a", ["b"], {"c": "d"}]) == "a, b"
