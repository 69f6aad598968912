"""Streamed Markdown: final lines, the tail, and independence from the deltas."""

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.console.markdown.inline import MAX_MARKS, MAX_PART
from alipes.console.markdown.stream import MAX_TAIL_ROWS, MarkdownStream, render_markdown
from alipes.console.theme import make_theme
from alipes.console.width import display_width

NONE, DARK = make_theme("none"), make_theme("dark")
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\")
FRAGMENTS = (
    *"*_~`[]()<>&\\#-+=|:.!\t$",
    "$$", "\\(", "\\)", "\\[", "\\]", "$x_1$", "$$\n", "\\frac{a}{b}", "$5 ",
    "a", "word ", " ", "  ", "\n", "\n\n", "**", "***", "__", "~~", "``", "```", "```python\n", "\n```\n", "~~~",
    "](", "[x](http://u.v)", "![i](u)", "<br>", "<div>", "\n</div>\n", "<http://a.b>", "<!-- c -->", "&amp;", "&#13;",
    "\n# h", "\n- ", "\n* ", "\n1. ", "\n2) ", "\n  - ", "\n    - ", "\n    x", "\n> ", "\n>> ", "[ ] ", "- [x] ",
    "\n| a | b |", "\n|---|---|", "\n|:-:|--:|", "\n---", "\n===", "\n***", "\n- - -", "\\*", "\\\n", "\r\n",
    "中", "文字", "。", "「", "😀", "👨‍👩‍👧", "e\u0301", "🇩🇪", "12", "9", "snake_case", "*.py", "x" * 30, "long " * 12,
    "\x1b[31m", "\u202e", "/* c", "*/", "def f():", '"""', "http://example.com/" + "p" * 40, "*" * 400, "文" * 70,
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=50).map("".join) | st.text(max_size=200)
COLUMNS = st.sampled_from((10, 17, 40, 80))
THEMES = st.sampled_from((NONE, DARK, make_theme("light", links=False)))


def plain(line):
    return SEQUENCE.sub("", line)


def shown(text, columns=80, theme=NONE):
    return [plain(line) for line in render_markdown(text, theme, columns)]


def cut(text, places):
    """The text in pieces, cut at places of any size."""
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def streamed(text, theme=NONE, columns=80, step=3):
    stream = MarkdownStream(theme, columns)
    lines = []
    for place in range(0, len(text), step):
        lines += stream.feed(text[place : place + step])
        stream.tail()
    return lines + stream.finish()


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 5000), max_size=40), COLUMNS, THEMES)
def test_the_final_lines_do_not_depend_on_how_the_text_is_cut(text, places, columns, theme):
    stream = MarkdownStream(theme, columns)
    lines = [line for piece in cut(text, places) for line in stream.feed(piece)]
    assert lines + stream.finish() == render_markdown(text, theme, columns)


@settings(max_examples=80, deadline=None)
@given(TEXTS, COLUMNS)
def test_character_by_character_is_the_same_and_reading_the_tail_changes_nothing(text, columns):
    assert streamed(text, DARK, columns, step=1) == render_markdown(text, DARK, columns)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.integers(2, 30))
def test_long_texts_are_the_same_too(text, step):
    text = (text * 40)[:6000]
    assert streamed(text, DARK, 40, step=step * 7) == render_markdown(text, DARK, 40)


@pytest.mark.parametrize("step", [1, 7, 50, 997])
@pytest.mark.parametrize("marked", ["`a b`", "*a b*", "[a b](u)", "a_b" * MAX_MARKS])
def test_a_long_part_is_split_at_the_same_place_however_it_is_streamed(marked, step):
    for size in range(MAX_PART - len(marked) - 4, MAX_PART - len(marked) + 2):
        text = f"{marked}{'x' * size}{'文' * 80} {marked}"
        assert streamed(text, DARK, 40, step=step) == render_markdown(text, DARK, 40)


def test_spaces_and_tabs_between_words_become_one_space_however_they_are_streamed():
    text = "a \tb  c\td"
    assert streamed(text, step=1) == shown(text) == ["a b c d"]


