"""Blocks of Markdown on a terminal without styles."""

import pytest
from markdown_it import MarkdownIt

from alipes.console.markdown.stream import MarkdownStream, render_markdown
from alipes.console.theme import make_theme
from tests.unit.console.markdown.test_stream import DARK, plain, shown, streamed


def lines(text):
    """The lines of a literal that is indented like the code around it."""
    return [line[8:] for line in text.strip("\n").split("\n")][:-1]


def test_blank_lines_between_blocks_follow_the_source():
    assert shown("one\n\n\n\ntwo\n- three\n- four\n\n- five\n\n\n") == [
        "one",
        "",
        "two",
        "• three",
        "• four",
        "",
        "• five",
    ]


def test_a_line_break_is_a_line_break():
    assert shown("one\ntwo  \nthree\\\nfour") == ["one", "two", "three", "four"]


def test_headings_keep_their_marks_without_styles():
    assert shown("# One\n## Two ##\n###### Six\n#No\n####### seven\n#") == [
        "# One",
        "",
        "## Two",
        "",
        "###### Six",
        "#No",
        "####### seven",
        "",
        "#",
    ]


def test_headings_are_styled_by_level():
    styles = [render_markdown(f"{'#' * level} T", DARK, 80)[0].split("m")[0] for level in range(1, 7)]
    assert styles[0] == "\x1b[1;4;94"
    assert len(set(styles[:4])) == 4


def test_a_heading_wraps_and_may_contain_marks():
    assert shown("## a `b` long heading", columns=12) == ["## a `b`", "long heading"]
    assert render_markdown("# a **b**", DARK, 80) == ["\x1b[1;4;94ma b\x1b[0m"]


def test_an_underline_makes_a_heading_of_a_line_that_was_not_shown_yet():
    assert shown("Title\n=====\ntext") == ["# Title", "text"]
    assert shown("Title\n---\ntext") == ["## Title", "text"]
    assert shown("> Title\n> ---") == ["│ ## Title"]


def test_an_underline_below_text_that_was_shown_is_a_rule_or_text():
    long = "words " * 10
    assert shown(f"{long}\n---", columns=20)[-1] == "─" * 20
    assert shown("one\ntwo\n===") == ["one", "two", "==="]


@pytest.mark.parametrize("mark", ["---", "***", "___", "- - -", " * * *", "----------"])
def test_rules(mark):
    assert shown(f"a\n\n{mark}\nb", columns=12) == ["a", "", "─" * 12, "b"]


def test_a_rule_is_not_wider_than_the_screen_nor_very_wide():
    assert shown("---", columns=200) == ["─" * 64]


def test_lists_nest_and_wrap_under_their_text():
    text = """
        - one that is long enough to wrap
          still one
          - two
            - three
              - four
        * next
        1. first
        2) second
           - inner
        10. tenth that wraps too, surely
        """
    assert shown("\n".join(lines(text)), columns=22) == lines("""
        • one that is long
          enough to wrap
          still one
          ◦ two
            ▪ three
              • four
        • next
        1. first
        2) second
           • inner
        10. tenth that wraps
            too, surely
        """)


def test_numbers_are_those_of_the_source():
    assert shown("3. three\n7. seven") == ["3. three", "7. seven"]


def test_a_list_that_starts_with_one_interrupts_a_paragraph():
    assert shown("the year\n2024. was\n1. one\n- two\n-") == ["the year", "2024. was", "1. one", "• two", "•"]


def test_a_bullet_below_a_number_belongs_to_it_with_two_spaces_already():
    assert shown("1. one\n  - inner\n2. two") == ["1. one", "   • inner", "2. two"]


def test_tasks_show_their_boxes():
    assert shown("- [ ] open\n- [x] done\n- [X] too\n- [y] no") == ["[ ] open", "[x] done", "[x] too", "• [y] no"]
    assert render_markdown("- [x] done", DARK, 80) == ["\x1b[92m[x] \x1b[0mdone"]


def test_an_empty_item_shows_its_marker():
    assert shown("-\n- a\n-\n\n  b\n1.") == ["•", "• a", "", "• b", "1."]


def test_text_belongs_to_an_item_by_indentation_or_lazy_continuation():
    assert shown("- a\n\n  more\n\nout") == ["• a", "", "  more", "", "out"]
    assert shown("- a\nlazy\n\nout") == ["• a", "  lazy", "", "out"]


def test_quotes_nest_and_carry_their_bar():
    assert shown("> one two three four\n>\n> > deep\n> lazy\nlazier\n\nout", columns=14) == [
        "│ one two",
        "│ three four",
        "│",
        "│ │ deep",
        "│ │ lazy",
        "│ │ lazier",
        "",
        "out",
    ]


