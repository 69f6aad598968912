"""Tool calls and diffs as rows: calm while they run, short when they are done, plain where they failed."""

import pytest

from alipes.cli.terminal.screen_diff import plain, span
from alipes.cli.terminal.styles import make_look
from alipes.cli.terminal.tool_view import LONGEST, Diff, Running, finished, is_diff
from alipes.kernel.messages import ToolCall, ToolResult

LOOK = make_look("none")
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


def end(
    result: ToolResult, running: Running | None = None, seconds: float = 2.14, columns: int = 60
) -> list[str]:
    return finished(CALL, result, seconds, running, columns=columns, look=LOOK)


def test_a_running_call_is_one_line_with_the_last_of_its_output():
    running = Running(CALL, 100.0)
    assert running.rows(60, LOOK, 100.5) == ["• terminal make test"]
    running.progress("one\ntwo\nthr")
    running.progress("ee\n\nfour\nfive\n10%\r50%")
    running.progress("\r99%")
    assert running.rows(60, LOOK, 103.2) == [
        "• terminal make test 3 s",
        *("  │ three", "  │ four", "  │ five", "  │ 99%"),
    ]


def test_a_call_that_went_well_says_how_long_it_took_and_how_its_output_ended():
    text = "".join(f"line {n}\n" for n in range(5)) + "[exit code 0]"
    assert end(ToolResult("1", text)) == [
        "✓ terminal make test  2.1 s",
        *("  │ … 2 more lines", "  │ line 2", "  │ line 3", "  │ line 4"),
    ]
    assert end(ToolResult("1", "(no output)\n[exit code 0]"), seconds=0.01) == ["✓ terminal make test"]


def test_other_tools_say_nothing_when_they_went_well():
    call = ToolCall("2", "read_file", {"path": "src/a.py", "offset": 3})
    rows = finished(call, ToolResult("2", "text\n" * 50), 0.0, None, columns=60, look=LOOK)
    assert rows == ["✓ read_file src/a.py"]


def test_a_command_that_failed_is_marked_with_its_status():
    rows = end(ToolResult("1", "boom\n[exit code 2]"))
    assert rows == ["✗ terminal make test  exit code 2 · 2.1 s", "  │ boom"]
    rows = end(ToolResult("1", "boom\n[timed out after 3 s and was ended]"), columns=80)
    assert rows[0] == "✗ terminal make test  timed out after 3 s and was ended · 2.1 s"


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ("failed", "✗ terminal make test  failed · 2.1 s"),
        ("denied", "⊘ terminal make test  not allowed · 2.1 s"),
        ("cancelled", "✗ terminal make test  stopped · 2.1 s"),
        ("unknown", "✗ terminal make test  unknown · 2.1 s"),
    ],
)
def test_errors_are_visible(outcome, told):
    rows = end(ToolResult("1", "because\nof\nthis\nand that", outcome))
    assert rows == [told, "  │ because", "  │ of", "  │ this", "  │ and that"]
    rows = end(ToolResult("1", "because\n" * 50, outcome))
    assert rows == [told, *["  │ because"] * 3, "  │ … 47 more lines"]


def test_no_row_is_wider_than_the_screen_and_nothing_steers_it():
    call = ToolCall("1", "terminal", {"command": "echo 日本語 " * 30 + "\x1b[2J"})
    running = Running(call, 0.0)
    running.progress("\x1b[31m" + "x" * 300 + "\x07")
    for columns in (8, 20, 40, 80):
        rows = running.rows(columns, LOOK, 9.0)
        result = ToolResult("1", "e" * 300, "failed")
        rows += finished(call, result, 1.0, running, columns=columns, look=LOOK)
        assert all(span(row) <= max(columns, 24) and "\x1b" not in row and "\x07" not in row for row in rows)


def test_a_diff_shows_what_went_and_what_came_with_their_numbers():
    assert is_diff(DIFF) and not is_diff("--- no diff\nat all\n")
    running = Running(ToolCall("1", "patch", {"path": "greet.py"}), 0.0)
    running.progress(DIFF)
    assert running.rows(60, LOOK, 0.0) == ["• patch greet.py"]
    rows = finished(running.call, ToolResult("1", "ok"), 0.0, running, columns=60, look=LOOK)
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
    look = make_look("dark")
    rows = Diff.read(DIFF).rows(60, look)
    assert "\x1b[91m-     print" in rows[1] and "\x1b[92m+     print" in rows[3]
    long = "--- a\n+++ b\n@@ -0,0 +1,500 @@\n" + "".join(f"+line {n}\n" for n in range(500))
    rows = Diff.read(long).rows(60, look)
    assert len(rows) == LONGEST and plain(rows[-1]) == "  … 461 more lines"
    assert Diff.read(long).summary == "+500"
