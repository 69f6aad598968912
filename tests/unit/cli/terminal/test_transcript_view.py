"""The account of a conversation: what is final and what is not, told once, in blocks, without surprises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.cli import theme
from alipes.cli.terminal.screen_diff import plain, span
from alipes.cli.terminal.styles import make_look
from alipes.cli.terminal.transcript_view import Account
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import (
    ApprovalAnswered,
    Noted,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

CALL = ToolCall("1", "terminal", {"command": "make"})


def account(columns: int = 40, **more) -> Account:
    return Account(theme.make("none"), make_look("none"), columns, **more)


def told(one: Account, *events) -> list[str]:
    for event in events:
        one.tell(event)
    return one.take()


def answer(text: str) -> Said:
    return Said(Message("assistant", (Text(text),)))


def test_a_turn_reads_in_blocks_set_apart_by_one_blank_row():
    rows = told(
        account(),
        TurnStarted("t", "s", 1, "do it"),
        ThinkingDelta("let me see\nwhat is there"),
        TextDelta("I look "),
        TextDelta("first."),
        answer("I look first."),
        ToolStarted(CALL),
        ToolFinished(CALL, ToolResult("1", "fine\n[exit code 0]"), 0.0),
        ToolStarted(CALL),
        ToolFinished(CALL, ToolResult("1", "no", "failed"), 0.0),
        TextDelta("Done."),
        answer("Done."),
        TurnEnded("t", "answered"),
    )
    assert rows == [
        *("› do it", ""),
        *("∴ let me see what is there", ""),
        *("I look first.", ""),
        *("✓ terminal make", "  │ fine", "✗ terminal make  failed", "  │ no", ""),
        "Done.",
    ]


def test_what_streams_is_in_the_tail_until_it_is_final():
    one = account(20)
    told(one, TurnStarted("t", "s", 1, "go"))
    one.tell(TextDelta("the first words"))
    assert one.take() == [] and one.tail() == ["", "the first words"]
    one.tell(TextDelta(" of a longer line"))
    assert one.take() == ["", "the first words of a"]
    assert one.tail() == ["longer line"]
    one.tell(answer("the first words of a longer line"))
    assert one.take() == ["longer line"] and one.tail() == []


def test_a_running_tool_is_in_the_tail_with_its_progress():
    one = account(clock=lambda: 5.0)
    told(one, TurnStarted("t", "s", 1, "go"), ToolStarted(CALL), ToolProgress("1", "compiling\n"))
    assert one.tail() == ["", "• terminal make", "  │ compiling"]
    told(one, ToolFinished(CALL, ToolResult("1", "ok"), 0.0), ToolStarted(CALL))
    assert one.tail() == ["• terminal make"]
    assert told(one, ToolProgress("unknown", "x"), TurnEnded("t", "stopped")) == [
        *("✗ terminal make  stopped", "", "· stopped"),
    ]
    assert one.tail() == []


def test_thinking_is_short_and_may_be_left_out():
    one, quiet = account(30), account(30, thinking=False)
    for each in (one, quiet):
        each.tell(ThinkingDelta("first this, " * 20))
        each.tell(ThinkingDelta("then that"))
    assert len(one.tail()) == 3 and one.tail()[0].startswith("∴ ") and one.tail()[-1].endswith("then that")
    assert quiet.tail() == []
    assert told(one, TextDelta("So: ")) == ["∴ first this, first this, fir…"]
    assert told(quiet, TextDelta("So: ")) == []


def test_retracted_text_of_the_tail_disappears_and_what_scrolled_up_is_marked():
    one = account(70)
    told(one, TurnStarted("t", "s", 1, "go"))
    assert told(one, TextDelta("half"), Retracted("cut\noff")) == [
        "",
        "· the answer broke off (cut off); asking again",
    ]
    assert one.tail() == []
    told(one, TextDelta("a paragraph\n\nand half"))
    assert told(one, Retracted("cut"))[-1] == "· what stands above broke off and is void (cut); asking again"
    assert told(one, TextDelta("whole"), answer("whole")) == ["", "whole"]


def test_what_was_missed_of_a_stream_is_made_up_for():
    one = account(60)
    assert told(one, TextDelta("Hello "), answer("Hello world.")) == ["Hello world."]
    assert told(one, answer("Without a stream.")) == ["", "Without a stream."]
    rows = told(one, TextDelta("middle of"), answer("the middle of it"))
    assert rows[-1] == "the middle of it" and "missed" in "".join(rows)


def test_a_message_of_the_person_is_shown_short():
    one = account(30)
    assert told(one, TurnStarted("t", "s", 1, "word " * 10)) == [
        "› word word word word word",
        "  word word word word word",
    ]
    rows = told(one, TurnStarted("t", "s", 1, "\n".join(map(str, range(500)))))
    assert rows[1:3] == ["› 0", "  1"] and rows[-1] == "  … 490 more lines" and len(rows) == 12
    rows = told(one, TurnStarted("t", "s", 1, "x" * 900))
    assert rows[-1] == "  … and more" and len(rows) == 12
    one.tell(TurnStarted("t", "s", 1, "a\n" * 10_000), "[pasted 10,000 lines]")
    assert one.take() == ["", "› [pasted 10,000 lines]"]


def test_a_turn_that_is_taken_up_again_says_so():
    assert told(account(60), TurnStarted("t", "s", 2, "go")) == [
        *("› go", "", "· this was interrupted, and is taken up again"),
    ]


def test_the_house_speaks_in_notes_and_endings_are_told():
    one = account(60)
    assert told(one, Noted("another model answers")) == ["· another model answers"]
    assert told(one, ApprovalAnswered("a", "no")) == []
    assert told(one, ApprovalAnswered("a", "once"), Noted("two\nlines")) == [
        "· allowed this once",
        "· two",
        "  lines",
    ]
    assert told(one, TurnEnded("t", "failed", "no credit")) == ["· failed: no credit"]
    assert told(one, TurnEnded("t", "stopped", "superseded")) == ["· stopped for what comes next"]
    assert told(one, TextDelta("still"), TurnEnded("w", "steered", "t")) == []
    assert one.tail() == ["", "still"]
    assert told(one, TurnEnded("t", "stopped", "user_stop")) == ["", "still", "", "· stopped"]


def test_a_note_in_the_middle_of_an_answer_does_not_end_it():
    one = account(20)
    told(one, TextDelta("some words that go on and on"))
    one.note("a note")
    assert one.take() == ["", "· a note"]
    assert told(one, answer("some words that go on and on")) == ["", "on and on"]


def test_nothing_a_model_or_a_person_says_steers_the_terminal():
    one = account(60)
    evil = "\x1b]0;title\x07\x1b[2Jx\x9b31m"
    rows = told(
        one,
        TurnStarted("t", "s", 1, evil),
        ThinkingDelta(evil),
        TextDelta(evil),
        answer(evil),
        Noted(evil),
        Retracted(evil),
        TurnEnded("t", "failed", evil),
    )
    assert all("\x1b" not in row and "\x07" not in row and "\x9b" not in row for row in rows)


@pytest.mark.parametrize("columns", [10, 33, 80])
@given(st.lists(st.text("ab \n*`#-|日🙂", max_size=30), max_size=12))
@settings(max_examples=40, deadline=None)
def test_no_row_that_may_change_is_wider_than_the_screen(columns, texts):
    one = Account(theme.make("dark"), make_look("dark"), columns)
    one.tell(TurnStarted("t", "s", 1, "".join(texts)))
    for text in texts:
        one.tell(ThinkingDelta(text))
    for text in texts:
        one.tell(TextDelta(text))
        assert all(span(row) <= columns for row in one.tail())


def test_after_a_resize_the_tail_fits_and_final_rows_stay():
    one = account(40)
    one.tell(TextDelta("these words fill most of the row here"))
    one.resize(20)
    assert [plain(row) for row in one.take() + one.tail()] == ["these words fill", "most of the row here"]
