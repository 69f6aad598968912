"""The names of tool calls and of their outcomes."""

import pytest

from alipes.core.standalone import make_registry
from alipes.features.all import FEATURES
from alipes.kernel.messages import Image, ToolCall, ToolResult
from alipes.kernel.tool_labels import (
    count_lines,
    describe_activity,
    describe_outcome,
    describe_tool,
    is_builtin,
    output_of,
)

SEARCH = "src/a.py\n3: def one():\n9: def two():\n\nsrc/b.py\n1- import os\n2: def three():\n--\n7: def four():"


@pytest.mark.parametrize(
    ("name", "args", "label"),
    [
        ("terminal", {"command": "npm  test\n&& ls"}, "Run npm test && ls"),
        ("terminal", {"command": "npm run dev", "background": True}, "Start npm run dev"),
        ("process", {"action": "list"}, "List background processes"),
        ("process", {"action": "kill", "session_id": "p1"}, "Stop p1"),
        ("process", {"action": "wait", "session_id": "p1"}, "Wait for p1"),
        ("read_file", {"path": "a.py"}, "Read a.py"),
        ("read_file", {"path": "a.py", "offset": 10, "limit": 31}, "Read a.py:10-40"),
        ("read_file", {"path": "a.py", "offset": 10}, "Read a.py from line 10"),
        ("write_file", {"path": "a.py", "content": "x"}, "Write a.py"),
        ("patch", {"mode": "replace", "path": "a.py"}, "Edit a.py"),
        ("patch", {"mode": "patch", "patch": "*** Begin Patch\n*** Update File: a.py\n*** Add File: b.py"}, "Edit a.py, b.py"),
        ("patch", {"mode": "patch", "patch": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@"}, "Edit x.py"),
        ("search_files", {"pattern": "def "}, "Search def"),
        ("search_files", {"pattern": "def", "path": "src", "file_glob": "*.py"}, "Search def in *.py src"),
        ("search_files", {"pattern": "*.py", "target": "files"}, "Find *.py"),
        ("execute_code", {"code": "print(1)"}, "Run Python print(1)"),
        ("todo", {"todos": []}, "Plan"),
        ("delegate_task", {"goal": "look"}, "Delegate look"),
        ("delegate_task", {"tasks": [{"goal": "a"}, {"goal": "b"}]}, "Delegate 2 tasks"),
        ("mixture_of_agents", {"prompt": "why?"}, "Ask several models why?"),
        ("clarify", {"question": "Which?"}, "Ask Which?"),
        ("send_file", {"path": "a.pdf"}, "Send a.pdf"),
        ("cronjob", {"action": "add", "name": "tea", "when": "in 5m"}, "Schedule add tea in 5m"),
        ("vision_analyze", {"image_url": "http://x/y.png", "question": "?"}, "Look at http://x/y.png"),
        ("image_generate", {"prompt": "a cat"}, "Generate image a cat"),
        ("browser_navigate", {"url": "https://a.example/x"}, "Open https://a.example/x"),
        ("browser_click", {"ref": "e12"}, "Click e12"),
        ("browser_type", {"ref": "e12", "text": "my password"}, "Type into e12"),
        ("browser_select", {"ref": "e1", "options": ["red", "blue"]}, "Choose red, blue"),
        ("browser_scroll", {}, "Scroll down"),
        ("browser_upload", {"ref": "e1", "path": "a.pdf", "site": "a.example"}, "Upload a.pdf to a.example"),
        ("look_up", {"query": "q", "n": 1}, "look_up q"),
        ("note", {"n": 1, "deep": [2]}, "note n=1, deep=[2]"),
        ("note", {}, "note"),
    ],
)  # fmt: skip
def test_a_call_is_named_in_plain_words(name, args, label):
    assert describe_tool(ToolCall("c", name, args)).text == label


@pytest.mark.parametrize(
    ("name", "text", "outcome"),
    [
        ("terminal", "a\nb\n[exit code 0]", "2 lines"),
        ("terminal", "(no output)\n[exit code 0]", "no output"),
        ("terminal", "a\n[exit code 3; 1 leftover child process killed]", "exit code 3"),
        ("terminal", "a\n[killed by SIGKILL]", "killed by SIGKILL"),
        ("terminal", "a\n[timed out after 3 s and was killed]", "timed out after 3 s and was killed"),
        ("terminal", "a\n[exit code 0]\n[p1 (x) ended after 3 s: exit code 1]", "1 line"),
        ("terminal", "up\n[p1 is running in the background]", "p1 in the background"),
        ("terminal", "1\n\n[... 9,000 bytes in 1,998 lines omitted; full output in /x, see read_file ...]\n\n2000\n[exit code 0]", "2,000 lines"),
        ("execute_code", "1\n2\n3\n[exit code 0]", "3 lines"),
        ("process", "(no background processes)", "none"),
        ("process", "p1 (a) is running (3 s)\np2 (b) ended after 1 s: exit code 0", "1 running of 2"),
        ("process", "out\n[p1 is running (3 s)]", "running (3 s)"),
        ("process", "out\n[p1 ended after 9 s: exit code 0]", "ended after 9 s: exit code 0"),
        ("read_file", "a\nb\n", "2 lines"),
        ("read_file", "a", "1 line"),
        ("read_file", "[lines 1-2000 of 5,100; continue with offset=2001]\nx", "lines 1-2000 of 5,100"),
        ("read_file", "(empty file)", "empty"),
        ("read_file", "[/x is a directory with 3 entries]\na\nb\nc", "3 entries"),
        ("read_file", "[/x is an ELF program, 900 bytes; use the terminal tool to inspect it]", "an ELF program, 900 bytes"),
        ("search_files", SEARCH, "4 matches in 2 files"),
        ("search_files", "a.py\n1: x", "1 match in 1 file"),
        ("search_files", "a.py\n1: x\n\n[50 matches in 3 files; more with offset=50]", "50 matches in 3 files, and more"),
        ("search_files", "a.py\nb.py", "2 files"),
        ("search_files", "a.py: 3\nb.py: 4", "7 matches in 2 files"),
        ("search_files", "no matches (hidden, ignored and binary files are skipped)", "no matches"),
        ("write_file", "created a.py (12 bytes, +3 -0 lines)", "created, +3"),
        ("write_file", "updated a.py (12 bytes, +3 -1 lines); crlf kept", "+3 -1"),
        ("write_file", "unchanged a.py (12 bytes)", "unchanged"),
        ("patch", "updated song.txt (+2 -1, line 2)", "+2 -1"),
        ("patch", "updated a (+2 -1, line 2)\ndeleted b (+0 -9)", "2 files, +2 -10"),
        ("todo", "[x] 1: a\n[ ] 2: b\n(1 of 2 open)", "1 of 2 done"),
        ("todo", "(no todos)", "empty"),
        ("delegate_task", "2 of 3 tasks done.\n\n1. “a”: done", "2 of 3 done"),
        ("delegate_task", "1. “a”: done (12 s, 4 steps)\nIt is fine.", "done (12 s, 4 steps)"),
        ("delegate_task", "Running in the background; each will report in a notice:\nabc: “a”\ndef: “b”", "2 in the background"),
        ("clarify", "The user answered: blue", "blue"),
        ("clarify", "No answer. Continue with your best judgement and state your assumptions.", "no answer"),
        ("send_file", "Attached /x", "attached"),
        ("browser_navigate", '<untrusted source="x">\nPage: http://a/ “Shop”\n- heading "Hi"\n</untrusted>', "Shop"),
        ("browser_click", "Page: http://a/x\n[clicking e1: done.]", "http://a/x"),
        ("browser_download", "Page: http://a/ “A”\n[saved downloads/a.pdf (4 bytes)]", "saved downloads/a.pdf (4 bytes)"),
        ("browser_screenshot", "Page: http://a/ “A”\n[screenshot: 1280x800 png]", "screenshot: 1280x800 png"),
        ("browser_console", "- log: one\n- log: two", "2 lines"),
        ("look_up", "one line", "one line"),
        ("look_up", "two\nlines", "2 lines"),
        ("look_up", "", "done"),
    ],
)  # fmt: skip
def test_the_outcome_of_a_call_is_described_in_a_few_words(name, text, outcome):
    assert describe_outcome(ToolCall("c", name, {}), ToolResult("c", text)) == outcome


def test_an_image_and_a_generated_file_are_named():
    image = ToolResult("c", "[image/png, 70 bytes]", images=(Image("image/png", b""),))
    assert describe_outcome(ToolCall("c", "read_file", {}), image) == "image/png, 70 bytes"
    made = ToolResult("c", "Image saved: /x.png", files=("/x.png",))
    assert describe_outcome(ToolCall("c", "image_generate", {}), made) == "1 image"


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("failed", "failed"), ("denied", "denied"), ("cancelled", "stopped"), ("unknown", "result unknown")],
)
def test_a_call_without_success_says_so(outcome, word):
    assert describe_outcome(ToolCall("c", "terminal", {}), ToolResult("c", "x", outcome)) == word


@pytest.mark.parametrize("name", make_registry(FEATURES).tools())
def test_every_built_in_tool_has_a_name_for_people(name):
    call = ToolCall("c", name, {})
    assert is_builtin(call) and describe_tool(call).verb != name and not describe_activity(call).endswith(name)


def test_another_tool_is_named_while_it_runs():
    assert describe_activity(ToolCall("c", "look\nup", {})) == "running look up"


def test_the_output_of_a_command_has_no_status_lines():
    assert output_of(ToolResult("c", "a\nb\n[exit code 0]\n[p1 (x) ended after 3 s: exit code 1]")) == "a\nb"
    assert output_of(ToolResult("c", "(no output)\n[exit code 0]")) == ""
    assert output_of(ToolResult("c", "a\n[p1 is running in the background]")) == "a"
    assert count_lines("a\n\nb\n") == 2