def test_quotes_and_items_may_contain_any_block():
    assert shown("> # H\n> - a\n>   ```\n>   code\n>   ```\n> 1. | a |\n>    |---|\n>    | b |") == [
        "│ # H",
        "│ • a",
        "│   ──",
        "│   code",
        "│   ──",
        "│ 1. a",
        "│    ─",
        "│    b",
    ]


def test_deep_nesting_leaves_space_for_the_text():
    shown_lines = shown(">" * 12 + " some words of text", columns=20)
    assert shown_lines == ["│ │ │ │ │ some words", "│ │ │ │ │ of text"]
    assert shown(">" * 40 + "x", columns=80) == ["│ " * 12 + ">" * 28 + "x"]


def test_indented_code_is_shown_as_it_is():
    assert shown("text\n\n    one\n      two\n\n\n    three\n\n\nout") == [
        "text",
        "",
        "one",
        "  two",
        "",
        "",
        "three",
        "",
        "out",
    ]
    assert shown("text\n    continues") == ["text", "continues"]
    assert shown("\tone") == ["one"]


def test_html_is_shown_as_text():
    assert shown("<div class='a'>\n**x**   y\n</div>\n\n**z**") == [
        "<div class='a'>",
        "**x**   y",
        "</div>",
        "",
        "**z**",
    ]
    assert shown("<!-- a\n\nb -->\nout") == ["<!-- a", "", "b -->", "out"]
    assert shown("text <b>bold</b> &lt;i&gt;") == ["text <b>bold</b> <i>"]
    assert render_markdown("<b>x</b> and **y**", DARK, 80) == ["<b>x</b> and \x1b[1my\x1b[0m"]
    assert shown("<think>\na\n\nb") == ["<think>", "a", "", "b"]


def test_definitions_of_links_are_text_and_links_by_name_too():
    assert shown("[a][1] and [b]\n\n[1]: http://u.v\n[b]: http://w.x") == [
        "[a][1] and [b]",
        "",
        "[1]: http://u.v",
        "[b]: http://w.x",
    ]


def test_ascii_symbols_for_terminals_without_unicode():
    theme = make_theme("none", ascii_only=True)
    text = "- a\n  - b\n> c\n\n---\n\n```sh\nd\n```\n\n| a | b |\n|--|--|\n| 1 | 2 |"
    assert render_markdown(text, theme, 10) == [
        *("* a", "  - b", "| c", "", "-" * 10, "", "```sh", "d", "```", "", "a | b", "--+--", "1 | 2")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a\n\nb\n\n- c\n- d\n  - e\n\n> f\n> g\n\n1. h\n2. i",
        "- a\n\n  b\n- c\n\nd",
        "> - a\n>   - b\n>\n> c",
        "# a\n\n## b\n\nc",
        "1. a\n   b\n\n   c\n2. d",
        "- a\n- b\n\n\n- c\n\nd\n\n    e\n\nf",
        "a\n***\nb\n\n***\nc",
        "* a\n+ b\n- c\n\n```\nd\n```",
    ],
)
def test_the_text_of_ordinary_blocks_is_what_a_full_parser_finds(text):
    parsed = MarkdownIt("commonmark").parse(text)
    found = [
        part
        for token in parsed
        if token.type in ("inline", "fence", "code_block")
        for part in token.content.split("\n")
    ]
    bare = [line.strip(" │•◦▪─#\n").removeprefix("1. ").removeprefix("2. ") for line in shown(text)]
    assert [line for line in bare if line] == [line for line in found if line]


def test_a_long_answer_reads_the_same_streamed():
    text = "# T\n\nText **b** `c`.\n\n- a\n  - b\n\n1. c\n   ```py\n   x\n   ```\n\n> q\n\n| a |\n|---|\n| b |\n\n---\nend\n"
    for step in (1, 2, 7, 50):
        assert streamed(text, DARK, 30, step) == render_markdown(text, DARK, 30)


def test_a_draft_of_any_prefix_can_be_drawn():
    text = "- [x] a\n\n## B\n\n| a | b |\n|:-:|--:|\n| `1` | 2 |\n\n```python\ndef f():\n    pass\n```\n> q\n\nT\n--\n"
    stream = MarkdownStream(DARK, 40)
    for letter in text:
        stream.feed(letter)
        assert len(stream.tail()) <= 8
    stream.feed("the **end")
    assert [plain(line) for line in stream.tail()] == ["the end"]
