"""Events as rows: final ones and the tail."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.cli.terminal.transcript.transcript_view import TranscriptView
from alipes.console import theme
from alipes.console.screen_diff import strip_escapes, visible_width
from alipes.console.styles import make_style
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import (
    ApprovalAnswered,
    Notice,
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


def account(columns: int = 40, **more) -> TranscriptView:
    return TranscriptView(theme.make_theme("none"), make_style("none"), columns, **more)


def seen(one: TranscriptView, *events) -> list[str]:
    for event in events:
        one.handle_event(event)
    return one.take_final()


def answer(text: str) -> Said:
    return Said(Message("assistant", (Text(text),)))


def test_a_turn_is_shown_in_blocks_separated_by_one_blank_row():
    rows = seen(
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
        *("✓ Run make", "  │ fine", "✗ Run make  failed", "  │ no", ""),
        "Done.",
    ]


def test_streamed_text_is_in_the_tail_until_it_is_final():
    one = account(20)
    seen(one, TurnStarted("t", "s", 1, "go"))
    one.handle_event(TextDelta("the first words"))
    assert one.take_final() == [] and one.tail() == ["", "the first words"]
    one.handle_event(TextDelta(" of a longer line"))
    assert one.take_final() == ["", "the first words of a"]
    assert one.tail() == ["longer line"]
    one.handle_event(answer("the first words of a longer line"))
    assert one.take_final() == ["longer line"] and one.tail() == []


def test_a_running_tool_is_in_the_tail_with_its_progress():
    one = account(clock=lambda: 5.0)
    seen(one, TurnStarted("t", "s", 1, "go"), ToolStarted(CALL), ToolProgress("1", "compiling\n"))
    assert one.tail() == ["", "• Run make", "  │ compiling"]
    seen(one, ToolFinished(CALL, ToolResult("1", "ok"), 0.0), ToolStarted(CALL))
    assert one.tail() == ["• Run make"]
    assert seen(one, ToolProgress("unknown", "x"), TurnEnded("t", "stopped")) == [
        *("✗ Run make  stopped", "", "· stopped")
    ]
    assert one.tail() == []


def test_thinking_is_short_and_can_be_hidden():
    one, quiet = account(30), account(30, thinking=False)
    for each in (one, quiet):
        each.handle_event(ThinkingDelta("first this, " * 20))
        each.handle_event(ThinkingDelta("then that"))
    assert len(one.tail()) == 3 and one.tail()[0].startswith("∴ ") and one.tail()[-1].endswith("then that")
    assert quiet.tail() == []
    assert seen(one, TextDelta("So: ")) == ["∴ first this, first this, fir…"]
    assert seen(quiet, TextDelta("So: ")) == []


def test_retries_are_one_row_that_counts_and_the_failure_remains():
    one = account(70)
    seen(one, TurnStarted("t", "s", 1, "go"))
    for count in range(2, 6):
        assert seen(one, TextDelta("ha"), Retracted("Connection lost")) == []
        assert seen(one, Notice(f"Connection lost. Retrying ({count}/5)", live=True)) == []
        assert one.tail() == ["", f"· Connection lost. Retrying ({count}/5)"]
    rows = seen(one, TurnEnded("t", "failed", "play: the stream ended early"))
    assert rows[1].startswith("· failed: play: the stream ended early. ") and one.tail() == []


def test_retracted_text_in_the_tail_disappears_and_final_text_is_marked():
    one = account(70)
    seen(one, TurnStarted("t", "s", 1, "go"))
    assert seen(one, TextDelta("half"), Retracted("cut\noff")) == []
    assert one.tail() == []
    seen(one, TextDelta("a paragraph\n\nand half"))
    assert seen(one, Retracted("cut"))[-1] == "· Ignore the partial answer above: cut."
    assert seen(one, TextDelta("whole"), answer("whole")) == ["", "whole"]


def test_text_missing_from_the_stream_is_added():
    one = account(60)
    assert seen(one, TextDelta("Hello "), answer("Hello world.")) == ["Hello world."]
    assert seen(one, answer("Without a stream.")) == ["", "Without a stream."]
    rows = seen(one, TextDelta("middle of"), answer("the middle of it"))
    assert rows[-1] == "the middle of it" and "lost" in "".join(rows)


def test_a_long_user_message_is_shortened():
    one = account(30)
    assert seen(one, TurnStarted("t", "s", 1, "word " * 10)) == [
        "› word word word word word",
        "  word word word word word",
    ]
    rows = seen(one, TurnStarted("t", "s", 1, "\n".join(map(str, range(500)))))
    assert rows[1:3] == ["› 0", "  1"] and rows[-1] == "  … 490 more lines (Ctrl-O)" and len(rows) == 12
    rows = seen(one, TurnStarted("t", "s", 1, "x" * 900))
    assert rows[-1] == "  … and more (Ctrl-O)" and len(rows) == 12
    one.handle_event(TurnStarted("t", "s", 1, "a\n" * 10_000), "[pasted 10,000 lines]")
    assert one.take_final() == ["", "› [pasted 10,000 lines]"]


def test_a_resumed_turn_shows_a_note():
    assert seen(account(60), TurnStarted("t", "s", 2, "go")) == [*("› go", "", "· Resuming the interrupted turn")]


def test_notes_and_endings_are_shown():
    one = account(60)
    assert seen(one, Notice("another model answers")) == ["· another model answers"]
    assert seen(one, ApprovalAnswered("a", "no")) == []
    assert seen(one, ApprovalAnswered("a", "once"), Notice("two\nlines")) == ["· approved once", "· two", "  lines"]
    assert seen(one, ApprovalAnswered("b", "session")) == ["· approved for this session"]
    failed = " ".join(seen(one, TurnEnded("t", "failed", "no credit")))
    assert failed.startswith("· failed: no credit. /retry tries again") and "/model" in failed and "/setup" in failed
    assert seen(one, TurnEnded("t", "stopped", "superseded")) == ["· interrupted by your next message"]
    assert seen(one, TextDelta("still"), TurnEnded("w", "steered", "t")) == []
    assert one.tail() == ["", "still"]
    assert seen(one, TurnEnded("t", "stopped", "user_stop")) == ["", "still", "", "· stopped"]


def test_a_note_in_the_middle_of_an_answer_does_not_end_it():
    one = account(20)
    seen(one, TextDelta("some words that go on and on"))
    one.add_note("a note")
    assert one.take_final() == ["", "· a note"]
    assert seen(one, answer("some words that go on and on")) == ["", "on and on"]


def test_control_characters_of_models_and_users_are_removed():
    one = account(60)
    evil = "\x1b]0;title\x07\x1b[2Jx\x9b31m"
    rows = seen(
        one,
        TurnStarted("t", "s", 1, evil),
        ThinkingDelta(evil),
        TextDelta(evil),
        answer(evil),
        Notice(evil),
        Retracted(evil),
        TurnEnded("t", "failed", evil),
    )
    assert all("\x1b" not in row and "\x07" not in row and "\x9b" not in row for row in rows)


@pytest.mark.parametrize("columns", [10, 33, 80])
@given(st.lists(st.text("ab \n*`#-|日🙂", max_size=30), max_size=12))
@settings(max_examples=40, deadline=None)
def test_no_row_that_may_change_is_wider_than_the_screen(columns, texts):
    one = TranscriptView(theme.make_theme("dark"), make_style("dark"), columns)
    one.handle_event(TurnStarted("t", "s", 1, "".join(texts)))
    for text in texts:
        one.handle_event(ThinkingDelta(text))
    for text in texts:
        one.handle_event(TextDelta(text))
        assert all(visible_width(row) <= columns for row in one.tail())


def test_after_a_resize_the_tail_fits_and_final_rows_stay():
    one = account(40)
    one.handle_event(TextDelta("these words fill most of the row here"))
    one.resize(20)
    assert [strip_escapes(row) for row in one.take_final() + one.tail()] == ["these words fill", "most of the row here"]


def test_a_call_that_a_stop_cut_off_is_shown_once():
    call = Message("assistant", (CALL,))
    closing = Message("tool", (ToolResult("1", "the turn was stopped", "cancelled"),))
    rows = seen(account(), Said(call), ToolStarted(CALL), Said(closing), TurnEnded("t", "stopped", "user_stop"))
    assert sum("Run make" in row for row in rows) == 1
