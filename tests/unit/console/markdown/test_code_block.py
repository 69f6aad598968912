"""Code blocks: unchanged text, line-by-line highlighting and its limits."""

import re
import time

import pytest
from pygments.lexers import get_lexer_by_name

from alipes.console.markdown.blocks import MAX_COLUMNS, MAX_LINES, find_highlighter
from alipes.console.markdown.highlight import MAX_LINE_CPU_S, PygmentsHighlighter, open_highlighter
from alipes.console.markdown.stream import MarkdownStream, render_markdown
from alipes.console.theme import make_theme
from tests.unit.console.markdown.test_stream import DARK, plain, shown

PYTHON = '''\
@decorated
def f(x: int) -> str:
    """Say
    what it does."""
    return f"{x} and {'y'}"  # why

class A(Exception): ...
'''
STYLES = DARK.tokens


def fenced(code, language=""):
    return f"```{language}\n{code}\n```\n"


def styles(code, language):
    """The lines of the code with the style of each word."""
    colours = find_highlighter(language, STYLES)
    return [colours.highlight(line) for line in code.split("\n")]


@pytest.mark.parametrize("code", [PYTHON, "a\n\n\n  b  \n\tc", "x" * 300, "> # - not markdown **here**", "漢字 👨‍👩‍👧"])
@pytest.mark.parametrize("language", ["", "python", "text", "nonsense"])
def test_code_is_copied_as_it_was_written(code, language):
    lines = [plain(line) for line in render_markdown(fenced(code, language), DARK, 20)]
    assert lines[0] == f"── {language}".rstrip() and lines[-1] == "──"
    assert lines[1:-1] == code.replace("\t", "    ").split("\n")


def test_lines_are_final_one_by_one():
    stream = MarkdownStream(DARK, 80)
    assert stream.feed("```\none\ntw") == ["\x1b[2m──\x1b[0m", "one"]
    assert stream.tail() == ["tw"]
    assert stream.feed("o\n``") == ["two"]
    assert stream.tail() == []
    assert stream.feed("`\n") == ["\x1b[2m──\x1b[0m"]


def test_only_its_own_fence_closes_it():
    assert shown("````\n```\n~~~~\n````\nout") == ["──", "```", "~~~~", "──", "out"]
    assert shown("~~~ py\n```\n~~~\nout") == ["── py", "```", "──", "out"]
    assert shown("```\nnever closed\n\n# x") == ["──", "never closed", "", "# x", "──"]


def test_a_fence_with_ticks_in_its_first_line_is_text():
    assert shown("```a``` b") == ["`a` b"]


def test_the_name_of_the_language_is_found_however_it_is_written():
    assert shown("```{.python #id}\n```")[0] == shown("``` python linenos\n```")[0] == "── python"
    assert len(shown(f"```{'x' * 500}\n```")[0]) < 40


def test_code_in_an_item_loses_the_indentation_of_the_item():
    assert shown("- a\n  ```\n  b\n    c\n  ```\n- d") == ["• a", "  ──", "  b", "    c", "  ──", "• d"]


def test_code_that_is_indented_too_little_still_belongs_to_its_fence():
    assert shown("1. a\n   ```\nb\n   c\n```\n2. d") == ["1. a", "   ──", "   b", "   c", "   ──", "2. d"]


def test_a_quote_ends_the_code_in_it():
    assert shown("> ```\n> a\nb") == ["│ ──", "│ a", "│ ──", "b"]


def test_line_by_line_highlighting_equals_that_of_the_whole_text():
    whole = {}
    place = 0
    for kind, text in get_lexer_by_name("python").get_tokens(PYTHON):
        whole |= {place + n: kind for n in range(len(text))}
        place += len(text)
    style_of = open_highlighter("python", STYLES)._style
    place = 0
    for line, row in zip(PYTHON.split("\n"), styles(PYTHON, "python"), strict=True):
        assert "".join(text for text, _, _ in row) == line
        for text, style, _ in row:
            for n, letter in enumerate(text):
                assert letter.isspace() or style == style_of(whole[place + n]), (line, text)
            place += len(text)
        place += 1


