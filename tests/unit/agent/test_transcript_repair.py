"""A transcript is whole after a crash and after a stop; each test here fails when its rule is taken away."""

import pytest

from alipes.agent.transcript_repair import (
    CUT_OFF,
    close_transcript,
    count_calls,
    known_results,
    repair_messages,
    unanswered_calls,
    with_unique_call_ids,
)
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant, user

READ, WRITE = ToolCall("c1", "look", {}), ToolCall("c2", "change", {})
ASKED = (user("do it"), assistant(Text("now"), READ, WRITE))


def effect(call):
    return "read" if call.name == "look" else "write"


def test_a_finished_call_keeps_its_result_and_is_not_run():
    results = {"c1": ToolResult("c1", "seen"), "c2": ToolResult("c2", "no", "failed")}
    assert known_results((READ, WRITE), results, effect) == results


def test_a_call_that_never_began_may_be_run():
    assert known_results((READ, WRITE), {}, effect) == {}


def test_a_read_that_was_cut_off_may_be_run_again():
    assert "c1" not in known_results((READ, WRITE), {"c1": None, "c2": None}, effect)


def test_a_write_that_was_cut_off_is_unknown_and_not_run():
    assert known_results((READ, WRITE), {"c2": None}, effect) == {"c2": ToolResult("c2", CUT_OFF, "unknown")}
    assert "Check before running it again" in CUT_OFF


def test_what_is_done_is_counted_over_all_steps_and_a_cut_off_call_is_not():
    look, first = ToolCall("c0", "look", {}), Message("tool", (ToolResult("c0", "seen"),))
    said = (user("do it"), assistant(look), first, assistant(READ, WRITE))
    assert count_calls(said, ()) == (3, 1)
    assert count_calls(said, {"c1"}) == (3, 2)
    unknown = Message("tool", (ToolResult("c1", "seen"), ToolResult("c2", CUT_OFF, "unknown")))
    assert count_calls((*said, unknown), ()) == (3, 2)


def test_a_stop_cancels_what_ran_and_what_had_not_begun_and_keeps_what_was_done():
    third = ToolCall("c3", "change", {})
    said = (*ASKED[:1], assistant(READ, WRITE, third))
    (closing,) = close_transcript(said, {"c1": ToolResult("c1", "seen"), "c2": None}, "stopped")
    assert closing == Message(
        "tool",
        (
            ToolResult("c1", "seen"),
            ToolResult("c2", "Stopped while running; may be partly done.", "cancelled"),
            ToolResult("c3", "Stopped before this call started.", "cancelled"),
        ),
    )


def test_a_failed_turn_says_so_and_other_reasons_are_taken_at_their_word():
    assert close_transcript(ASKED, {}, "failed")[0].parts[0].text == "The turn failed before this call started."
    assert close_transcript(ASKED, {}, "the person left")[0].parts[0].text.startswith("the person left before")


@pytest.mark.parametrize(
    "said",
    [(), (user("x"),), (user("x"), assistant(Text("y"))), (*ASKED, *close_transcript(ASKED, {}))],
    ids=["nothing", "a question", "an answer", "all answered"],
)
def test_nothing_is_added_where_nothing_is_missing(said):
    assert close_transcript(said, {}) == ()
    assert repair_messages(said) == ()


def test_any_history_with_open_calls_is_mended_as_unknown():
    (seen,) = repair_messages(ASKED)
    assert [(part.call_id, part.outcome) for part in seen.parts] == [("c1", "unknown"), ("c2", "unknown")]
    assert repair_messages((*ASKED, seen)) == ()


def test_a_half_answered_history_is_answered_to_the_end():
    half = (*ASKED, Message("tool", (ToolResult("c1", "seen"),)))
    assert unanswered_calls(half) == (WRITE,)
    (seen,) = repair_messages(half)
    assert [part.call_id for part in seen.parts] == ["c2"]


def test_call_ids_used_before_or_twice_or_empty_become_new_ones():
    message = assistant(
        Text("t"),
        ToolCall("c1", "a", {"n": 1}),
        ToolCall("c1", "b", {}),
        ToolCall("new", "d", {}),
        ToolCall("", "c", {}),
    )
    fresh = with_unique_call_ids(message, {"c1"})
    assert [call.id for call in fresh.calls] == ["c1_2", "c1_3", "new", "call"]
    assert fresh.calls[0].args == {"n": 1} and fresh.parts[0] == Text("t")
    assert with_unique_call_ids(fresh, set()) == fresh
