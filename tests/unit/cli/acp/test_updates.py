"""Events as updates of an editor: texts, tool calls, diffs, terminals, plans, commands."""

from typing import Any

import pytest

from alipes.cli.acp.handshake import EditorFeatures
from alipes.cli.acp.questions import approval_options, to_answer
from alipes.cli.acp.tool_calls import EditorCall, fence, read_diffs, tool_kind, tool_locations, tool_title
from alipes.cli.acp.updates import EventTranslator, commands_update, plan_update
from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import (
    ApprovalAsked,
    Event,
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
from alipes.tools.todo import TodoItem
from tests.world.commands import core_commands

RUN = ToolCall("c1", "terminal", {"command": "make"})
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -9,1 +9,2 @@\n y\n+z\n"


PLAIN = EditorFeatures()


def translate(*events: Event, features: EditorFeatures = PLAIN, turn: str = "t") -> list[Any]:
    translator = EventTranslator("/work", features)
    return [update for event in events for update in translator.translate(turn, event)]


def texts(updates: list[Any], kind: str = "agent_message_chunk") -> list[str]:
    return [each.content.text for each in updates if each.session_update == kind]


def test_text_is_sent_once_although_the_message_repeats_it():
    updates = translate(TextDelta("Good "), TextDelta("morning."), Said(assistant(Text("Good morning."))))
    assert texts(updates) == ["Good ", "morning."] and len({each.message_id for each in updates}) == 1


def test_the_part_that_was_not_streamed_is_sent_with_the_message():
    assert texts(translate(TextDelta("Good "), Said(assistant(Text("Good morning."))))) == ["Good ", "morning."]


def test_a_message_from_the_journal_is_sent_whole_with_its_thinking():
    updates = translate(Said(assistant(Thinking("hm"), Text("Good morning."))))
    assert texts(updates) == ["Good morning."] and texts(updates, "agent_thought_chunk") == ["hm"]


def test_streamed_thinking_is_not_repeated():
    updates = translate(ThinkingDelta("hm"), Said(assistant(Thinking("hm"), Text("Yes."))))
    assert texts(updates, "agent_thought_chunk") == ["hm"]


def test_messages_of_a_turn_have_different_ids():
    updates = translate(TextDelta("One."), Said(assistant(Text("One."))), TextDelta("Two."))
    assert len({each.message_id for each in updates}) == 2


def test_a_retracted_text_is_followed_by_a_remark():
    updates = translate(TextDelta("Half"), Retracted("reset"), TextDelta("Whole."), Said(assistant(Text("Whole."))))
    assert texts(updates)[0] == "Half" and "Ignore the partial answer above" in texts(updates)[1]
    assert texts(updates)[2:] == ["Whole."]


def test_what_was_typed_in_the_editor_is_not_sent_back():
    translator = EventTranslator("/work", EditorFeatures())
    translator.expect("hello")
    assert translator.translate("t", Said(user("hello"))) == []
    (shown,) = translator.translate("t", Said(user("hello")))
    assert shown.session_update == "user_message_chunk"


def test_an_image_of_a_past_message_is_shown():
    message = Message("user", (Text("look"), Image("image/png", b"x")))
    shown = translate(Said(message))
    assert [each.content.type for each in shown] == ["text", "image"]


def test_notices_and_resumption_are_thoughts():
    updates = translate(Notice("retrying (2/4)"), TurnStarted("t", "s", attempt=2), TurnStarted("t", "s"))
    assert texts(updates, "agent_thought_chunk") == ["retrying (2/4)\n", "Resuming the interrupted turn\n"]


def test_retries_are_shown_once():
    retries = [Notice(f"Connection lost. Retrying ({n}/5)", live=True) for n in range(2, 5)]
    assert len(translate(*retries, Notice("a/x is unavailable; switching to b/y"))) == 2


def test_a_call_is_started_updated_and_completed():
    start, live, done = translate(
        ToolStarted(RUN), ToolProgress("c1", "compiling\n"), ToolFinished(RUN, ToolResult("c1", "ok\n[exit code 0]"))
    )
    assert (start.session_update, start.kind, start.status, start.title) == (
        "tool_call",
        "execute",
        "in_progress",
        "Run make",
    )
    assert start.raw_input == {"command": "make"}
    assert live.content[0].content.text == "```\ncompiling\n```"
    assert done.status == "completed" and done.content[0].content.text == "```\nok\n```"


def test_a_command_that_fails_is_shown_as_failed_with_its_status():
    _, done = translate(ToolStarted(RUN), ToolFinished(RUN, ToolResult("c1", "no\n[exit code 2]")))
    assert done.status == "failed" and "[exit code 2]" in done.content[0].content.text


def test_a_denied_call_that_never_started_is_shown_too():
    start, done = translate(ToolFinished(RUN, ToolResult("c1", "Not run.", "denied")))
    assert start.session_update == "tool_call" and done.status == "failed"


def test_a_call_that_waits_for_approval_is_pending_until_it_runs():
    asked = ApprovalAsked("q", RUN, "why", "rule")
    pending, runs = translate(asked, ToolStarted(RUN))
    assert (pending.status, runs.session_update, runs.status) == ("pending", "tool_call_update", "in_progress")


def test_calls_in_the_journal_are_shown_with_their_results():
    results = Message("tool", (ToolResult("c1", "ok\n[exit code 0]"),))
    start, done = translate(Said(assistant(RUN)), Said(results))
    assert start.title == "Run make" and done.status == "completed"


def test_a_result_is_not_shown_twice():
    results = Message("tool", (ToolResult("c1", "ok"),))
    updates = translate(
        Said(assistant(RUN)), ToolStarted(RUN), ToolFinished(RUN, ToolResult("c1", "ok")), Said(results)
    )
    assert len(updates) == 2


def test_calls_that_a_stop_cut_off_are_closed():
    _, closed = translate(ToolStarted(RUN), TurnEnded("t", "stopped"))[:2]
    assert closed.tool_call_id == "c1" and closed.status == "failed"


def test_the_ending_of_a_turn_is_said_unless_a_prompt_reports_it():
    assert "stopped" in texts(translate(TurnEnded("t", "stopped")))[0]
    translator = EventTranslator("/work", EditorFeatures())
    translator.claim("t")
    assert translator.translate("t", TurnEnded("t", "failed", "no model")) == []


def test_todo_is_no_tool_call():
    call = ToolCall("c", "todo", {})
    assert translate(ToolStarted(call), ToolFinished(call, ToolResult("c", "(0 of 1 open)"))) == []


def test_a_diff_becomes_old_and_new_text_per_hunk():
    first, second = read_diffs(DIFF, "/work")
    assert (first.path, first.old_text, first.new_text) == ("/work/x.py", "a\nb\n", "a\nc\n")
    assert (second.old_text, second.new_text) == ("y\n", "y\nz\n")


def test_a_new_file_has_no_old_text():
    (only,) = read_diffs("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,1 @@\n+x\n", "/work")
    assert (only.path, only.old_text, only.new_text) == ("/work/new.py", None, "x\n")


def test_the_diff_of_an_edit_stays_when_it_is_done():
    edit = ToolCall("c", "patch", {"path": "x.py", "old_string": "b", "new_string": "c"})
    start, live, done = translate(ToolStarted(edit), ToolProgress("c", DIFF), ToolFinished(edit, ToolResult("c", "ok")))
    assert start.kind == "edit" and [each.path for each in start.locations] == ["/work/x.py"]
    assert [each.type for each in live.content] == [each.type for each in done.content] == ["diff", "diff"]


def test_images_of_a_result_are_shown():
    look = ToolCall("c", "vision_analyze", {"path": "a.png"})
    _, done = translate(
        ToolStarted(look), ToolFinished(look, ToolResult("c", "a dot", images=(Image("image/png", b"x"),)))
    )
    assert [each.content.type for each in done.content] == ["text", "image"]


def test_live_output_is_sent_at_intervals_and_whole():
    call = EditorCall(RUN, "t", "/work", EditorFeatures())
    assert call.progress("a", clock=10.0) is not None
    assert call.progress("b", clock=10.1) is None
    update = call.progress("c", clock=10.4)
    assert update is not None and update.content is not None and update.content[0].content.text == "```\nabc\n```"  # type: ignore[union-attr]


def test_an_editor_with_terminals_gets_output_and_exit_code():
    start, live, exit = translate(
        ToolStarted(RUN),
        ToolProgress("c1", "compiling\n"),
        ToolFinished(RUN, ToolResult("c1", "compiling\n[exit code 2]")),
        features=EditorFeatures(terminals=True),
    )
    assert start.content[0].terminal_id == "c1"
    assert start.field_meta == {"terminal_info": {"terminal_id": "c1", "cwd": "/work"}}
    assert live.field_meta == {"terminal_output": {"terminal_id": "c1", "data": "compiling\n"}}
    assert exit.field_meta["terminal_exit"]["exit_code"] == 2 and exit.status == "failed"


def test_a_terminal_without_live_output_gets_all_of_it_at_the_end():
    _, output, exit = translate(
        ToolStarted(RUN),
        ToolFinished(RUN, ToolResult("c1", "ok\n[exit code 0]")),
        features=EditorFeatures(terminals=True),
    )
    assert output.field_meta["terminal_output"]["data"] == "ok" and exit.field_meta["terminal_exit"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [("read_file", "read"), ("search_files", "search"), ("browser_click", "fetch"), ("mcp__a__b", "other")],
)
def test_tools_have_kinds(name: str, kind: str):
    assert tool_kind(name) == kind


def test_a_location_is_absolute_and_has_its_line():
    (place,) = tool_locations(ToolCall("c", "read_file", {"path": "a/../b.py", "offset": 7}), "/work")
    assert (place.path, place.line) == ("/work/b.py", 7)


def test_hidden_characters_in_a_title_are_visible_and_long_ones_cut():
    title = tool_title(ToolCall("c", "terminal", {"command": "ls \u202e" + "x" * 300}))
    assert "<U+202E>" in title and len(title) == 200


def test_a_code_block_cannot_be_closed_by_its_text():
    assert fence("a\n```\nb").startswith("````\n")


def test_the_plan_leaves_out_what_was_cancelled():
    items = (TodoItem("1", "a", "completed"), TodoItem("2", "b", "in_progress"), TodoItem("3", "c", "cancelled"))
    assert [(each.content, each.status) for each in plan_update(items).entries] == [
        ("a", "completed"),
        ("b", "in_progress"),
    ]


def test_commands_are_listed_with_their_arguments_but_not_those_of_a_terminal():
    listed = {each.name: each for each in commands_update(core_commands()).available_commands}
    assert {"status", "model", "undo", "new"} <= set(listed) and not {"quit", "setup", "keys"} & set(listed)
    assert listed["model"].input is not None and listed["model"].input.root.hint == "[NAME]"
    assert listed["status"].input is None


@pytest.mark.parametrize(
    ("chosen", "choice", "pattern"),
    [("once", "once", ""), ("session", "session", ""), ("always", "always", ""), ("pattern", "no", ""),
     ("no", "no", ""), ("nonsense", "no", "")],
)  # fmt: skip
def test_options_are_answers_to_the_question(chosen: str, choice: str, pattern: str):
    asked = ApprovalAsked("q", RUN, "why", "rule", pattern="git *")
    answer = to_answer(asked, chosen)
    assert (answer.ask, answer.choice, answer.pattern) == ("q", choice, pattern)


def test_what_can_only_be_allowed_once_offers_nothing_else():
    all_kinds = {each.option_id: each.kind for each in approval_options(ApprovalAsked("q", RUN, "w", "r", pattern="x"))}
    assert all_kinds == {"once": "allow_once", "session": "allow_always", "always": "allow_always", "no": "reject_once"}
    asked = ApprovalAsked("q", RUN, "why", "rule", once="it runs what comes through a pipe")
    assert [each.option_id for each in approval_options(asked)] == ["once", "no"]