@pytest.mark.parametrize(
    "language, begin, end",
    [("c", "/*", "*/"), ("javascript", "/*", "*/"), ("css", "/*", "*/"), ("go", "/*", "*/"), ("html", "<!--", "-->")],
)
def test_a_comment_spans_lines(language, begin, end):
    rows = styles(f"{begin} one\ntwo\nthree {end} b\n{begin} x {end} y\nz", language)
    comment = STYLES["Comment"]
    assert [style for row in rows[:2] for text, style, _ in row if text.strip()] == [comment, comment]
    assert rows[2][0] == (f"three {end}", comment, "")
    assert rows[2][-1][1] != comment and rows[3][0][1] == comment and rows[4][-1][1] != comment


def test_comment_marks_of_other_languages_are_not_comments():
    assert styles("ls dir/*\nls -l", "bash")[1][-1][1] != STYLES["Comment"]
    assert styles('x = "/*"\ny = 1', "javascript")[1][-1][1] != STYLES["Comment"]


@pytest.mark.parametrize(
    "language", ["python", "pycon", "yaml", "json", "bash", "diff", "rust", "ruby", "php", "html+jinja", "sql", "make"]
)
def test_no_language_loses_characters(language):
    code = "a: 'b' # c\n\n- {d: [1, 2]} <e f=\"g\">\n+ $h | i && j\n<?php echo 1; ?>\n>>> k = '''\nl\n@m <<EOF\nn\nEOF"
    for line, row in zip(code.split("\n"), styles(code, language), strict=True):
        assert "".join(text for text, _, _ in row) == line


def test_a_diff_is_red_and_green():
    rows = styles("-a\n+b", "diff")
    assert [row[0][1] for row in rows] == ["91", "92"]


def test_an_unknown_language_has_no_colours():
    assert find_highlighter("nonsense", STYLES) is None


def test_long_lines_and_long_code_are_not_highlighted():
    lines = render_markdown(fenced("x = 1\n" + "y" * (MAX_COLUMNS + 1) + "\nz = 1", "python"), DARK, 80)
    assert ["\x1b" in line for line in lines[1:-1]] == [True, False, False]
    lines = render_markdown(fenced("\n".join(["x = 1"] * (MAX_LINES + 2)), "python"), DARK, 80)
    assert ["\x1b" in line for line in lines[-4:-1]] == [True, False, False]


class Broken:
    """A lexer of the kind that one finds in the wild."""

    def __init__(self, fault):
        self._fault = fault

    def get_tokens_unprocessed(self, text):
        if text.startswith("bad"):
            self._fault()
        yield 0, (), text


def test_a_lexer_that_fails_or_is_slow_costs_only_its_colours():
    def fail():
        raise KeyError("no such state")

    def dawdle():
        end = time.thread_time() + MAX_LINE_CPU_S * 1.2
        while time.thread_time() < end:
            pass

    for fault in (fail, dawdle):
        lexing = PygmentsHighlighter(Broken(fault), STYLES)
        assert lexing.highlight("good") == [("good", "", "")]
        assert lexing.highlight("bad") is None


def test_a_lexer_without_progress_is_abandoned():
    lexing = PygmentsHighlighter(get_lexer_by_name("python"), STYLES)
    lexing._rules = {"root": [(re.compile("").match, None, "#push")]}
    assert lexing.highlight("x") is None
    assert len(lexing._stack) < 1000


def test_themes_use_palette_colours_for_code():
    for name in ("dark", "light"):
        line = render_markdown(fenced("def f(): return 'x'", "python"), make_theme(name), 80)[1]
        assert "\x1b[" in line and "38;" not in line and "48;" not in line
