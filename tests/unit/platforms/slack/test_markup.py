"""Markdown as Slack's rich text."""

import html
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.models.blocks import RichTextBlock

from alipes.kernel.outbox import Button
from alipes.kernel.platform import MessagePart
from alipes.platforms.slack.markup import LONGEST, format_markdown
from alipes.platforms.slack.send import SECTION, message_body
from tests.world.slack_web import checked

NAMES = {"rich_text_section": "", "rich_text_preformatted": "code", "rich_text_quote": "quote"}


def seen(piece):
    """Short form of a block: each part by its kind, each element as style, text and link."""
    block = json.loads(piece.text)
    assert checked({"blocks": [block]}) and RichTextBlock(**block).to_dict() == block
    return [(NAMES[part["type"]], *(_element(each) for each in part["elements"])) for part in block["elements"]]


def _element(each):
    style = " ".join(each.get("style", {}))
    words = each.get("text", "")
    shown = f"{words} -> {each['url']}" if each["type"] == "link" else words
    return f"{style}: {shown}" if style else shown


def one(markdown):
    [piece] = format_markdown(markdown)
    return seen(piece)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("*a* **b** ~~d~~ `e`", [("", "italic: a", " ", "bold: b", " ", "strike: d", " ", "code: e")]),
        ("***c***", [("", "bold italic: c")]),
        ("# Title\n\ntext", [("", "bold: Title", "\n\ntext")]),
        ("un**bold**ed：**也**。", [("", "un", "bold: bold", "ed：", "bold: 也", "。")]),
        ("[text](https://x.org/a|b?c=1&d=2)", [("", "text -> https://x.org/a%7Cb?c=1&d=2")]),
        ("[**b** t](https://x.org)", [("", "bold: b -> https://x.org", " t -> https://x.org")]),
        ("[https://good.org](https://evil.org)", [("", " -> https://good.org", " (", " -> https://evil.org", ")")]),
        ("<https://x.org/a_b_>", [("", " -> https://x.org/a_b_")]),
        ("see https://x.org/_a?b=__c, or", [("", "see ", " -> https://x.org/_a?b=__c", ", or")]),
        ("`curl https://x.org`", [("", "code: curl https://x.org")]),
        ("[a@b.org](mailto:a@b.org)", [("", "a@b.org")]),
        ("> quoted **words**\n> more\n\nafter", [("quote", "quoted ", "bold: words", "\nmore"), ("", "after")]),
        ("> ```\n> code\n> ```", [("quote", "code: code")]),
        ("- one\n- two", [("", "• one\n• two")]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", [("code", "a │ b\n──┼──\n1 │ 2")]),
        ("before\n```python\nif a < b:\n  `x`\n```\nafter", [("", "before"), ("code", "if a < b:\n  `x`"), ("", "after")]),
        ("2 * 3 * 4, __init__, \\*no\\* ~home", [("", "2 * 3 * 4, ", "bold: init", ", *no* ~home")]),
        ("<!channel> and <@U123> & co", [("", "<!channel> and <@U123> & co")]),
    ],
)  # fmt: skip
def test_each_mark_is_a_style_and_text_is_literal(markdown, shown):
    assert one(markdown) == shown


def test_the_fallback_text_is_plain_and_mentions_nobody():
    [piece] = format_markdown("**Hi** <!channel> & [you](https://x.org)")
    sent = message_body(piece)
    assert sent["text"] == "Hi &lt;!channel&gt; &amp; you (https://x.org)" and not sent["mrkdwn"]
    assert sent["blocks"] == [json.loads(piece.text)]
    unmarked = message_body(piece, marked=False)
    assert unmarked["text"] == sent["text"] and "blocks" not in unmarked
    assert message_body(piece, fresh=False, marked=False)["blocks"] == []
    said = "(<!channel>_.txt no longer exists.)"
    assert message_body(MessagePart(said, said))["text"] == "(&lt;!channel&gt;_.txt no longer exists.)"


def test_a_long_text_is_split_between_blocks():
    text = "\n\n".join(f"Paragraph {number}. " + "word & " * 80 for number in range(20))
    parts = format_markdown(text)
    assert len(parts) > 3
    assert all(part.plain.startswith("Paragraph") and len(message_body(part)["text"]) <= LONGEST for part in parts)


def test_a_long_block_of_code_is_code_in_every_message():
    text = "```python\n" + "\n".join(f"value_{number} = {number}" for number in range(600)) + "\n```"
    parts = [seen(piece) for piece in format_markdown(text)]
    assert len(parts) > 1 and all(len(part) == 1 and part[0][0] == "code" for part in parts)
    lines = [line for [(_, code)] in parts for line in code.splitlines()]
    assert lines == [f"value_{number} = {number}" for number in range(600)]


def test_buttons_are_below_the_text_also_without_markup():
    text = "\n".join("x" * 100 for _ in range(39))
    buttons = (Button("Yes", "y"), Button("", "n"))
    *sections, actions = message_body(MessagePart(text, buttons=buttons))["blocks"]
    assert "".join(each["text"]["text"] for each in sections) == text
    assert all(len(each["text"]["text"]) <= SECTION for each in sections)
    assert [each["text"]["text"] for each in actions["elements"]] == ["Yes", "n"]
    [piece] = format_markdown("**Approve?**")
    rich, actions = message_body(MessagePart(piece.text, piece.plain, buttons=buttons))["blocks"]
    assert rich == json.loads(piece.text) and actions["type"] == "actions"
    assert message_body(MessagePart("x"), fresh=False)["blocks"] == [] and "blocks" not in message_body(
        MessagePart("x")
    )
    unbroken = message_body(MessagePart("x" * 3999, buttons=buttons))["blocks"][:-1]
    assert [len(each["text"]["text"]) for each in unbroken] == [SECTION, 999]


words = st.text(st.sampled_from("ab `*_~|>#-[]()\\\n🙂é&<:"), max_size=300)


@settings(max_examples=120, deadline=None)
@given(st.lists(words, max_size=12).map("\n\n".join), st.integers(60, 300))
def test_any_text_fits_and_is_accepted(markdown, longest):
    for piece in format_markdown(markdown, longest):
        sent = message_body(piece)
        assert 0 < len(sent["text"]) <= longest and sent["text"].strip()
        assert not re.search(r"<[!@#]", sent["text"])
        assert checked(sent)
    shown = "".join(re.sub(r"\W|_", "", html.unescape(piece.plain)) for piece in format_markdown(markdown, longest))
    assert set(shown) <= set(re.sub(r"\W|_", "", markdown))
