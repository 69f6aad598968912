"""Emphasis, code and links, also in streamed text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.console.markdown import inline
from alipes.console.markdown.inline import MAX_MARKS, MAX_PART, InlineSplitter, parse_inline, strip_unsafe
from alipes.console.markdown.stream import render_markdown
from alipes.console.theme import make_theme
from tests.unit.console.markdown.test_stream import DARK, NONE, shown

WITHOUT_LINKS = make_theme("dark", links=False)
MARKS = ("*", "**", "_", "__", "~~", "`", "``", "[", "]", "(", ")", "[x](http://u.v)", "<http://a.b>", "\\", "\\*")
MARKED = st.lists(
    st.sampled_from((*MARKS, "a", "b ", "word ", " ", "&amp;", "中", "文字", "。", ".", "snake_case", "1")), max_size=20
).map("".join)


def styled(text, theme=DARK):
    (line,) = render_markdown(text, theme, 1000)
    return line.replace("\x1b", "^")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("**b**", "^[1mb^[0m"),
        ("__b__", "^[1mb^[0m"),
        ("*i* _i_", "^[3mi^[0m ^[3mi^[0m"),
        ("***bi***", "^[3;1mbi^[0m"),
        ("~~s~~ ~t~", "^[9ms^[0m ~t~"),
        ("`a *b*`", "^[96ma *b*^[0m"),
        ("`` a`b ``", "^[96ma`b^[0m"),
        ("**b `c`**", "^[1mb ^[0m^[1;96mc^[0m"),
        ("*a **b** c*", "^[3ma ^[0m^[3;1mb^[0m^[3m c^[0m"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("snake_case_name", "snake_case_name"),
        ("*.py and **kwargs", "*.py and **kwargs"),
        ("__init__.py", "^[1minit^[0m.py"),
        ("un`closed and *open", "un`closed and *open"),
        (r"\*no\* \`no\` \[x](y)", "*no* `no` [x](y)"),
        ("&lt;b&gt; &copy; &#65; &nope;", "<b> © A &nope;"),
        ("a   b\tc", "a b c"),
        ("`a   b`", "^[96ma   b^[0m"),
        ("中文**粗体**文字", "中文^[1m粗体^[0m文字"),
    ],
)
def test_marks_become_styles(text, expected):
    assert styled(text) == expected


def test_without_styles_marks_stay():
    assert shown("**b** *i* ~~s~~ `c` __b__") == ["**b** *i* ~~s~~ `c` **b**"]


def test_a_link_is_a_hyperlink_or_text_with_its_url():
    assert styled("[the *page*](http://u.v/a)") == (
        "^]8;;http://u.v/a^\\^[4;94mthe ^[0m^]8;;^\\^]8;;http://u.v/a^\\^[4;94;3mpage^[0m^]8;;^\\"
        "^]8;;http://u.v/a^\\^[2m (u.v)^[0m^]8;;^\\"
    )
    assert shown("[page](http://u.v/a 'title')", theme=WITHOUT_LINKS) == ["page (http://u.v/a)"]
    assert shown("[page](http://u.v/a)") == ["page (http://u.v/a)"]


def test_a_url_that_is_its_own_text_is_shown_once():
    assert shown("<http://u.v/a> [u.v](http://u.v)") == ["http://u.v/a u.v"]
    assert shown("<me@u.v>") == ["me@u.v"]


def test_a_link_whose_text_names_another_host_shows_its_target():
    assert shown("[http://bank.com](http://evil.com)", theme=DARK) == ["http://bank.com (http://evil.com)"]
    assert shown("[www.bank.com/login](http://evil.com)", theme=DARK) == ["www.bank.com/login (http://evil.com)"]
    assert shown("[bank.com](http://bank.com/a)", theme=DARK) == ["bank.com"]


def test_a_link_that_wraps_is_a_link_on_every_line():
    lines = render_markdown("[two words](http://u.v)", DARK, 10)
    assert lines[0] == "\x1b]8;;http://u.v\x1b\\\x1b[4;94mtwo words\x1b[0m\x1b]8;;\x1b\\" and "(u.v)" in lines[1]
    lines = render_markdown("[some more words](http://u.v)", DARK, 10)
    assert len(lines) == 3 and all(line.count("\x1b]8;;http://u.v\x1b\\") == 1 for line in lines)


def test_a_url_cannot_contain_an_escape_sequence():
    (line,) = render_markdown("[x](<http://u.v/\x1b]8;;evil\x07é&#27;>)", DARK, 80)
    assert line.startswith("\x1b]8;;http://u.v/%5D8;;evil%C3%A9")
    assert line.count("\x1b]8;;") == 4, "the text and the host, each opened and closed"


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vbscript:x"])
def test_javascript_urls_are_not_links(address):
    assert "\x1b]8" not in render_markdown(f"[x]({address})", DARK, 80)[0]


def test_an_image_shows_its_text_and_url():
    assert shown("see ![a *cat*](http://u.v/c.png) there") == ["see [image: a *cat*] http://u.v/c.png there"]
    assert "\x1b]8;;http://u.v/c.png" in render_markdown("![a](http://u.v/c.png)", DARK, 80)[0]


def test_emphasis_continues_over_a_line_break():
    assert render_markdown("**a\nb** c", DARK, 80) == ["\x1b[1ma\x1b[0m", "\x1b[1mb\x1b[0m c"]


def test_control_and_direction_characters_are_removed():
    assert strip_unsafe("a\x00\x07\x1b\x7f\x9b\u202e\u2066\ud800b\tc\nd") == "ab\tc\nd"
    assert strip_unsafe("naïve 漢字 👨‍👩‍👧\u200e") == "naïve 漢字 👨‍👩‍👧\u200e"


def _letters(row):
    """What is said and how, without blanks and without regard to where spans begin."""
    return [(char, style, link) for text, style, link in row for char in text if not char.isspace()]


@settings(max_examples=200, deadline=None)
@given(MARKED)
def test_split_text_parses_like_the_whole_text(text):
    text = text.strip()
    parts = InlineSplitter()
    cuts = [part for part, _ in parts.feed(text)]
    cuts.append(parts.close(draft=False)[0])
    assert "".join(cuts) == text
    if "*" in text or "_" in text:  # runs that close each other partly are followed only roughly
        return
    tokens = inline._PARSER.inline.parse(text, inline._PARSER, {}, [])
    assert _letters(parse_inline(text, DARK)) == _letters(inline._Spans(DARK, "").read(tokens))


def test_words_without_marks_are_returned_at_once():
    marks = InlineSplitter()
    assert marks.feed("one two thr") == [("one two ", True)]
    assert marks.feed("ee `co") == [("three ", True)]
    assert marks.feed("de` four five") == [("`code` ", False), ("four ", True)]
    assert marks.close(draft=False) == ("five", True)


def test_east_asian_letters_are_returned_at_once():
    marks = InlineSplitter()
    assert marks.feed("中文字") == [("中文", True)]
    assert marks.feed("没有空格") == [("字没有空", True)]
    assert marks.feed("**粗体文字") == []


@pytest.mark.parametrize(
    "held", ["*open ", "**open ", "_open ", "~~open ", "`open ", "[open ", "[a](open ", "**a *b* "]
)
def test_an_open_mark_holds_text_back(held):
    marks = InlineSplitter()
    assert marks.feed(held + "and more") == []


@pytest.mark.parametrize(
    "free", ["2 * 3 ", "a_b ", "**a** ", "[a] ", "[a](b) ", r"\* ", "~x ", "`a` ", "*a **b** c* ", "a) "]
)
def test_closed_and_invalid_marks_hold_nothing_back(free):
    marks = InlineSplitter()
    assert "".join(part for part, _ in marks.feed(free + "x")) == free


def test_an_open_mark_becomes_text_after_a_limit():
    marks = InlineSplitter()
    first = marks.feed("*a " + "word " * 250)[0]
    assert first[0].startswith("*a word") and MAX_PART - 10 < len(first[0]) <= MAX_PART
    marks = InlineSplitter()
    first = marks.feed("[a" * 200)[0]
    assert first[0].count("[") == MAX_MARKS


def test_an_empty_text_has_no_spans():
    assert parse_inline("", NONE) == []
    assert render_markdown("", NONE, 80) == render_markdown("\n\n \n", NONE, 80) == []


def test_nested_marks_do_not_repeat_codes_and_the_inner_colour_wins():
    assert styled("*" * 401 + "a" + "*" * 401) == "^[3;1ma^[0m"
    assert styled("### [a `b`](http://u.v)", WITHOUT_LINKS).startswith("^[1;96;4;94ma ^[0m^[1;4;94;96mb^[0m")


def test_a_word_that_is_too_long_does_not_break_the_marks_that_were_closed_before_it():
    lines = render_markdown("`a b`" + "x" * MAX_PART, DARK, 10)
    assert lines[:2] == ["\x1b[96ma\x1b[0m", "\x1b[96mb\x1b[0mxxxxxxxxx"]
