"""Plans, subagents, diffs with colours, and what Ctrl-O shows."""

import pyte
import pytest

from alipes.cli.terminal.transcript.tool_view import RunningCall
from alipes.cli.terminal.transcript.transcript_view import TranscriptView
from alipes.console import theme
from alipes.console.diff_view import DrawContext, UnifiedDiff
from alipes.console.screen_diff import strip_escapes, visible_width
from alipes.console.styles import make_style
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import (
    ApprovalAnswered,
    ApprovalAsked,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

PLAN = ToolCall("p", "todo", {"todos": [{"id": "1", "content": "Read"}]})
DELEGATE = ToolCall("d", "delegate_task", {"tasks": [{"goal": "Look at a"}, {"goal": "Look at b"}]})
RUN = ToolCall("r", "terminal", {"command": "seq 9"})
DIFF = """\
--- a/greet.py
+++ b/greet.py
@@ -1,2 +1,2 @@
 def greet(name):
-    return "hi " + name
+    return "hello " + name
"""


def view(columns: int = 60, now: float = 0.0) -> TranscriptView:
    return TranscriptView(theme.make_theme("none"), make_style("none"), columns, clock=lambda: now)


def seen(one: TranscriptView, *events) -> list[str]:
    for event in events:
        one.handle_event(event)
    return one.take_final()


def plan(text: str) -> tuple[ToolStarted, ToolFinished]:
    return ToolStarted(PLAN), ToolFinished(PLAN, ToolResult("p", text), 0.0)


def test_a_plan_is_live_while_the_turn_runs_and_printed_once_when_it_is_done():
    one = view()
    assert seen(one, TurnStarted("t", "s", 1, "go"), *plan("[>] 1: Read\n[ ] 2: Write: it\n(2 of 2 open)")) == ["› go"]
    assert one.tail() == ["", "• Plan  0 of 2 done", "  • Read", "  ☐ Write: it"]
    assert seen(one, *plan("[x] 1: Read\n[>] 2: Write: it\n(1 of 2 open)")) == []
    assert one.tail() == ["", "• Plan  1 of 2 done", "  ✓ Read", "  • Write: it"]
    done = ["", "✓ Plan  2 of 2 done", "  ✓ Read", "  ✓ Write: it"]
    assert seen(one, *plan("[x] 1: Read\n[x] 2: Write: it\n(0 of 2 open)")) == done
    assert one.tail() == []
    assert seen(one, TurnEnded("t", "answered")) == []


def test_an_unfinished_plan_is_printed_at_the_end_of_the_turn():
    one = view()
    seen(one, TurnStarted("t", "s", 1, "go"), *plan("[x] 1: Read\n[-] 2: Skip\n[ ] 3: Write\n(1 of 3 open)"))
    rows = seen(one, TurnEnded("t", "stopped"))
    assert rows == ["", "• Plan  1 of 3 done", "  ✓ Read", "  – Skip", "  ☐ Write", "", "· stopped"]
    assert one.tail() == [] and seen(one, TurnStarted("u", "s", 1, "next")) == ["", "› next"] and one.tail() == []


def test_a_long_plan_shows_what_is_next():
    one = view()
    items = "\n".join(f"[{'x' if n < 10 else ' '}] {n}: step {n}" for n in range(25))
    seen(one, TurnStarted("t", "s", 1, "go"), *plan(items))
    rows = one.tail()
    assert rows[2] == "  ✓ 10 finished" and rows[3] == "  ☐ step 10" and rows[-1] == "  … 7 more" and len(rows) == 12


def test_each_subagent_has_a_row_with_its_step_and_a_clock():
    running = RunningCall(DELEGATE, 0.0)
    draw = DrawContext(60, make_style("none"))
    assert running.rows(draw, 1.0) == ["• Delegate 2 tasks", "  · Look at a  queued", "  · Look at b  queued"]
    running.progress("1. “Look at a”: thinking\n", 1.0)
    running.progress("2. “Look at b”: Run make test\n", 2.0)
    assert running.rows(draw, 65.0) == [
        "• Delegate 2 tasks 1 min 05 s",
        "  • Look at a  thinking · 1 min 04 s",
        "  • Look at b  Run make test · 1 min 03 s",
    ]
    running.progress("1. “Look at a”: done\n2. “Look at b”: failed: no credit\n", 66.0)
    rows = running.rows(draw, 90.0)
    assert rows[1:] == ["  ✓ Look at a  done · 1 min 05 s", "  ✗ Look at b  failed: no credit · 1 min 04 s"]
    assert all(visible_width(row) <= 30 for row in running.rows(DrawContext(30, make_style("none")), 90.0))


def test_subagents_keep_their_order_unless_there_are_too_many():
    draw = DrawContext(60, make_style("none"))
    few = RunningCall(DELEGATE, 0.0)
    few.progress("1. “Look at a”: done\n2. “Look at b”: thinking\n", 1.0)
    assert [row.split()[3] for row in few.rows(draw, 2.0)[1:]] == ["a", "b"]
    many = RunningCall(ToolCall("d", "delegate_task", {"tasks": [{"goal": f"task {n}"} for n in range(1, 11)]}), 0.0)
    many.progress("1. “task 1”: done\n9. “task 9”: thinking\n", 1.0)
    rows = many.rows(draw, 2.0)
    assert not any("task 1 " in row for row in rows) and any("task 9" in row for row in rows)


def test_subagents_fold_into_one_row():
    one = view()
    text = "1 of 2 tasks done.\n\n1. “Look at a”: done (3 s, 2 steps)\nFine.\n\n2. “Look at b”: failed"
    rows = seen(one, ToolStarted(DELEGATE), ToolFinished(DELEGATE, ToolResult("d", text), 3.0))
    assert rows == ["✗ Delegate 2 tasks  1 of 2 done · 3.0 s"]


def test_a_diff_has_syntax_colours_and_marked_words():
    palette = theme.make_theme("dark")
    style = make_style("dark", colours=256)
    rows, shortened = UnifiedDiff.read(DIFF).rows(DrawContext(60, style, palette.tokens))
    assert not shortened and [strip_escapes(row) for row in rows] == [
        "  1   def greet(name):",
        '  2 -     return "hi " + name',
        '  2 +     return "hello " + name',
    ]
    assert f"\x1b[{palette.tokens['Keyword']}mdef\x1b[0m" in rows[0]
    assert f"\x1b[{style.removed_word}mhi\x1b[0m" in rows[1]
    assert f"\x1b[{style.added_word}mhello\x1b[0m" in rows[2]


PYTHON_DIFF = """--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@
 x = "text"
-raise KeyError(0)
+raise ValueError(0)
 y = 1
"""


@pytest.mark.parametrize("name", ["dark", "light"])
@pytest.mark.parametrize("colours", [16, 256, 16_777_216])
def test_changed_rows_are_tinted_to_the_edge_and_code_in_a_diff_is_neither_red_nor_green(name, colours):
    style, tokens = make_style(name, colours=colours), theme.make_theme(name).tokens
    screen = pyte.Screen(40, 8)
    rows, _ = UnifiedDiff.read(PYTHON_DIFF).rows(DrawContext(40, style, tokens))
    pyte.Stream(screen).feed("\r\n".join(rows))
    kept, removed, added, _ = (screen.buffer[y] for y in range(4))
    assert {kept[x].bg for x in range(40)} == {"default"}
    tints = []
    for row in (removed, added):
        assert {row[x].bg for x in range(4)} == {"default"} and "default" not in {row[x].bg for x in range(4, 40)}
        assert len({row[x].bg for x in range(25, 40)}) == 1
        tints.append(row[30].bg)
    assert tints[0] != tints[1]
    assert {cell.fg for row in (kept, removed, added) for cell in row.values()}.isdisjoint(
        {"red", "green", "brightred", "brightgreen"}
    )


def test_a_diff_without_colours_has_only_signs():
    rows, _ = UnifiedDiff.read(PYTHON_DIFF).rows(DrawContext(40, make_style("none")))
    assert not any("\x1b" in row for row in rows)


def test_a_long_line_of_a_diff_is_wrapped_and_a_diff_of_several_files_names_them():
    long = "--- /dev/null\n+++ b/x.txt\n@@ -0,0 +1,1 @@\n+" + "word " * 20
    rows, shortened = UnifiedDiff.read(long).rows(DrawContext(40, make_style("none")))
    assert len(rows) == 3 and not shortened and all(visible_width(row) <= 40 for row in rows)
    assert "".join(row[6:] for row in rows).split() == ["word"] * 20
    both = UnifiedDiff.read(DIFF + "--- a/old.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n")
    rows, _ = both.rows(DrawContext(40, make_style("none")))
    assert rows[0] == "  greet.py" and rows[-2:] == ["  old.py", "  1 - x"]


def test_ctrl_o_shows_the_last_shortened_thing_once():
    one = view(40)
    assert not one.expand_last()
    text = "\n".join(map(str, range(1, 10))) + "\n[exit code 0]"
    seen(one, TurnStarted("t", "s", 1, "go"), ThinkingDelta("so many words " * 9), ToolStarted(RUN))
    assert one.expand_last()
    rows = one.take_final()
    assert rows[-4:] == ["∴ so many words so many words so many", *rows[-3:]] and rows[-1].endswith("words")
    assert not one.expand_last()
    seen(one, ToolFinished(RUN, ToolResult("r", text), 0.0), TextDelta("Fine."))
    assert one.expand_last()
    assert one.take_final()[1:] == ["✓ Run seq 9  9 lines", *(f"  │ {n}" for n in range(1, 10)), "  │ [exit code 0]"]


def test_the_whole_transcript_has_everything_in_order():
    one = view(40)
    answer = Message("assistant", (Text("# Done\n\nIt **works**."),))
    seen(
        one,
        TurnStarted("old", "s", 1, "before"),
        TurnEnded("old", "answered"),
        TurnStarted("t", "s", 1, "go\n" * 30),
        ThinkingDelta("first this\nthen that"),
        ToolStarted(RUN),
        ToolFinished(RUN, ToolResult("r", "1\n2\n[exit code 0]"), 0.0),
        Said(answer),
        TurnEnded("t", "answered"),
    )
    rows = one.render_whole()
    assert rows[:33] == ["› before", "", "› go", *["  go"] * 29, ""]
    assert rows[33:] == [
        *("∴ first this", "  then that", ""),
        *("✓ Run seq 9  2 lines", "  │ 1", "  │ 2", "  │ [exit code 0]", ""),
        *("# Done", "", "It **works**."),
    ]


def test_the_whole_transcript_keeps_decisions_and_leaves_out_the_oldest_of_very_long_ones():
    one = view(80)
    call = ToolCall("c", "terminal", {"command": "make install"})
    seen(one, TurnStarted("a", "s", 1, "x" * 3_000_000), TurnEnded("a", "answered"))
    seen(one, TurnStarted("b", "s", 1, "install"), ApprovalAsked("1", call, "why", "rule"), ApprovalAnswered("1", "no"))
    seen(one, ToolFinished(call, ToolResult("c", "denied by the user", "denied"), 0.0), TurnEnded("b", "answered"))
    assert one.render_whole()[-4:] == [
        *("· denied: make install", "", "⊘ Run make install  denied", "  │ denied by the user")
    ]
    seen(one, TurnStarted("c", "s", 1, "y" * 2_000_000), TurnEnded("c", "answered"))
    rows = one.render_whole()
    assert rows[0] == "… 1 older entries; /export has all" and rows[2] == "› install"


def test_calls_that_were_done_before_a_restart_are_shown_from_the_transcript():
    one = view()
    asked = Message("assistant", (Text("I look."), RUN))
    rows = seen(
        one,
        TurnStarted("t", "s", 2, "go", calls=5, calls_done=2),
        Said(asked),
        Said(Message("tool", (ToolResult("r", "1\n[exit code 0]"),))),
    )
    assert rows == [*("› go", "", "· Resumed. Step 3 was cut off.", ""), *("I look.", "", "✓ Run seq 9", "  │ 1")]
    shown = seen(one, ToolFinished(RUN, ToolResult("r", "1"), 0.0), Said(Message("tool", (ToolResult("r", "1"),))))
    assert len(shown) == 2
    assert seen(one, ToolProgress("r", "late")) == []
