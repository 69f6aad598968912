"""Display width, line breaks and wrapping."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.console.markdown.wrap import MAX_WORD, LineWrapper, row_width, split_row, strip_row, to_ansi
from alipes.console.width import can_break, display_width, split_at_width, split_units

WORDS = st.lists(
    st.sampled_from(("a", "bc", "漢字", "。", "e\u0301", "👨‍👩‍👧", "longer-word", "「x」", "🇩🇪")), max_size=30
)


@pytest.mark.parametrize(
    "text, columns",
    [
        ("", 0),
        ("plain", 5),
        ("naïve", 5),
        ("e\u0301", 1),
        ("漢字", 4),
        ("한글", 4),
        ("ｆｕｌｌ", 8),
        ("😀", 2),
        ("👨‍👩‍👧", 2),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        ("❤️", 2),
        ("a\u200bb", 2),
        ("│─•", 3),
        ("a\x07漢", 3),
    ],
)
def test_the_width_of_text(text, columns):
    assert display_width(text) == columns


def test_text_is_cut_between_graphemes():
    assert split_at_width("abcdef", 4) == ("abcd", "ef")
    assert split_at_width("漢字漢", 5) == ("漢字", "漢")
    assert split_at_width("👨‍👩‍👧x", 1) == ("👨‍👩‍👧", "x")
    assert split_at_width("e\u0301e\u0301", 1) == ("e\u0301", "e\u0301")
    assert split_at_width("ab", 0) == ("a", "b")


def test_a_line_may_break_between_wide_letters_but_not_before_punctuation():
    assert can_break("漢", "字") and can_break("a", "漢") and can_break("漢", "a")
    assert not can_break("字", "。") and not can_break("「", "字") and not can_break("a", "é")
    assert list(split_units("漢字。「引用」です")) == ["漢", "字。", "「引", "用」", "で", "す"]
    assert list(split_units("plain")) == ["plain"] and list(split_units("naïve")) == ["naïve"]
    assert list(split_units("a👨‍👩‍👧b")) == ["a", "👨‍👩‍👧", "b"]
    assert list(split_units("❤️❤️")) == ["❤️", "❤️"]


def flowed(texts, columns):
    flow = LineWrapper(columns)
    for text in texts:
        flow.add(text)
    flow.close()
    return ["".join(text for text, _, _ in row) for row in flow.take()]


def test_words_fill_rows():
    assert flowed(["one two ", "three", " four"], 9) == ["one two", "three", "four"]
    assert flowed(["one ", "", "\n", "two\n\nthree"], 9) == ["one", "two", "", "three"]


def test_a_word_may_come_in_pieces_and_is_not_broken_between_them():
    assert flowed(["some un", "break", "able word"], 12) == ["some", "unbreakable", "word"]


def test_a_word_wider_than_the_row_is_broken_but_a_url_is_not():
    assert flowed(["a " + "x" * 25 + " b"], 10) == ["a", "x" * 10, "x" * 10, "xxxxx b"]
    address = "https://example.com/" + "p" * 30
    assert flowed([f"see {address} there"], 20) == ["see", address, "there"]
    assert flowed(["漢" * 7], 6) == ["漢漢漢", "漢漢漢", "漢"]


def test_a_word_without_width_is_limited_in_length():
    flow = LineWrapper(10)
    for _ in range(20):
        flow.add("\u0301" * 1000)
    assert sum(len(text) for row in flow.take() for text, _, _ in row) > MAX_WORD


def test_a_fork_does_not_change_the_original():
    flow = LineWrapper(10)
    flow.add("one two")
    fork = flow.fork()
    fork.add(" three four")
    fork.close()
    flow.close()
    assert flow.take() == [[("one", "", ""), (" ", "", ""), ("two", "", "")]]


@settings(max_examples=100, deadline=None)
@given(WORDS, st.lists(st.integers(0, 100), max_size=5), st.integers(14, 40))
def test_rows_are_never_too_wide_and_nothing_is_lost(words, places, columns):
    text = " ".join(words)
    rows = flowed([text], columns)
    assert all(display_width(row) <= columns for row in rows)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")
    assert flowed([word + " " for word in words], columns) == rows


@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(14, 40), st.integers(14, 40))
def test_an_unfinished_row_is_wrapped_again_after_a_resize(words, before, after):
    flow = LineWrapper(before)
    flow.add(" ".join(words))
    flow.take()
    rest = "".join(text for text, _, _ in flow._line + flow._word)
    flow.resize(after)
    flow.close()
    rows = flow.take()
    assert all(row_width(row) <= after for row in rows)
    said = "".join(text for row in rows for text, _, _ in row)
    assert said.replace(" ", "") == rest.replace(" ", "")


def test_rows_use_as_few_escape_sequences_as_possible():
    row = [("a", "1", ""), ("b", "1", ""), ("c", "", ""), ("", "2", ""), ("d", "", "http://u.v")]
    assert to_ansi(row, links=True) == "\x1b[1mab\x1b[0mc\x1b]8;;http://u.v\x1b\\d\x1b]8;;\x1b\\"
    assert to_ansi(row, links=False) == "\x1b[1mab\x1b[0mcd"
    assert to_ansi([], links=True) == ""


def test_a_row_is_split_as_a_terminal_would_wrap_it():
    assert split_row([("abc", "1", ""), ("def", "", "")], 4) == [[("abc", "1", ""), ("d", "", "")], [("ef", "", "")]]
    assert split_row([("漢字漢", "", "")], 5) == [[("漢字", "", "")], [("漢", "", "")]]
    assert split_row([], 5) == [[]]


def test_trailing_spaces_of_a_row_are_removed():
    assert strip_row([("a ", "", ""), ("  ", "2", "")]) == [("a", "", "")]
    assert strip_row([(" ", "", "")]) == []


def test_a_joiner_between_letters_hides_neither():
    assert display_width("ー\u200dー") == 4
    assert display_width("👩\u200d👩\u200d👧") == 2, "a family is one sign"
