"""Tool calls and diffs as rows."""

import pytest

from alipes.cli.terminal.transcript.tool_view import CallRecord, RunningCall, render_finished, render_whole
from alipes.console.diff_view import MAX_DIFF_ROWS, DrawContext, UnifiedDiff, is_diff
from alipes.console.screen_diff import strip_escapes, visible_width
from alipes.console.styles import make_style
from alipes.kernel.messages import ToolCall, ToolResult

LOOK = make_style("none")
CALL = ToolCall("1", "terminal", {"command": "make test"})
DIFF = """\
--- a/greet.py
+++ b/greet.py
@@ -1,4 +1,5 @@
 def greet(name):
-    print("hi")
--- a comment of old times
+    print(f"hello {name}")
+

 greet("you")
@@ -20,1 +21,1 @@
-x\t= 1
+x = 2
"""


def at(columns: int = 60, style=LOOK) -> DrawContext:
    return DrawContext(columns, style)


def end(result: ToolResult, seconds: float = 2.14, columns: int = 60) -> list[str]:
    return render_finished(CallRecord(CALL, result, seconds), at(columns))[0]


def test_a_running_call_is_one_line_with_the_last_of_its_output():
    running = RunningCall(CALL, 100.0)
    assert running.rows(at(), 100.5) == ["• Run make test"]
    running.progress("one\ntwo\nthr")
    running.progress("ee\n\nfour\nfive\n10%\r50%")
    running.progress("\r99%")
    assert running.rows(at(), 103.2) == ["• Run make test 3 s", *("  │ three", "  │ four", "  │ five", "  │ 99%")]


def test_a_successful_call_shows_its_duration_and_the_end_of_its_output():
    text = "".join(f"line {n}\n" for n in range(5)) + "[exit code 0]"
    assert end(ToolResult("1", text)) == [
        "✓ Run make test  5 lines · 2.1 s",
        *("  │ … 2 more lines (Ctrl-O)", "  │ line 2", "  │ line 3", "  │ line 4"),
    ]
    assert end(ToolResult("1", "(no output)\n[exit code 0]"), seconds=0.01) == ["✓ Run make test  no output"]


def test_other_successful_tools_show_only_a_summary_of_their_result():
    call = ToolCall("2", "read_file", {"path": "src/a.py", "offset": 3})
    record = CallRecord(call, ToolResult("2", "text\n" * 50))
    assert render_finished(record, at()) == (["✓ Read src/a.py from line 3  50 lines"], True)
    assert len(render_whole(record, at())) == 51


def test_a_command_that_failed_is_marked_with_its_status():
    rows = end(ToolResult("1", "boom\n[exit code 2]"))
    assert rows == ["✗ Run make test  exit code 2 · 2.1 s", "  │ boom"]
    rows = end(ToolResult("1", "boom\n[timed out after 3 s and was killed]"), columns=100)
    assert rows[0] == "✗ Run make test  timed out after 3 s and was killed · 2.1 s"


@pytest.mark.parametrize(
    ("outcome", "seen"),
    [
        ("failed", "✗ Run make test  failed · 2.1 s"),
        ("denied", "⊘ Run make test  denied · 2.1 s"),
        ("unknown", "✗ Run make test  result unknown · 2.1 s"),
    ],
)
def test_errors_are_visible(outcome, seen):
    rows = end(ToolResult("1", "because\nof\nthis\nand that", outcome))
    assert rows == [seen, "  │ because", "  │ of", "  │ this", "  │ and that"]
    rows = end(ToolResult("1", "because\n" * 50, outcome))
    assert rows == [seen, *["  │ because"] * 3, "  │ … 47 more lines (Ctrl-O)"]


def test_a_stopped_call_keeps_its_last_lines():
    running = RunningCall(ToolCall("1", "terminal", {"command": "make test"}), 0.0)
    running.progress("".join(f"test {number}\n" for number in range(500)))
    record = running.finish_stopped(2.1)
    rows, shortened = render_finished(record, at(80))
    assert [strip_escapes(row) for row in rows] == [
        "✗ Run make test  stopped · 2.1 s",
        "  │ … earlier lines (Ctrl-O)",
        *(f"  │ test {number}" for number in (497, 498, 499)),
    ]
    assert shortened


def test_a_stopped_call_without_output_is_one_row():
    record = RunningCall(ToolCall("1", "terminal", {"command": "make test"}), 0.0).finish_stopped(2.1)
    assert len(render_finished(record, at(80))[0]) == len(render_whole(record, at(80))) == 1


