"""Markdown as Slack shows it, in messages that Slack takes."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.kernel.delivery import Button
from alipes.kernel.platforms import Piece
from alipes.platforms.slack_markup import BREAK, LONGEST, escape, pieces
from alipes.platforms.slack_outbound import SECTION, body


def one(markdown):
    [piece] = pieces(markdown)
    return piece.text.replace(BREAK, "¦")


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("*a* **b** ***c*** ~~d~~ `e`", "_a_ *b* _*c*_ ~d~ `e`"),
        ("# Title\n\ntext", "*Title*\n\ntext"),
        ("[text](https://x.org/a|b?c=1&d=2)", "<https://x.org/a%7Cb?c=1&amp;d=2|text>"),
        ("[**bold** text](https://x.org)", "<https://x.org|*bold* text>"),
        ("[https://good.org](https://evil.org)", "<https://good.org> (<https://evil.org>)"),
        ("<https://x.org/a_b_>", "<https://x.org/a_b_|https://x.org/a_b_>"),
        (
            "see https://x.org/_a?b=__c&d, or (http://y.org).",
            "see <https://x.org/_a?b=__c&amp;d>, or (<http://y.org>).",
        ),
        ("[see https://x.org](https://x.org/a_b)", "<https://x.org/a_b|see https://x.org>"),
        ("[a@b.org](mailto:a@b.org)", "a@b.org"),
        ("> quoted **words**\n> more\n\nafter", "> quoted *words*\n> more\n\nafter"),
        ("- one\n- two", "• one\n• two"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```\na │ b\n──┼──\n1 │ 2\n```"),
        ("```python\nif a < b:\n```", "```\nif a &lt; b:\n```"),
        ("```\na ``` b\n```", "```\na ``¦` b\n```"),
        ("`a < b & c`", "`a &lt; b &amp; c`"),
        ("`` a`b ``", "`aˋb`"),
        ("**bold**_italic_", "*bold*¦_italic_"),
        ("un**bold**ed", "un¦*bold*¦ed"),
        ("**two\nlines**", "*two*\n*lines*"),
        ("<!channel> and <@U123>", "&lt;!channel&gt; and &lt;@U123&gt;"),
    ],
)
def test_each_mark_is_written_as_slack_reads_it(markdown, shown):
    assert one(markdown) == shown


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("*no*", "*¦no*"),
        ("snake_case_name", "snake_case_name"),
        ("__init__ and _x_", "_¦_¦init_¦_ and _¦x_"),
        ("~home", "~¦home"),
        ("`tick`", "`¦tick`¦"),
        ("> quote", "¦&gt; quote"),
        ("a & b < c > d", "a &amp; b &lt; c &gt; d"),
    ],
)
def test_what_is_meant_as_text_stays_text(text, escaped):
    assert escape(text).replace(BREAK, "¦").rstrip("¦") == escaped.rstrip("¦")


def test_a_long_text_is_cut_on_the_borders_of_blocks():
    text = "\n\n".join(f"Paragraph {number}. " + "word & " * 80 for number in range(20))
    parts = pieces(text)
    assert len(parts) > 3
    assert all(part.text.startswith("Paragraph") and len(part.text) <= LONGEST for part in parts)


def test_a_long_block_of_code_is_code_in_every_message():
    text = "```python\n" + "\n".join(f"value_{number} = {number}" for number in range(600)) + "\n```"
    parts = [piece.text for piece in pieces(text)]
    assert len(parts) > 1 and all(part.startswith("```\n") and part.endswith("\n```") for part in parts)
    lines = [line for part in parts for line in part.splitlines()[1:-1]]
    assert lines == [f"value_{number} = {number}" for number in range(600)]


def test_a_long_question_with_buttons_is_several_blocks():
    text = "\n".join("x" * 100 for _ in range(39))
    told = body(Piece(text, buttons=(Button("Yes", "y"), Button("", "n"))))
    *sections, actions = told["blocks"]
    assert "".join(each["text"]["text"] for each in sections) == text == told["text"]
    assert all(len(each["text"]["text"]) <= SECTION for each in sections)
    assert [each["text"]["text"] for each in actions["elements"]] == ["Yes", "n"]
    assert body(Piece("x"), fresh=False)["blocks"] == [] and "blocks" not in body(Piece("x"))
    unbroken = body(Piece("x" * 3999, buttons=(Button("a", "b"),)))["blocks"][:-1]
    assert [len(each["text"]["text"]) for each in unbroken] == [SECTION, 999]


def test_what_was_never_marked_up_calls_nobody():
    said = "(<!channel>_.txt is not there any more.)"
    assert body(Piece(said, said))["text"] == "(&lt;!channel&gt;_¦.txt is not there any more.)".replace(
        "¦", BREAK
    )


words = st.text(st.sampled_from("ab `*_~|>#-[]()\\\n🙂é&<:"), max_size=300)


@settings(max_examples=150, deadline=None)
@given(st.lists(words, max_size=12).map("\n\n".join), st.integers(60, 300))
def test_whatever_is_written_fits_and_is_not_empty_and_calls_nobody(markdown, longest):
    for piece in pieces(markdown, longest):
        assert 0 < len(piece.text) <= longest
        assert piece.text.strip()
        assert not re.search(r"<[!@#]", piece.text)
    shown = "".join(re.sub(r"\W|_", "", html.unescape(piece.plain)) for piece in pieces(markdown, longest))
    assert set(shown) <= set(re.sub(r"\W|_", "", markdown))
