"""How wide text is, where it may be broken, and how words flow into rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.cli.markdown.wrap import LONGEST_WORD, Flow, paint, row_width, slices, trimmed
from alipes.cli.width import breakable, cut, units, width

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
    assert width(text) == columns


def test_text_is_cut_between_graphemes():
    assert cut("abcdef", 4) == ("abcd", "ef")
    assert cut("漢字漢", 5) == ("漢字", "漢")
    assert cut("👨‍👩‍👧x", 1) == ("👨‍👩‍👧", "x")
    assert cut("e\u0301e\u0301", 1) == ("e\u0301", "e\u0301")
    assert cut("ab", 0) == ("a", "b")


def test_a_line_may_end_between_wide_letters_but_not_before_their_stops():
    assert breakable("漢", "字") and breakable("a", "漢") and breakable("漢", "a")
    assert not breakable("字", "。") and not breakable("「", "字") and not breakable("a", "é")
    assert list(units("漢字。「引用」です")) == ["漢", "字。", "「引", "用」", "で", "す"]
    assert list(units("plain")) == ["plain"] and list(units("naïve")) == ["naïve"]
    assert list(units("a👨‍👩‍👧b")) == ["a", "👨‍👩‍👧", "b"]
    assert list(units("❤️❤️")) == ["❤️", "❤️"]


def flowed(texts, columns):
    flow = Flow(columns)
    for text in texts:
        flow.add(text)
    flow.close()
    return ["".join(text for text, _, _ in row) for row in flow.take()]


def test_words_fill_rows():
    assert flowed(["one two ", "three", " four"], 9) == ["one two", "three", "four"]
    assert flowed(["one ", "", "\n", "two\n\nthree"], 9) == ["one", "two", "", "three"]


def test_a_word_may_come_in_pieces_and_is_not_broken_between_them():
    assert flowed(["some un", "break", "able word"], 12) == ["some", "unbreakable", "word"]


def test_a_word_wider_than_the_row_is_broken_but_an_address_is_not():
    assert flowed(["a " + "x" * 25 + " b"], 10) == ["a", "x" * 10, "x" * 10, "xxxxx b"]
    address = "https://example.com/" + "p" * 30
    assert flowed([f"see {address} there"], 20) == ["see", address, "there"]
    assert flowed(["漢" * 7], 6) == ["漢漢漢", "漢漢漢", "漢"]


def test_a_word_without_a_width_does_not_wait_forever():
    flow = Flow(10)
    for _ in range(20):
        flow.add("\u0301" * 1000)
    assert sum(len(text) for row in flow.take() for text, _, _ in row) > LONGEST_WORD


def test_a_fork_does_not_touch_the_flow():
    flow = Flow(10)
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
    assert all(width(row) <= columns for row in rows)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")
    assert flowed([word + " " for word in words], columns) == rows


@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(14, 40), st.integers(14, 40))
def test_what_is_not_in_a_row_yet_flows_again_in_the_new_width(words, before, after):
    flow = Flow(before)
    flow.add(" ".join(words))
    flow.take()
    rest = "".join(text for text, _, _ in flow._line + flow._word)
    flow.resize(after)
    flow.close()
    rows = flow.take()
    assert all(row_width(row) <= after for row in rows)
    said = "".join(text for row in rows for text, _, _ in row)
    assert said.replace(" ", "") == rest.replace(" ", "")


def test_rows_are_painted_with_as_few_sequences_as_their_styles_need():
    row = [("a", "1", ""), ("b", "1", ""), ("c", "", ""), ("", "2", ""), ("d", "", "http://u.v")]
    assert paint(row, links=True) == "\x1b[1mab\x1b[0mc\x1b]8;;http://u.v\x1b\\d\x1b]8;;\x1b\\"
    assert paint(row, links=False) == "\x1b[1mab\x1b[0mcd"
    assert paint([], links=True) == ""


def test_a_row_is_sliced_as_a_terminal_would_fold_it():
    assert slices([("abc", "1", ""), ("def", "", "")], 4) == [
        [("abc", "1", ""), ("d", "", "")],
        [("ef", "", "")],
    ]
    assert slices([("漢字漢", "", "")], 5) == [[("漢字", "", "")], [("漢", "", "")]]
    assert slices([], 5) == [[]]


def test_blanks_at_the_end_of_a_row_are_left_out():
    assert trimmed([("a ", "", ""), ("  ", "2", "")]) == [("a", "", "")]
    assert trimmed([(" ", "", "")]) == []


def test_a_joiner_between_letters_hides_neither():
    assert width("ー\u200dー") == 4
    assert width("👩\u200d👩\u200d👧") == 2, "a family is one sign"
