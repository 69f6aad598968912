"""Short pastes are inserted, long ones are shown as a label."""

from alipes.cli.terminal.screen.layout import PasteStore

LONG = "".join(f"line {number}\n" for number in range(10_000))


def test_a_short_paste_is_simply_text():
    pastes = PasteStore()
    assert pastes.collapse("two\r\nlines") == "two\nlines"


def test_ten_thousand_lines_are_one_character_with_a_label_and_are_sent_whole():
    pastes = PasteStore()
    mark = pastes.collapse(LONG.replace("\n", "\r"))
    assert len(mark) == 1
    assert pastes.show_labels(f"see {mark}!") == "see [pasted 10,000 lines]!"
    assert pastes.expand(f"see {mark}!") == f"see {LONG}!"


def test_a_long_line_is_labelled_by_its_length():
    pastes = PasteStore()
    assert pastes.show_labels(pastes.collapse("x" * 5000)) == "[pasted 5,000 characters]"


def test_each_paste_keeps_its_own_text():
    pastes = PasteStore()
    one, other = pastes.collapse(LONG), pastes.collapse("y" * 2000)
    assert one != other
    assert pastes.expand(other + one) == "y" * 2000 + LONG


def test_pasted_text_cannot_contain_control_characters_or_marks():
    pastes = PasteStore()
    mark = pastes.collapse(LONG)
    assert pastes.collapse("a\x1b[31mb\x07c\x9b") == "a[31mbc"
    assert pastes.collapse(f"x{mark}y") == "xy"
    assert pastes.expand("\U000f1234") == "" and pastes.label("a") == ""
