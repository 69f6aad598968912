"""How events, times, money and titles read."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.cli import render
from alipes.cli.render import Telling
from alipes.kernel.formatting import ago
from alipes.kernel.messages import Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import (
    Noted,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)

LS = ToolCall("c1", "terminal", {"command": "ls -la", "timeout": 5})
DONE = TurnEnded("t1", "answered")


def said(text: str) -> Said:
    return Said(assistant(Text(text)), "a/b")


def told(*events, **how) -> tuple[str, list[str]]:
    """What went to the answer, and the remarks."""
    answer: list[str] = []
    remarks: list[str] = []
    telling = Telling(answer.append, remarks.append, **how)
    for event in events:
        telling.tell(event)
    return "".join(answer), remarks


def test_an_answer_streams_and_ends_with_one_line_break():
    assert told(TextDelta("Hel"), TextDelta("lo."), said("Hello."), DONE) == ("Hello.\n", [])


@pytest.mark.parametrize("text", ["a", "a\n", "a\n\n\n", "\n\na"])
def test_an_answer_ends_with_one_line_break_however_the_model_ended_it(text):
    assert told(TextDelta(text), said(text), DONE)[0] == "a\n"


def test_empty_lines_within_an_answer_are_kept():
    pieces = ["one", "\n", "\n", "two", "\n\nthree\n"]
    assert told(*map(TextDelta, pieces), said("".join(pieces)), DONE)[0] == "one\n\ntwo\n\nthree\n"


def test_nothing_said_is_nothing_written():
    assert told(TurnStarted("t1", "s1"), said(""), DONE) == ("", [])


@given(st.text(alphabet="ab \n"), st.data())
def test_however_a_text_is_cut_into_pieces_it_reads_the_same(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = told(said(text), DONE)
    assert told(*map(TextDelta, pieces), said(text), DONE) == whole
    assert whole[0].strip("\n") == text.strip("\n")


def test_a_tool_call_is_a_remark_and_each_message_begins_on_its_own_line():
    answer, remarks = told(
        TextDelta("Looking."),
        said("Looking."),
        ToolStarted(LS),
        ToolFinished(LS, ToolResult("c1", "files"), 1.25),
        TextDelta("Two files."),
        said("Two files."),
        DONE,
    )
    assert answer == "Looking.\nTwo files.\n"
    assert remarks == ["· terminal ls -la", "  1.2 s"]


def test_a_call_that_went_wrong_shows_why_and_a_quick_good_one_nothing():
    bad = ToolResult("c1", "exit 2:\nno such file", "failed")
    assert told(ToolStarted(LS), ToolFinished(LS, bad, 0.0))[1][1:] == ["  failed: exit 2: no such file"]
    assert told(ToolStarted(LS), ToolFinished(LS, ToolResult("c1", "files"), 0.01))[1][1:] == []


def test_a_call_that_was_never_started_is_named_with_its_refusal():
    assert told(ToolFinished(LS, ToolResult("c1", "not allowed", "denied")))[1] == [
        "· terminal ls -la",
        "  denied: not allowed",
    ]


def test_of_calls_side_by_side_each_result_tells_whose_it_is():
    cat = ToolCall("c2", "terminal", {"command": "cat x"})
    events = (ToolStarted(LS), ToolStarted(cat), ToolFinished(LS, ToolResult("c1", ""), 2.0))
    assert told(*events)[1] == ["· terminal ls -la", "· terminal cat x", "· terminal ls -la", "  2.0 s"]


def test_what_was_missed_of_the_stream_is_told_when_the_message_is_whole():
    assert told(said("All of it."), DONE)[0] == "All of it.\n"
    assert told(TextDelta("All "), said("All of it."), DONE)[0] == "All of it.\n"
    answer, remarks = told(TextDelta("All it."), said("All of it."), DONE)
    assert answer == "All it.\nAll of it.\n"
    assert "missed" in remarks[0]


def test_a_retracted_answer_is_marked_void_and_the_next_begins_on_its_own_line():
    answer, remarks = told(
        TextDelta("Half an ans"),
        Retracted("the connection was cut"),
        TextDelta("Whole."),
        said("Whole."),
        DONE,
    )
    assert answer == "Half an ans\nWhole.\n"
    assert remarks == ["· what stands above broke off and is void (the connection was cut); asking again"]


def test_a_retraction_before_the_first_word_voids_nothing():
    answer, remarks = told(Retracted("503"), TextDelta("Hi"), said("Hi"), DONE)
    assert answer == "Hi\n"
    assert "void" not in remarks[0]


def test_the_persons_own_words_are_not_repeated():
    assert told(Said(user("hello")), DONE) == ("", [])


def test_endings_that_are_no_answer_are_said():
    assert told(TurnEnded("t", "failed", "no such model"))[1] == ["alipes: failed: no such model"]
    assert told(TurnEnded("t", "stopped", "user_stop"))[1] == ["· stopped"]
    assert told(TurnEnded("t", "out_of_steps"))[1][0].startswith("alipes: out of steps")


def test_quiet_hears_the_answer_and_the_failure_only():
    events = (ToolStarted(LS), Noted("waiting"), TextDelta("x"), said("x"), TurnEnded("t", "failed", "gone"))
    assert told(*events, quiet=True) == ("x\n", ["alipes: failed: gone"])


def test_thinking_and_cost_are_told_when_wanted():
    events = (
        ThinkingDelta("Let me "),
        ThinkingDelta("see.\nYes."),
        TextDelta("Yes"),
        said("Yes"),
        TurnEnded("t", "answered", usage=Usage(1200, 30, cached=1000, reasoning=20, cost=0.0123)),
    )
    assert told(*events) == ("Yes\n", [])
    assert told(*events, verbose=True)[1] == [
        "  Let me see.",
        "  Yes.",
        "· a/b · 1,200 tokens in (1,000 cached) · 30 out (20 thinking) · $0.0123",
    ]


def test_control_characters_do_not_reach_the_terminal():
    assert render.harmless("a\x1b[31mb\x07\tc\n\x9bd") == "a[31mb\tc\nd"
    call = ToolCall("c", "terminal", {"command": "echo \x1b]52;c;AAAA\x07\nrm x"})
    assert render.call_line(call) == "terminal echo ]52;c;AAAA rm x"


def test_a_call_without_a_telling_argument_shows_them_all():
    assert render.call_line(ToolCall("c", "note", {})) == "note"
    assert render.call_line(ToolCall("c", "note", {"n": 1, "deep": [2]})) == "note n=1, deep=[2]"


@pytest.mark.parametrize(
    ("text", "width"), [("abcdef", 4), ("日本語です", 5), ("é" * 9, 4), ("ab", 1), ("日本", 2), ("日本", 1)]
)
def test_a_cut_line_fits_its_width_and_says_that_it_was_cut(text, width):
    cut = render.one_line(text, width)
    assert render.columns(cut) <= width
    assert cut.endswith("…")


def test_wide_characters_take_two_columns_and_combining_ones_none():
    assert render.columns("日本") == 4
    assert render.columns("e\N{COMBINING ACUTE ACCENT}") == 1
    assert render.table([("日本", "x"), ("abc", "y")]) == ["日本  x", "abc   y"]


def test_what_is_one_sign_is_measured_and_cut_as_one():
    family = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    assert render.columns(family) == 2
    assert render.one_line(f"{family}abc", 4) == f"{family}a…"


def test_plain_lines_are_measured_and_cut_without_tables_of_widths():
    code = (
        "import sys\n"
        "from alipes.cli import ask, render\n"
        "assert render.one_line('long words', 6) == 'long…' and 'wcwidth' not in sys.modules\n"
        "assert render.columns('日本') == 4 and 'wcwidth' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_empty_table_has_no_lines():
    assert render.table([]) == []


@pytest.mark.parametrize(
    ("past", "words"),
    [
        (-5, "just now"),
        (2, "just now"),
        (42, "42 s ago"),
        (150, "2 min ago"),
        (7200, "2 h ago"),
        (90_000, "1 d ago"),
    ],
)
def test_times_read_as_a_person_says_them(past, words):
    assert ago(1e9, 1e9 + past) == words


def test_a_time_long_ago_is_a_date():
    assert ago(0.0, 1e9)[:3] in ("197", "196")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 KB"), (20_000_000, "20 MB"), (3_200_000_000, "3.2 GB")],
)
def test_sizes_read_in_the_unit_that_fits(count, words):
    assert render.size(count) == words


@pytest.mark.parametrize(
    ("cost", "words"), [(None, "price unknown"), (0.0, "$0.00"), (0.00123, "$0.0012"), (12.345, "$12.35")]
)
def test_an_unknown_price_is_not_zero(cost, words):
    assert render.money(cost) == words
