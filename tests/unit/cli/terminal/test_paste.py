"""Pastes: short ones are text, long ones a mark that is sent whole."""

from alipes.cli.terminal.layout import Pastes

LONG = "".join(f"line {number}\n" for number in range(10_000))


def test_a_short_paste_is_simply_text():
    pastes = Pastes()
    assert pastes.take("two\r\nlines") == "two\nlines"


def test_ten_thousand_lines_are_one_character_with_a_label_and_are_sent_whole():
    pastes = Pastes()
    mark = pastes.take(LONG.replace("\n", "\r"))
    assert len(mark) == 1
    assert pastes.labelled(f"see {mark}!") == "see [pasted 10,000 lines]!"
    assert pastes.expand(f"see {mark}!") == f"see {LONG}!"


def test_a_long_line_is_labelled_by_its_length():
    pastes = Pastes()
    assert pastes.labelled(pastes.take("x" * 5000)) == "[pasted 5,000 characters]"


def test_each_paste_keeps_its_own_text():
    pastes = Pastes()
    one, other = pastes.take(LONG), pastes.take("y" * 2000)
    assert one != other
    assert pastes.expand(other + one) == "y" * 2000 + LONG


def test_nothing_pasted_can_steer_the_terminal_or_pass_for_a_mark():
    pastes = Pastes()
    mark = pastes.take(LONG)
    assert pastes.take("a\x1b[31mb\x07c\x9b") == "a[31mbc"
    assert pastes.take(f"x{mark}y") == "xy"
    assert pastes.expand("\U000f1234") == "" and pastes.label("a") == ""
