"""The list of sources below an answer."""

import pytest

from alipes.agent.sources import MAX_LISTED, format_sources
from alipes.kernel.messages import Message, Text, ToolResult, WebSource, assistant, user

A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"


def results(*sources):
    return Message("tool", (ToolResult("c1", "x", sources=sources),))


def found(number, url=A, title="T"):
    return WebSource(number, url, title)


def read(number, url=A, title="T"):
    return WebSource(number, url, title, read=True)


def listed(text, *sources, before=()):
    said = (user("hi"), results(*sources))
    return format_sources((*before, *said), said, text)


def test_cited_and_read_pages_are_listed_by_number():
    text = listed("It is so [2].", found(1), found(2, B, "Bee"), read(3, C, "Sea"))
    assert text == f"\n\nSources:\n- [2] Bee: <{B}>\n- [3] Sea: <{C}>"


def test_nothing_is_listed_without_sources_or_if_none_was_used():
    assert listed("It is so [1].") == ""
    assert listed("It is so.", found(1)) == ""
    assert listed("It is so [9].", found(1)) == ""


@pytest.mark.parametrize(
    "text", ["See [1] and [2].", "See [1][2].", "See [1, 2].", "[1]\n[2]", "(see [1]; [2])", "**x**[2] [1]"]
)
def test_all_forms_of_citations_are_recognised(text):
    assert listed(text, found(1), found(2, B)).count("\n- [") == 2


@pytest.mark.parametrize(
    "text", ["a[1] = 2", "call()[1]", "[1](https://x.example)", "[1]: https://x.example", "[text][1]"]
)
def test_what_only_looks_like_a_citation_is_not_one(text):
    assert listed(text, found(1)) == ""


def test_pages_of_earlier_turns_can_be_cited_but_are_not_listed_otherwise():
    before = (user("hi"), results(read(1), found(2, B)), assistant(Text("x [1]")))
    assert listed("As before [2].", read(3, C), before=before) == f"\n\nSources:\n- [2] T: <{B}>\n- [3] T: <{C}>"


def test_a_second_answer_of_a_turn_lists_only_what_is_new():
    first = assistant(Text(f"One [1].\n\nSources:\n- [1] T: <{A}>"))
    said = (user("hi"), results(read(1)), first, user("more"), results(read(2, B)))
    assert format_sources(said, said, "Two.") == f"\n\nSources:\n- [2] T: <{B}>"


def test_citations_in_a_part_that_was_cut_off_count():
    said = (user("hi"), results(found(1)), assistant(Text("First half [1]")), Message("notice", (Text("go on"),)))
    assert format_sources(said, said, " second half.") == f"\n\nSources:\n- [1] T: <{A}>"


def test_a_model_that_lists_the_addresses_itself_needs_no_second_list():
    assert listed(f"It is so [1].\n\nSources:\n1. {A}", read(1)) == ""


def test_an_answer_in_json_stays_json():
    assert listed('{"answer": "yes [1]"}', read(1)) == "" and listed("[1]", read(1)) == ""
    assert listed("[1] says so", read(1)) != ""


def test_many_pages_are_summarised():
    pages = [read(number, f"https://x{number}.example/") for number in range(1, 31)]
    lines = listed("See [30].", *pages).split("\n")
    assert lines[-1] == "- and 10 more that were read" and len(lines) == MAX_LISTED + 4
    assert "- [30] T: <https://x30.example/>" in lines


def test_a_title_cannot_fake_markup_or_another_line():
    title = "Nice](javascript:x) <b>\n- [9] [Bank](https://evil.example) `x` \u202e"
    (line,) = listed("See [1]", read(1, A, title)).strip().split("\n")[1:]
    assert line.startswith("- [1] Nice") and line.endswith(f": <{A}>")
    assert not any(mark in line[5 : -len(A) - 3] for mark in ("[", "]", "<", "`", "\u202e"))
    assert listed("See [1]", read(1, A, "")).endswith(f"- [1] <{A}>")
