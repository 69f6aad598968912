"""Tool calls and diffs as rows."""

import pytest

from alipes.cli.terminal.screen_diff import strip_escapes, visible_width
from alipes.cli.terminal.styles import make_style
from alipes.cli.terminal.tool_view import MAX_DIFF_ROWS, RunningCall, UnifiedDiff, is_diff, render_finished
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


def end(result: ToolResult, running: RunningCall | None = None, seconds: float = 2.14, columns: int = 60) -> list[str]:
    return render_finished(CALL, result, seconds, running, columns=columns, style=LOOK)


def test_a_running_call_is_one_line_with_the_last_of_its_output():
    running = RunningCall(CALL, 100.0)
    assert running.rows(60, LOOK, 100.5) == ["• terminal make test"]
    running.progress("one\ntwo\nthr")
    running.progress("ee\n\nfour\nfive\n10%\r50%")
    running.progress("\r99%")
    assert running.rows(60, LOOK, 103.2) == [
        "• terminal make test 3 s",
        *("  │ three", "  │ four", "  │ five", "  │ 99%"),
    ]


def test_a_successful_call_shows_its_duration_and_the_end_of_its_output():
    text = "".join(f"line {n}\n" for n in range(5)) + "[exit code 0]"
    assert end(ToolResult("1", text)) == [
        "✓ terminal make test  2.1 s",
        *("  │ … 2 more lines", "  │ line 2", "  │ line 3", "  │ line 4"),
    ]
    assert end(ToolResult("1", "(no output)\n[exit code 0]"), seconds=0.01) == ["✓ terminal make test"]


def test_other_successful_tools_show_no_output():
    call = ToolCall("2", "read_file", {"path": "src/a.py", "offset": 3})
    rows = render_finished(call, ToolResult("2", "text\n" * 50), 0.0, None, columns=60, style=LOOK)
    assert rows == ["✓ read_file src/a.py"]


def test_a_command_that_failed_is_marked_with_its_status():
    rows = end(ToolResult("1", "boom\n[exit code 2]"))
    assert rows == ["✗ terminal make test  exit code 2 · 2.1 s", "  │ boom"]
    rows = end(ToolResult("1", "boom\n[timed out after 3 s and was killed]"), columns=80)
    assert rows[0] == "✗ terminal make test  timed out after 3 s and was killed · 2.1 s"


@pytest.mark.parametrize(
    ("outcome", "seen"),
    [
        ("failed", "✗ terminal make test  failed · 2.1 s"),
        ("denied", "⊘ terminal make test  denied · 2.1 s"),
        ("cancelled", "✗ terminal make test  stopped · 2.1 s"),
        ("unknown", "✗ terminal make test  unknown · 2.1 s"),
    ],
)
def test_errors_are_visible(outcome, seen):
    rows = end(ToolResult("1", "because\nof\nthis\nand that", outcome))
    assert rows == [seen, "  │ because", "  │ of", "  │ this", "  │ and that"]
    rows = end(ToolResult("1", "because\n" * 50, outcome))
    assert rows == [seen, *["  │ because"] * 3, "  │ … 47 more lines"]


def test_no_row_is_wider_than_the_screen_or_has_control_characters():
    call = ToolCall("1", "terminal", {"command": "echo 日本語 " * 30 + "\x1b[2J"})
    running = RunningCall(call, 0.0)
    running.progress("\x1b[31m" + "x" * 300 + "\x07")
    for columns in (8, 20, 40, 80):
        rows = running.rows(columns, LOOK, 9.0)
        result = ToolResult("1", "e" * 300, "failed")
        rows += render_finished(call, result, 1.0, running, columns=columns, style=LOOK)
        assert all(visible_width(row) <= max(columns, 24) and "\x1b" not in row and "\x07" not in row for row in rows)


def test_a_diff_shows_removed_and_added_lines_with_their_numbers():
    assert is_diff(DIFF) and not is_diff("--- no diff\nat all\n")
    running = RunningCall(ToolCall("1", "patch", {"path": "greet.py"}), 0.0)
    running.progress(DIFF)
    assert running.rows(60, LOOK, 0.0) == ["• patch greet.py"]
    rows = render_finished(running.call, ToolResult("1", "ok"), 0.0, running, columns=60, style=LOOK)
    assert rows == [
        "✓ patch greet.py  +3 -3",
        "   1   def greet(name):",
        '   2 -     print("hi")',
        "   3 - -- a comment of old times",
        '   2 +     print(f"hello {name}")',
        "   3 +",
        "   4 ",
        '   5   greet("you")',
        "   …",
        "  20 - x   = 1",
        "  21 + x = 2",
    ]


def test_a_diff_is_coloured_and_a_long_one_is_cut():
    look = make_style("dark")
    rows = UnifiedDiff.read(DIFF).rows(60, look)
    assert "\x1b[91m-     print" in rows[1] and "\x1b[92m+     print" in rows[3]
    long = "--- a\n+++ b\n@@ -0,0 +1,500 @@\n" + "".join(f"+line {n}\n" for n in range(500))
    rows = UnifiedDiff.read(long).rows(60, look)
    assert len(rows) == MAX_DIFF_ROWS and strip_escapes(rows[-1]) == "  … 461 more lines"
    assert UnifiedDiff.read(long).summary == "+500"