@settings(max_examples=100, deadline=None)
@given(TEXTS, COLUMNS, THEMES)
def test_a_tail_is_short_and_narrow_and_has_no_hyperlink(text, columns, theme):
    stream = MarkdownStream(theme, columns)
    for place in range(0, len(text), 5):
        stream.feed(text[place : place + 5])
        tail = stream.tail()
        assert len(tail) <= MAX_TAIL_ROWS
        assert not any("\x1b]" in line for line in tail)
        assert all(sum(map(display_width, SEQUENCE.split(line))) <= columns for line in tail)


@settings(max_examples=150, deadline=None)
@given(TEXTS, THEMES)
def test_no_control_character_of_the_text_reaches_the_terminal(text, theme):
    for line in render_markdown(text, theme, 40):
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", plain(line))
        assert line.count("\x1b[0m") * 2 == line.count("\x1b[")  # every style ends within its line
        for codes in re.findall(r"\x1b\[([0-9;]+)m", line):
            assert len(set(codes.split(";"))) == len(codes.split(";"))
        line.encode()


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_the_theme_none_uses_no_escape_sequences(text):
    assert not any("\x1b" in line for line in render_markdown(text, NONE, 40))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(("alpha", "βeta", "漢字", "delta", "**bold**", "`code`")), min_size=1, max_size=80),
    COLUMNS,
)
def test_no_word_is_lost_or_repeated(words, columns):
    text = " ".join(words)
    assert "".join("".join(shown(text, columns)).split()) == text.replace(" ", "")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(("alpha", "漢字", "**bold words**", "\n\n", "delta")), max_size=60), st.data())
def test_a_resize_loses_nothing_and_applies_to_later_text(words, data):
    text = " ".join(words)
    stream, lines = MarkdownStream(DARK, 60), []
    for piece in cut(text, data.draw(st.lists(st.integers(0, 500), max_size=6))):
        lines += stream.feed(piece)
        columns = data.draw(st.sampled_from((12, 30, 90)))
        stream.resize(columns)
        assert all(sum(map(display_width, SEQUENCE.split(line))) <= columns for line in stream.tail())
    lines += stream.finish()
    said = "".join(plain(line) for line in lines)
    assert "".join(said.split()) == re.sub(r"\s|\*\*", "", text)


def test_a_paragraph_streams_into_the_scrollback_line_by_line():
    stream = MarkdownStream(NONE, 20)
    assert stream.feed("one two three four ") == []
    assert stream.tail() == ["one two three four"]
    assert stream.feed("five six") == ["one two three four"]
    assert stream.tail() == ["five six"]
    assert stream.finish() == ["five six"]


def test_text_after_an_open_mark_is_not_final():
    stream = MarkdownStream(DARK, 10)
    assert stream.feed("plain **bold words that go on ") == []
    lines = stream.feed("here** and")
    assert lines == ["plain \x1b[1mbold\x1b[0m", "\x1b[1mwords that\x1b[0m"]
    assert stream.finish() == ["\x1b[1mgo on here\x1b[0m", "and"]


def test_an_open_mark_holds_text_back_only_up_to_a_limit():
    stream = MarkdownStream(NONE, 80)
    lines = stream.feed("*" + "word " * 190)
    assert lines == []
    lines = stream.feed("word " * 30)
    assert lines[0].startswith("*word word")


def test_the_tail_shows_an_open_mark_as_it_will_look():
    stream = MarkdownStream(DARK, 80)
    stream.feed("some **bold te")
    assert stream.tail() == ["some \x1b[1mbold te\x1b[0m"]
    stream.feed("xt*")
    assert stream.tail() == ["some \x1b[1mbold text\x1b[0m"]
    stream.feed("* and `co")
    assert stream.tail() == ["some \x1b[1mbold text\x1b[0m and \x1b[96mco\x1b[0m"]


def test_the_tail_of_a_link_is_its_text_and_host():
    stream = MarkdownStream(DARK, 80)
    stream.feed("see [the page](https://exam")
    assert [plain(line) for line in stream.tail()] == ["see the page (exam)"]


def test_the_tail_of_a_long_block_is_its_end():
    stream = MarkdownStream(NONE, 80)
    stream.feed("| n |\n|---|\n" + "".join(f"| {n} |\n" for n in range(20)))
    assert stream.tail() == [str(n) for n in range(12, 20)]


