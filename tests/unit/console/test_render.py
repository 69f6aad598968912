"""Formatting of events, times, costs and tables."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.console import render
from alipes.console.render import TurnPrinter
from alipes.kernel.formatting import format_ago, format_size
from alipes.kernel.messages import Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import (
    Notice,
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
from alipes.kernel.untrusted import mark_untrusted

LS = ToolCall("c1", "terminal", {"command": "ls -la", "timeout": 5})
DONE = TurnEnded("t1", "answered")


def said(text: str) -> Said:
    return Said(assistant(Text(text)), "a/b")


def seen(*events, **how) -> tuple[str, list[str]]:
    """What went to the answer, and the remarks."""
    answer: list[str] = []
    remarks: list[str] = []
    telling = TurnPrinter(answer.append, remarks.append, **how)
    for event in events:
        telling.show_event(event)
    return "".join(answer), remarks


def test_an_answer_streams_and_ends_with_one_line_break():
    assert seen(TextDelta("Hel"), TextDelta("lo."), said("Hello."), DONE) == ("Hello.\n", [])


@pytest.mark.parametrize("text", ["a", "a\n", "a\n\n\n", "\n\na"])
def test_an_answer_ends_with_one_line_break_however_the_model_ended_it(text):
    assert seen(TextDelta(text), said(text), DONE)[0] == "a\n"


def test_empty_lines_within_an_answer_are_kept():
    pieces = ["one", "\n", "\n", "two", "\n\nthree\n"]
    assert seen(*map(TextDelta, pieces), said("".join(pieces)), DONE)[0] == "one\n\ntwo\n\nthree\n"


def test_an_empty_answer_writes_nothing():
    assert seen(TurnStarted("t1", "s1"), said(""), DONE) == ("", [])


@given(st.text(alphabet="ab \n"), st.data())
def test_however_a_text_is_cut_into_pieces_it_reads_the_same(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = seen(said(text), DONE)
    assert seen(*map(TextDelta, pieces), said(text), DONE) == whole
    assert whole[0].strip("\n") == text.strip("\n")


def test_a_tool_call_is_a_remark_and_each_message_begins_on_its_own_line():
    answer, remarks = seen(
        TextDelta("Looking."),
        said("Looking."),
        ToolStarted(LS),
        ToolFinished(LS, ToolResult("c1", "files"), 1.25),
        TextDelta("Two files."),
        said("Two files."),
        DONE,
    )
    assert answer == "Looking.\nTwo files.\n"
    assert remarks == ["· Run ls -la", "  1 line, 1.2 s"]


def test_a_failed_call_shows_why_and_a_successful_one_its_outcome():
    bad = ToolResult("c1", "exit 2:\nno such file", "failed")
    assert seen(ToolStarted(LS), ToolFinished(LS, bad, 0.0))[1][1:] == ["  failed: exit 2: no such file"]
    assert seen(ToolStarted(LS), ToolFinished(LS, ToolResult("c1", "files"), 0.01))[1][1:] == ["  1 line"]


def test_a_call_that_was_never_started_is_shown_with_its_error():
    assert seen(ToolFinished(LS, ToolResult("c1", "not allowed", "denied")))[1] == [
        "· Run ls -la",
        "  denied: not allowed",
    ]


def test_results_of_parallel_calls_name_their_call():
    cat = ToolCall("c2", "terminal", {"command": "cat x"})
    events = (ToolStarted(LS), ToolStarted(cat), ToolFinished(LS, ToolResult("c1", ""), 2.0))
    assert seen(*events)[1] == ["· Run ls -la", "· Run cat x", "· Run ls -la", "  no output, 2.0 s"]


def test_text_missing_from_the_stream_is_printed_with_the_complete_message():
    assert seen(said("All of it."), DONE)[0] == "All of it.\n"
    assert seen(TextDelta("All "), said("All of it."), DONE)[0] == "All of it.\n"
    answer, remarks = seen(TextDelta("All it."), said("All of it."), DONE)
    assert answer == "All it.\nAll of it.\n"
    assert "lost" in remarks[0]


def test_a_retracted_answer_is_marked_and_the_next_starts_on_its_own_line():
    answer, remarks = seen(
        TextDelta("Half an ans"), Retracted("the connection was cut"), TextDelta("Whole."), said("Whole."), DONE
    )
    assert answer == "Half an ans\nWhole.\n"
    assert remarks == ["· Ignore the partial answer above: the connection was cut."]


def test_a_retraction_before_the_first_word_marks_nothing():
    answer, remarks = seen(Retracted("503"), TextDelta("Hi"), said("Hi"), DONE)
    assert (answer, remarks) == ("Hi\n", [])


def test_retries_of_a_broken_stream_are_shown_once_and_the_next_answer_is_printed_when_it_is_complete():
    broken = (TextDelta("Half"), Retracted("Connection lost"))
    retries = [(*broken, Notice(f"Connection lost. Retrying in 2 s ({n}/5)", live=True)) for n in range(2, 6)]
    events = [event for each in retries for event in each]
    answer, remarks = seen(*events, *broken, TurnEnded("t", "failed", "play: the stream ended early"))
    assert answer == "Half\n"
    assert remarks == [
        "· Ignore the partial answer above: Connection lost.",
        "· Connection lost. Retrying",
        "alipes: failed: play: the stream ended early",
    ]
    answer, remarks = seen(*events, TextDelta("Wh"), TextDelta("ole."), said("Whole."), DONE)
    assert (answer, len(remarks)) == ("Half\nWhole.\n", 2)


def test_the_user_message_is_not_repeated():
    assert seen(Said(user("hello")), DONE) == ("", [])


def test_endings_other_than_answered_are_printed():
    assert seen(TurnEnded("t", "failed", "no such model"))[1] == ["alipes: failed: no such model"]
    assert seen(TurnEnded("t", "stopped", "user_stop"))[1] == ["· stopped"]
    assert seen(TurnEnded("t", "out_of_steps"))[1][0].startswith("alipes: stopped at the step limit")


def test_quiet_prints_only_the_answer_and_failures():
    events = (ToolStarted(LS), Notice("waiting"), TextDelta("x"), said("x"), TurnEnded("t", "failed", "gone"))
    assert seen(*events, quiet=True) == ("x\n", ["alipes: failed: gone"])


def test_verbose_prints_thinking_and_cost():
    events = (
        ThinkingDelta("Let me "),
        ThinkingDelta("see.\nYes."),
        TextDelta("Yes"),
        said("Yes"),
        TurnEnded("t", "answered", usage=Usage(1200, 30, cached=1000, reasoning=20, cost=0.0123)),
    )
    assert seen(*events) == ("Yes\n", [])
    assert seen(*events, verbose=True)[1] == [
        "  Let me see.",
        "  Yes.",
        "· a/b · 1,200 tokens in (1,000 cached) · 30 out (20 thinking) · $0.0123",
    ]


def test_control_characters_do_not_reach_the_terminal():
    assert render.sanitize("a\x1b[31mb\x07\tc\n\x9bd") == "a[31mb\tc\nd"
    call = ToolCall("c", "terminal", {"command": "echo \x1b]52;c;AAAA\x07\nrm x"})
    assert render.format_call(call) == "Run echo ]52;c;AAAA rm x"


def test_a_call_without_a_main_argument_shows_all_arguments():
    assert render.format_call(ToolCall("c", "note", {})) == "note"
    assert render.format_call(ToolCall("c", "note", {"n": 1, "deep": [2]})) == "note n=1, deep=[2]"


@pytest.mark.parametrize(
    ("text", "width"), [("abcdef", 4), ("日本語です", 5), ("é" * 9, 4), ("ab", 1), ("日本", 2), ("日本", 1)]
)
def test_a_truncated_line_fits_its_width_and_has_an_ellipsis(text, width):
    cut = render.to_one_line(text, width)
    assert render.text_width(cut) <= width
    assert cut.endswith("…")


def test_wide_characters_take_two_columns_and_combining_ones_none():
    assert render.text_width("日本") == 4
    assert render.text_width("e\N{COMBINING ACUTE ACCENT}") == 1
    assert render.format_table([("日本", "x"), ("abc", "y")]) == ["日本  x", "abc   y"]


def test_a_grapheme_is_measured_and_cut_as_one():
    family = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    assert render.text_width(family) == 2
    assert render.to_one_line(f"{family}abc", 4) == f"{family}a…"


def test_ascii_lines_do_not_import_wcwidth():
    code = (
        "import sys\n"
        "from alipes.cli import ask\n"
        "from alipes.console import render\n"
        "assert render.to_one_line('long words', 6) == 'long…' and 'wcwidth' not in sys.modules\n"
        "assert render.text_width('日本') == 4 and 'wcwidth' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_empty_table_has_no_lines():
    assert render.format_table([]) == []


@pytest.mark.parametrize(
    ("past", "words"),
    [(-5, "just now"), (2, "just now"), (42, "42 s ago"), (150, "2 min ago"), (7200, "2 h ago"), (90_000, "1 d ago")],
)
def test_times_are_formatted_for_reading(past, words):
    assert format_ago(1e9, 1e9 + past) == words


def test_a_time_long_ago_is_a_date():
    assert format_ago(0.0, 1e9)[:3] in ("197", "196")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 KB"), (20_000_000, "20 MB"), (3_200_000_000, "3.2 GB")],
)
def test_sizes_have_a_fitting_unit(count, words):
    assert format_size(count) == words


@pytest.mark.parametrize(
    ("cost", "words"), [(None, "price unknown"), (0.0, "$0.00"), (0.00123, "$0.0012"), (12.345, "$12.35")]
)
def test_an_unknown_price_is_not_zero(cost, words):
    assert render.format_cost(cost) == words


def test_a_failure_is_printed_without_marks_and_with_the_command_that_installs_what_is_missing():
    why = (
        f"http://x/{'p' * 90} was not read: Reading web pages needs 11 more packages (21 MB): run `alipes install web`."
    )
    failed = ToolFinished(LS, ToolResult("c1", mark_untrusted(why, "web_extract"), "failed"), 0.0)
    assert seen(failed)[1][-1] == f"  failed: {why}"
    long = ToolFinished(LS, ToolResult("c1", "word " * 100, "failed"), 0.0)
    assert len(seen(long)[1][-1]) <= 102


def test_a_denial_is_printed_whole_and_a_plan_with_its_items():
    advice = "Not run: it force-pushes, which can overwrite work on the remote; " + "use --yes to allow it " * 6
    denied = ToolFinished(LS, ToolResult("c1", advice.strip(), "denied"), 0.0)
    remarks = seen(denied)[1]
    assert remarks[-1].endswith("use --yes to allow it") and len(remarks) == 2
    todo = ToolCall("t", "todo", {})
    text = "[x] 1: look\n[>] 2: fix\n[-] 3: ask\n[ ] 4: test\n(2 of 4 open)"
    assert seen(ToolFinished(todo, ToolResult("t", text), 0.0))[1] == [
        *("· Plan", "  1 of 4 done", "  [x] look", "  [>] fix", "  [-] ask", "  [ ] test")
    ]
