"""Markdown in Discord's format."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.kernel.platform import MessagePart
from alipes.platforms.discord.payloads import LONGEST, SUPPRESS_EMBEDS, escape, format_markdown, message_body
from alipes.platforms.markup import utf16_length


def one(markdown):
    [piece] = format_markdown(markdown)
    return piece.text


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("*a* **b** ***c*** ~~d~~ `e`", "*a* **b** ***c*** ~~d~~ `e`"),
        ("# Title\n\ntext", "**Title**\n\ntext"),
        ("[text](https://x.org/a_(b))", "[text](https://x.org/a_%28b%29)"),
        ("[https://good.org](https://evil.org)", "https://good.org (https://evil.org)"),
        ("<https://x.org/a_b_c_>", "https://x.org/a_b_c_"),
        ("see https://x.org/_a?b=__c", "see https://x.org/_a?b=__c"),
        ("> quoted **words**\n> more\n\nafter", "> quoted **words**\n> more\n\nafter"),
        ("- one\n- two", "• one\n• two"),
        ("1. one\n2. two", "1. one\n2. two"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```\na │ b\n──┼──\n1 │ 2\n```"),
        ("```python\nprint(1)\n```", "```python\nprint(1)\n```"),
        ("```\na ``` b\n```", "```\na ``\u200b` b\n```"),
        ("`` a`b ``", "`` a`b ``"),
        ("**bold**_italic_", "**bold**\u200b*italic*"),
        ("** no bold ** here", "\\*\\* no bold \\*\\* here"),
    ],
)
def test_each_mark_is_written_in_discord_markdown(markdown, shown):
    assert one(markdown) == shown


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("2 * 3 * 4", "2 \\* 3 \\* 4"),
        ("snake_case_name", "snake_case_name"),
        ("__init__ and _x_", "\\_\\_init\\_\\_ and \\_x\\_"),
        ("||spoiler|| a|b", "\\|\\|spoiler\\|\\| a|b"),
        ("~~no~~ ~home", "\\~\\~no\\~\\~ ~home"),
        ("# title\n> quote\n- item\n-# small", "\\# title\n\\> quote\n\\- item\n\\-# small"),
        ("a # b > c - d", "a # b > c - d"),
        ("C:\\new \\*x", "C:\\new \\\\\\*x"),
        ("[a](b) and [c]", "\\[a](b) and [c]"),
    ],
)
def test_plain_text_is_escaped(text, escaped):
    assert escape(text) == escaped


def test_markup_signs_are_not_next_to_spaces():
    assert one("a **b&#32;**c") in ("a **b** c", "a \\*\\*b \\*\\*c")


def test_a_long_text_is_split_between_blocks():
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 80 for number in range(20))
    parts = format_markdown(text)
    assert len(parts) > 3
    assert all(part.text.startswith("Paragraph") and len(part.text) <= LONGEST for part in parts)


def test_a_long_block_of_code_is_code_in_every_message():
    text = "```python\n" + "\n".join(f"value_{number} = {number}" for number in range(600)) + "\n```"
    parts = [piece.text for piece in format_markdown(text)]
    assert all(part.startswith("```python\n") and part.endswith("\n```") for part in parts)
    lines = [line for part in parts for line in part.splitlines()[1:-1]]
    assert lines == [f"value_{number} = {number}" for number in range(600)]


def test_added_escapes_count_towards_the_limit():
    parts = format_markdown("* x " * 900 + "_" * 3000)
    assert all(utf16_length(part.text) <= LONGEST for part in parts)
    assert sum(part.text.count("_") for part in parts) == 3000


words = st.text(st.sampled_from("ab `*_~|>#-[]()\\\n🙂é"), max_size=300)


@settings(max_examples=150, deadline=None)
@given(st.lists(words, max_size=12).map("\n\n".join), st.integers(40, 300))
def test_any_text_fits_and_is_not_empty(markdown, longest):
    for piece in format_markdown(markdown, longest):
        assert 0 < utf16_length(piece.text) <= longest
        assert piece.text.strip()
    shown = "".join(re.sub(r"\W|_", "", piece.plain) for piece in format_markdown(markdown, longest))
    assert set(shown) <= set(re.sub(r"\W|_", "", markdown))


@pytest.mark.parametrize("fresh", [True, False])
def test_discord_is_asked_to_load_no_link_previews(fresh):
    assert message_body(MessagePart(text="https://spy.example/?q=secret"), fresh=fresh)["flags"] & SUPPRESS_EMBEDS