def test_a_long_line_of_code_is_wrapped_only_in_the_tail():
    stream = MarkdownStream(NONE, 20)
    stream.feed("```\n" + "x" * 50)
    assert stream.tail() == ["x" * 20, "x" * 20, "x" * 10]
    assert stream.feed("\n") == ["x" * 50]


def test_a_blank_line_is_emitted_with_the_next_block():
    stream = MarkdownStream(NONE, 80)
    assert stream.feed("one\n\n") == ["one"]
    assert stream.tail() == []
    stream.feed("tw")
    assert stream.tail() == ["", "tw"]
    assert stream.finish() == ["", "tw"]


def test_a_finished_stream_can_be_used_again():
    stream = MarkdownStream(NONE, 80)
    stream.feed("```\ncode")
    stream.finish()
    assert stream.finish() == []
    assert stream.feed("text\n\n") == ["text"]


def test_a_resize_wraps_unfinished_lines():
    stream = MarkdownStream(NONE, 40)
    assert stream.feed("one two three four five six seven ") == []
    stream.resize(15)
    assert stream.tail() == ["one two three", "four five six", "seven"]
    assert stream.feed("") == ["one two three"]
    assert stream.finish() == ["four five six", "seven"]


def test_it_works_on_the_smallest_screen():
    assert "".join(shown("> - some **words** and 漢字", columns=1)).replace(" ", "").endswith("漢字")


def test_escape_sequences_in_the_text_are_shown_as_text():
    assert shown("a\x1b[31mred\x1b]8;;http://evil\x07 b\x9b2J\r\nc") == ["a[31mred]8;;http://evil b2J", "c"]
    assert shown("over&#13;write &#27;[2J &#x9b;x &#8238;y") == ["overwrite \ufffd[2J \ufffdx y"]


@pytest.mark.parametrize(
    "before, unit",
    [
        ("", "lorem ipsum dolor "),
        ("", "word"),
        ("", "文字"),
        ("", "*a **b [c "),
        ("", "[a]("),
        ("https://x/", "path"),
        ("e", "\u0301"),
        ("```python\n", "x = 1\n"),
        ("```python\n", "x = 1; "),
        ("| a | b |\n|---|---|\n", "| a | b |\n"),
        ("", "- item\n  - nested\n"),
        ("", "> "),
        ("", "\n"),
        ("# ", "word "),
    ],
    ids=repr,
)
def test_a_huge_block_takes_linear_time(before, unit):
    def seconds(size):
        stream, text = MarkdownStream(DARK, 80), before + unit * (size // len(unit))
        begun = time.process_time()
        for place in range(0, len(text), 200):
            stream.feed(text[place : place + 200])
            stream.tail()
        stream.finish()
        return time.process_time() - begun

    seconds(2_000)
    # 4 would be exact, 16 quadratic; the best of some, as others may use the machine
    assert min(seconds(32_000) for _ in range(2)) < 12 * max(min(seconds(8_000) for _ in range(2)), 0.02)


def test_a_delta_costs_little():
    text = ("Some **words** of an answer with `code` and a [link](http://u.v), long enough to wrap. " * 6 + "\n\n") * 8
    begun = time.process_time()
    streamed(text, DARK, step=4)
    assert (time.process_time() - begun) / (len(text) / 4) < 0.01


def _alone(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_pygments_is_imported_with_the_first_code_block_that_has_a_language():
    code = """
import sys
from alipes.console.markdown.stream import render_markdown
from alipes.console.theme import make_theme
render_markdown("text with `code`\\n\\n```\\nno language\\n```", make_theme("dark"), 80)
print("pygments" in sys.modules)
render_markdown("```python\\nx = 1\\n```", make_theme("none"), 80)
print("pygments" in sys.modules)
render_markdown("```python\\nx = 1\\n```", make_theme("dark"), 80)
print("pygments" in sys.modules)
"""
    assert _alone(code) == ["False", "False", "True"]


def test_without_pygments_code_is_plain():
    code = """
import sys
sys.modules["pygments"] = None
from alipes.console.markdown.stream import render_markdown
from alipes.console.theme import make_theme
print(render_markdown("```python\\nx=1\\n```", make_theme("dark"), 80)[1])
"""
    assert _alone(code) == ["x=1"]