def test_a_denied_call_shows_no_text_that_is_for_the_model():
    said = "Not run: it uses sudo (runs as root) (rule: sudo); {}. Do not try to work around this."
    assert end(ToolResult("1", said.format("denied by the user"), "denied")) == ["⊘ Run make test  denied · 2.1 s"]
    rows = end(ToolResult("1", said.format("nobody is available to approve it"), "denied"), columns=120)
    assert rows[1].endswith("it uses sudo (runs as root), which needs approval (use --yes)")


def test_no_row_is_wider_than_the_screen_or_has_control_characters():
    call = ToolCall("1", "terminal", {"command": "echo 日本語 " * 30 + "\x1b[2J"})
    running = RunningCall(call, 0.0)
    running.progress("\x1b[31m" + "x" * 300 + "\x07")
    for columns in (8, 20, 40, 80):
        rows = running.rows(at(columns), 9.0)
        result = ToolResult("1", "e" * 300, "failed")
        rows += render_finished(running.finish(result, 1.0), at(columns))[0]
        rows += render_whole(running.finish(result, 1.0), at(columns))[1:]
        assert all(visible_width(row) <= max(columns, 24) and "\x1b" not in row and "\x07" not in row for row in rows)


def test_a_diff_shows_removed_and_added_lines_with_their_numbers():
    assert is_diff(DIFF) and not is_diff("--- no diff\nat all\n")
    running = RunningCall(ToolCall("1", "patch", {"path": "greet.py"}), 0.0)
    running.progress(DIFF)
    assert running.rows(at(), 0.0) == ["• Edit greet.py"]
    rows = render_finished(running.finish(ToolResult("1", "updated greet.py (+3 -3, line 2)"), 0.0), at())[0]
    assert rows == [
        "✓ Edit greet.py  +3 -3",
        "   1   def greet(name):",
        '   2 -     print("hi")',
        "   3 - -- a comment of old times",
        '   2 +     print(f"hello {name}")',
        "   3 +",
        "   4",
        '   5   greet("you")',
        "   …",
        "  20 - x   = 1",
        "  21 + x = 2",
    ]


def test_a_diff_is_coloured_and_a_long_one_is_cut():
    look = make_style("dark")
    rows, _ = UnifiedDiff.read(DIFF).rows(at(60, look))
    assert f"\x1b[{look.removed}m- " in rows[1] and f"\x1b[{look.added}m+ " in rows[3]
    long = "--- a\n+++ b\n@@ -0,0 +1,500 @@\n" + "".join(f"+line {n}\n" for n in range(500))
    rows, shortened = UnifiedDiff.read(long).rows(at(60, look))
    assert len(rows) == MAX_DIFF_ROWS and strip_escapes(rows[-1]) == "  … 461 more lines (Ctrl-O)" and shortened
    assert UnifiedDiff.read(long).summary == "+500"


def test_a_here_document_is_shown_on_its_own_lines():
    command = "cat > x.py <<'EOF'\n" + "\n".join(f"line {n}" for n in range(9)) + "\nEOF"
    call = ToolCall("1", "terminal", {"command": command})
    rows, cut = render_finished(CallRecord(call, ToolResult("1", "[exit code 0]")), at(40))
    assert rows == [
        "✓ Run cat > x.py <<'EOF'  no output",
        *("    line 0", "    line 1", "    line 2", "    … 7 more lines (Ctrl-O)"),
    ]
    assert cut


def test_code_is_shown_on_its_own_lines():
    call = ToolCall("1", "execute_code", {"code": "import os\nprint(os.getcwd())\n"})
    rows, _ = render_finished(CallRecord(call, ToolResult("1", "/w\n[exit code 0]")), at(40))
    assert rows == ["✓ Run Python import os", "    print(os.getcwd())", "  │ /w"]


def test_an_error_is_wrapped_between_words():
    call = ToolCall("1", "read_file", {"path": "a"})
    said = "/home/ann/work/a does not exist. /home/ann/work contains b.py and c"
    rows, cut = render_finished(CallRecord(call, ToolResult("1", said, "failed")), at(40))
    assert rows == [
        "✗ Read a  failed",
        "  │ /home/ann/work/a does not exist.",
        "  │ /home/ann/work contains b.py and c",
    ]
    assert not cut


def test_a_command_that_was_moved_to_the_background_shows_its_number():
    rows = end(ToolResult("1", "one\n[p1 is running in the background, where the user moved it]"), columns=80)
    assert rows == ["✓ Run make test  p1 in the background · 2.1 s", "  │ one"]


def test_a_command_that_a_no_has_ended_says_so_without_the_text_for_the_model():
    said = '[The user said no to a connection to pypi.org: "later". Do not try to work around this. The command was stopped.]'
    assert end(ToolResult("1", f"Retrying\n{said}")) == ["✗ Run make test  stopped by your no · 2.1 s", "  │ Retrying"]
