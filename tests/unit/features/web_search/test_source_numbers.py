"""Numbers of sources within a conversation."""

from alipes.features.web_search.source_numbers import SourceNumbers, clean_url
from alipes.kernel.messages import Message, ToolResult, WebSource
from tests.unit.features.web_search.context import make_turn

A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"


def recorded(*sources):
    return Message("tool", (ToolResult("c0", "x", sources=sources),))


def test_a_url_keeps_its_number_within_a_turn():
    numbers, turn = SourceNumbers(), make_turn()
    assert [each.number for each in numbers.number(turn, [(A, "a"), (B, "b")])] == [1, 2]
    assert [each.number for each in numbers.number(turn, [(C, "c"), (A, "a")], read=True)] == [3, 1]


def test_numbers_continue_those_of_earlier_turns():
    earlier = make_turn("t2", history=(recorded(WebSource(4, A)),), said=(recorded(WebSource(5, B)),))
    assert [each.number for each in SourceNumbers().number(earlier, [(C, ""), (B, ""), (A, "")])] == [6, 5, 4]


def test_results_of_an_interrupted_attempt_keep_their_numbers():
    resumed = make_turn(tool_results={"c1": ToolResult("c1", "x", sources=(WebSource(1, A),)), "c2": None})
    assert [each.number for each in SourceNumbers().number(resumed, [(B, ""), (A, "")])] == [2, 1]


async def test_conversations_are_numbered_apart_and_ended_turns_forgotten():
    numbers, one, other = SourceNumbers(), make_turn("t1"), make_turn("t2")
    numbers.number(one, [(A, ""), (B, "")])
    assert numbers.number(other, [(B, "")])[0].number == 1
    await numbers.turn_ended(one)
    assert numbers.number(one, [(B, "")])[0].number == 1


def test_urls_are_safe_in_text():
    assert clean_url("https://a.example/ä b?q=<x>&y=%20#z") == "https://a.example/%C3%A4b?q=%3Cx%3E&y=%20#z"
