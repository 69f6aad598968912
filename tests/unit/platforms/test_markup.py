"""Markdown for messengers: no text is lost, and every message is complete."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from alipes.platforms.markup import (
    DEEPEST,
    MarkedText,
    Span,
    join_text,
    parse_markdown,
    plain_text,
    split_text,
    strip_controls,
    utf16_length,
)
from alipes.platforms.telegram.markup import ENTITIES, format_markdown
from tests.world.telegram_markup import parse, units

FRAGMENTS = (
    "# Heading", "plain words, and more.", "**bold** _it_ `co<de` ~~old~~", "- item\n  - nested\n    deep",
    "1. one\n2. two\n\n   ```py\n   x = '<b>'\n   ```", "> quoted\n> > inner", "```\n" + "code line & more\n" * 9 + "```",
    "| a | b |\n|---|---|\n| 1 | `2` |\n| x | y | z |", "| a | b |\n|---|---|\n| 1 | **2** |", "[text](https://a.b/c?d=1&e=2)",
    "[rel](docs/x.md) <me@x.y> ![pic](http://p/q.png)", "[n]: http://unused", "---", "<script>alert(1)</script>", "a\\*b &amp; &#60;",
    "**open", "`open", "```open\nfence", "👨‍👩‍👧 ümlaut 漢字漢字", "https://x.y/" + "z" * 70, "word " * 40, "x" * 300, "*a**b*", "\t\tcode",
)  # fmt: skip
markdowns = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=30), max_size=14).map(
    lambda parts: "\n\n".join(parts)
) | st.text(alphabet="*_`~[]()<>#-|>\n ab1.&\\!", max_size=120)


def letters(text: str) -> str:
    return "".join(char for char in strip_controls(text) if char.isalnum())


def source_text(markdown: str) -> list[str]:
    """Every text that the parser finds, collected independently of our code."""
    out: list[str] = []
    parser = (
        MarkdownIt("commonmark", {"html": False, "maxNesting": 200})
        .enable(["table", "strikethrough"])
        .disable("reference")
    )
    for token in parser.parse(markdown):
        out += [token.content] if token.type in ("fence", "code_block") else []
        for child in token.children or []:
            out += [child.content] if child.type != "image" else ["".join(c.content for c in child.children or [])]
    return out


@settings(deadline=None, max_examples=300)
@given(markdowns, st.sampled_from((64, 200, 4096)))
def test_any_markdown_gives_valid_telegram_messages_and_loses_no_text(markdown: str, longest: int) -> None:
    made = format_markdown(markdown, longest)
    shown = []
    for piece in made:
        text, entities = parse(piece.text, "HTML")
        assert text.strip() and units(text) <= longest and utf16_length(piece.plain) <= longest
        assert len(entities) <= ENTITIES
        shown.append(piece.plain)
    everything = letters("".join(shown))
    for part in source_text(markdown):
        assert letters(part) in everything


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=400), st.integers(8, 60))
def test_a_split_loses_only_whitespace(text: str, longest: int) -> None:
    text = strip_controls(text)
    parts = split_text(MarkedText((Span(text),)), lambda spans: utf16_length(plain_text(spans)) <= longest, longest)
    joined = "".join(plain_text(part) for part in parts)
    assert letters(joined) == letters(text)
    assert all(utf16_length(plain_text(part)) <= longest for part in parts)


def only(markdown: str) -> str:
    (piece,) = format_markdown(markdown)
    return piece.text


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("**b** *i* ~~s~~ `c<d>`", "<b>b</b> <i>i</i> <s>s</s> <code>c&lt;d&gt;</code>"),
        ("**bold `code` on**", "<b>bold </b><code>code</code><b> on</b>"),
        ("# Head **twice**\ntext", "<b>Head twice</b>\n\ntext"),
        ("a\nb", "a\nb"),
        ("- a\n- b\n  1. c", "• a\n• b\n  1. c"),
        ("text\n- a", "text\n\n• a"),
        ("3. c\n4. d", "3. c\n4. d"),
        ("- a\n\n  more\n- b", "• a\n\n  more\n\n• b"),
        ("> a\n>\n> b\n\n> c", "<blockquote>a\n\nb</blockquote>\n\n<blockquote>c</blockquote>"),
        ("> - a\n> - b", "<blockquote>• a\n• b</blockquote>"),
        ("```py\na < b\n```", '<pre><code class="language-py">a &lt; b</code></pre>'),
        ("```\nx\n```", "<pre>x</pre>"),
        ("[t](http://a.b/?c=1&d)", '<a href="http://a.b/?c=1&amp;d">t</a>'),
        ("[`t`](http://a.b)", '<a href="http://a.b">t</a>'),
        ("[t](../x.md) [m](mailto:a@b.c)", "t (../x.md) m (mailto:a@b.c)"),
        ("<a@b.c>", "a@b.c"),
        ("![alt](http://p/q)", '<a href="http://p/q">alt</a>'),
        ("[](http://a.b)", "http://a.b"),
        ("[n]: http://a.b", "[n]: http://a.b"),
        ("<b>x</b> &lt;", "&lt;b&gt;x&lt;/b&gt; &lt;"),
        ("| A | Bb |\n|--|--|\n| 1 | 22 |", "<pre>A │ Bb\n──┼───\n1 │ 22</pre>"),
        ("| A |\n|--|\n| 1 | 22 |", "<pre>| A |\n|--|\n| 1 | 22 |</pre>"),
        ("- item\n\n  ```\n  code\n  ```", "• item\n\n<pre>code</pre>"),
        ("- [ ] open\n- [x] done", "• [ ] open\n• [x] done"),
    ],
)  # fmt: skip
def test_each_kind_of_block_and_mark_is_formatted(markdown: str, html: str) -> None:
    assert only(markdown) == html


def test_a_wide_table_becomes_lines_with_column_names() -> None:
    wide = "| Name | What it is |\n|--|--|\n| one | " + "very long words " * 5 + " |\n| two | **short** |"
    assert only(wide).startswith("<b>Name</b>: one\n<b>What it is</b>: very long")
    assert only(wide).endswith("<b>Name</b>: two\n<b>What it is</b>: <b>short</b>")


def test_messages_end_between_blocks() -> None:
    paragraphs = [f"Paragraph {n}. " + "words and words. " * 8 for n in range(12)]
    made = format_markdown("\n\n".join(paragraphs), 600)
    assert len(made) >= 3
    assert all(piece.text.startswith("Paragraph") and piece.text.endswith("words.") for piece in made)


def test_a_heading_stays_with_its_text() -> None:
    made = format_markdown("word " * 70 + "\n\n## Head\n\n" + "text " * 60, 500)
    assert [piece.text.startswith("<b>Head</b>") for piece in made] == [False, True]


def test_code_over_the_limit_is_closed_and_opened_again_at_a_line() -> None:
    code = "\n".join(f"    line {n}" for n in range(200))
    made = format_markdown(f"Before:\n\n```py\n{code}\n```\n\nafter", 900)
    opening = '<pre><code class="language-py">'
    inside = [piece for piece in made if opening in piece.text]
    assert len(inside) > 2
    assert all(piece.text.split(opening)[1].startswith("    line") for piece in inside)
    text = "\n".join(piece.plain for piece in made)
    assert [line for line in text.split("\n") if line.startswith("    line")] == code.split("\n")


def test_long_words_are_split_between_visible_characters() -> None:
    made = format_markdown("👨‍👩‍👧" * 40, 50)
    assert all(utf16_length(piece.plain) <= 50 and not piece.plain.startswith("\u200d") for piece in made)
    assert "".join(piece.plain for piece in made) == "👨‍👩‍👧" * 40


def test_more_marks_than_telegram_shows_are_spread_over_messages() -> None:
    made = format_markdown(" ".join(f"**b{n}** x" for n in range(150)))
    assert len(made) == 2
    assert sum(len(parse(piece.text, "HTML")[1]) for piece in made) == 150


def test_too_deep_nesting_is_shown_as_written() -> None:
    text = ">" * (DEEPEST + 5) + " deep words"
    assert "deep words" in plain_text(parse_markdown(text).spans)


def test_an_invisible_text_is_no_message() -> None:
    assert (
        format_markdown("")
        == format_markdown(" \n\n ")
        == format_markdown("\u202e")
        == format_markdown("```\n```")
        == ()
    )


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[https://bank.example](https://evil.example/x)", "https://bank.example (https://evil.example/x)"),
        ("[bank.example](https://bank.example@evil.example)", "bank.example (https://bank.example@evil.example)"),
        ("![bank.example](https://evil.example/?q=1)", "bank.example (https://evil.example/?q=1)"),
    ],
)
def test_a_link_that_names_another_host_is_written_out(written, shown):
    spans = parse_markdown(written).spans
    assert join_text(spans) == shown and not any(span.find("link") for span in spans)
