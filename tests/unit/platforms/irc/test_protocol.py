"""IRC lines: what fits, where they are split, and parsing."""

from hypothesis import given
from hypothesis import strategies as st

from alipes.platforms.irc.parse import person_id
from alipes.platforms.irc.protocol import (
    IrcLine,
    available_bytes,
    encode_line,
    fold_name,
    format_markdown,
    normalise_mask,
    parse_line,
    split_lines,
    strip_formatting,
)

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=30)


@given(st.lists(WORDS, min_size=1, max_size=60), st.integers(20, 120))
def test_no_text_is_lost_and_no_line_is_too_long(words: list[str], size: int) -> None:
    text = " ".join(words)
    cut = split_lines(text, size)
    assert all(0 < len(line.encode()) <= size for line in cut)
    assert "".join("".join(cut).split()) == "".join(text.split())


def test_bold_and_italic_continue_after_a_split() -> None:
    bold = "\x02" + "word " * 20 + "end\x02 plain"
    cut = split_lines(bold, 40)
    assert all(line.startswith("\x02word") for line in cut[:-1])
    assert strip_formatting(" ".join(cut)).split() == [*["word"] * 20, "end", "plain"]


def test_a_character_is_never_split() -> None:
    assert split_lines("🙂" * 10, 15) == ["🙂🙂🙂"] * 3 + ["🙂"]
    assert split_lines("e\u0301" * 10, 10)[0] == "e\u0301" * 3


def test_markdown_becomes_lines() -> None:
    text = "# Title\n\nSome **bold _both_** and [here](https://a.example).\n\n> one\n> two\n\n- a\n- b\n\n`x`"
    assert [piece.text for piece in format_markdown(text)] == [
        "\x02Title\x02",
        "Some \x02bold \x1dboth\x1d\x02 and here (https://a.example).",
        "> one",
        "> two",
        "• a",
        "• b",
        "x",
    ]
    assert [piece.plain for piece in format_markdown(text)][1] == "Some bold both and here (https://a.example)."


def test_a_line_is_parsed_as_it_was_encoded() -> None:
    assert parse_line(encode_line("PRIVMSG", "#a", "two words")) == IrcLine("PRIVMSG", ("#a", "two words"))
    assert parse_line(b"@a=b\\sc;d :n!u@h NOTICE x :y :z\r\n") == IrcLine(
        "NOTICE", ("x", "y :z"), "n!u@h", {"a": "b c", "d": ""}
    )
    assert parse_line("PRIVMSG x :wörd".encode("cp1252")).last == "wörd"
    assert encode_line("PRIVMSG", "a", "one\r\nQUIT :x") == b"PRIVMSG a :one QUIT :x\r\n"


@given(st.binary(max_size=200))
def test_any_line_can_be_parsed(raw: bytes) -> None:
    line = parse_line(raw)
    assert line.nick is not None and line.last is not None


def test_equal_names_are_folded() -> None:
    assert fold_name("Ada[]\\~") == "ada{}|^" and normalise_mask("Ada!Ab@HOST.x") == "ada!Ab@host.x"
    assert (
        person_id("Ada!u@h", "Account") == "account"
        and person_id("Ada!u@h", "*") == person_id("ada!u@h", "") == "ada!u@h"
    )
    assert "!" in person_id("a!b@c", "x!y@z"), "an account that looks like a mask is not believed"


def test_the_available_bytes_exclude_the_prefix() -> None:
    source, target = "alipes!~alipes@host.example", "#house"
    line = f":{source} PRIVMSG {target} :{'x' * available_bytes(source, target)}\r\n"
    assert len(line) == 512
