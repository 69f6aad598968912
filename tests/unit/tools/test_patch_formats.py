"""The `patch` tool in mode patch: several files, all or nothing, in both formats."""

import asyncio
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from alipes.agent.approval.assessment import assess_call
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from alipes.tools.files.patch import Patch, patched_paths
from tests.world.file_tools import RecordingContext


@pytest.fixture
def apply(tmp_path, call):
    tool = Patch(FileBoundary(Places(home=str(tmp_path / "home"), alipes_home=str(tmp_path / "home" / ".alipes"))))

    async def apply(patch, **more):
        return await tool.run({"mode": "patch", "patch": patch, **more}, call)

    return apply


FILES = {
    "src/a.py": "import os\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 2\n",
    "src/b.py": "x = 1\ny = 2\n",
    "old.txt": "bye\n",
}


@pytest.fixture
def tree(work):
    for name, text in FILES.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)

    def tree():
        return {str(path.relative_to(work)): path.read_text() for path in sorted(work.rglob("*")) if path.is_file()}

    return tree


PATCH = """\
*** Begin Patch
*** Update File: src/a.py
@@ def two():
-    return 2
+    return 22
*** Add File: new/c.py
+z = 3
+
+# end
*** Delete File: old.txt
*** Update File: src/b.py
*** Move to: lib/b.py
@@
 x = 1
-y = 2
+y = 3
*** End Patch
"""


async def test_a_patch_updates_adds_deletes_and_moves(apply, tree, call):
    assert (await apply(PATCH)).split("\n") == [
        "updated src/a.py (+1 -1, line 9)",
        "created new/c.py (+3 -0)",
        "deleted old.txt (+0 -1)",
        "moved src/b.py to lib/b.py (+1 -1)",
    ]
    assert tree() == {
        "src/a.py": FILES["src/a.py"].replace("return 2", "return 22"),
        "new/c.py": "z = 3\n\n# end\n",
        "lib/b.py": "x = 1\ny = 3\n",
    }
    assert call.shown[0].startswith("--- a/src/a.py\n+++ b/src/a.py\n@@ ")
    assert "--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye" in call.shown[0]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (
            PATCH.replace("-y = 2", "-y = 9"),
            "src/b.py: the hunk does not match the file. The most similar part:\n1: x = 1\n2: y = 2",
        ),
        (PATCH.replace("new/c.py", "src/b.py"), "src/b.py already exists"),
        (PATCH.replace("lib/b.py", "src/a.py"), "src/b.py cannot be moved: src/a.py already exists"),
        (PATCH.replace("old.txt", "gone.txt"), "gone.txt does not exist"),
        (PATCH.replace("new/c.py", "~/.alipes/.env"), "cannot be edited"),
        (PATCH.replace("*** End Patch", ""), r"no \*\*\* End Patch line"),
        (PATCH.replace("+# end", "# end"), "line 9 of the patch is '# end'; expected a line of the new file"),
        (PATCH.replace(" x = 1", "x = 1"), "line 14 of the patch is 'x = 1'; expected a line starting"),
        (PATCH.replace("*** Update File: src/a.py\n", ""), "line 2 of the patch is '@@ def two"),
        ("*** Begin Patch\n*** End Patch", r"the patch has no \*\*\* Update File"),
        ("*** Begin Patch\n*** Update File: src/a.py\n*** End Patch", "its hunks are missing"),
        ("*** Begin Patch\n*** Delete File: old.txt\n-bye\n*** End Patch", "nothing after"),
        ("*** Begin Patch\n*** Update File: src/b.py\n x = 1\n-y = 2\n+y = 2\n*** End Patch", "nothing to change"),
        ("make it better", "not a valid patch"),
    ],
)
async def test_a_patch_that_does_not_fit_as_a_whole_changes_nothing(apply, tree, broken, why):
    with pytest.raises(ToolError, match=why):
        await apply(broken)
    assert tree() == FILES


async def test_patch_in_a_code_fence_or_heredoc_is_accepted(apply, tree, work):
    body = "*** Update File: src/b.py\n@@\n-y = 2\n+y = {}\n"
    for n, (before, after) in enumerate(
        [
            ("```diff\n*** Begin Patch\n", "*** End Patch\n```\n"),
            ("apply_patch <<'EOF'\n*** Begin Patch\n", "*** End Patch\nEOF\n"),
            ("", ""),
            ("```\n", "```"),
            ("\r\n*** Begin Patch\r\n", "*** End Patch\r\n"),
        ]
    ):
        (work / "src/b.py").write_text("x = 1\ny = 2\n")
        await apply(before + body.format(n + 3) + after)
        assert (work / "src/b.py").read_text() == f"x = 1\ny = {n + 3}\n"


async def hunk(apply, work, text, body):
    """The text of a file after an update with this body."""
    (work / "f").write_text(text)
    await apply(f"*** Begin Patch\n*** Update File: f\n{body}*** End Patch")
    return (work / "f").read_text()


async def test_context_lines_are_kept_from_the_file(apply, work):
    assert await hunk(apply, work, "a  \nb\n\u2013 c\n", "@@\n a\n-b\n+B\n - c\n") == "a  \nB\n\u2013 c\n"


async def test_ambiguous_hunks_are_refused_with_the_places(apply, work):
    text = "def a():\n    go()\ndef b():\n    go()\n"
    with pytest.raises(ToolError, match="f: the hunk matches 2 places, at lines 2 and 4; add more context lines"):
        await hunk(apply, work, text, "@@\n-    go()\n+    stop()\n")
    assert await hunk(apply, work, text, "@@ def b():\n-    go()\n+    stop()\n") == text[:-5] + "stop()\n"


async def test_equal_hunks_are_resolved_by_their_order(apply, work):
    two = "@@\n-go()\n+one()\n@@\n-go()\n+two()\n"
    assert await hunk(apply, work, "go()\nx\ngo()\n", two) == "one()\nx\ntwo()\n"
    with pytest.raises(ToolError, match="hunk 1 of 2 matches 3 places"):
        await hunk(apply, work, "go()\nx\ngo()\ny\ngo()\n", two)
    between = "@@\n-a\n+A\n@@\n-go()\n+GO()\n@@\n-b\n+B\n"
    assert await hunk(apply, work, "go()\na\ngo()\nb\ngo()\n", between) == "go()\nA\nGO()\nB\ngo()\n"


async def test_unique_hunks_may_come_in_any_order(apply, work):
    assert await hunk(apply, work, "a\nb\nc\n", "@@\n-c\n+C\n@@\n-a\n+A\n") == "A\nb\nC\n"
    with pytest.raises(ToolError, match="hunk 1 of 2 and hunk 2 of 2 both change line 2"):
        await hunk(apply, work, "a\nb\nc\n", "@@\n a\n-b\n+B\n@@\n-b\n+BB\n c\n")


async def test_several_anchors_are_nested(apply, work):
    text = "class A:\n    def f(self):\n        pass\nclass B:\n    def f(self):\n        pass\n"
    body = "@@ class B:\n@@     def f(self):\n-        pass\n+        return\n"
    assert await hunk(apply, work, text, body) == text[:-5] + "return\n"


async def test_added_lines_go_after_their_anchor_or_to_the_end(apply, work):
    assert await hunk(apply, work, "a\nb\n", "@@ a\n+new\n") == "a\nnew\nb\n"
    assert await hunk(apply, work, "a\nb\n", "@@\n+new\n") == "a\nb\nnew\n"
    assert await hunk(apply, work, "a\nb", "@@\n+new\n") == "a\nb\nnew"
    assert await hunk(apply, work, "", "+new\n") == "new\n"
    with pytest.raises(ToolError, match="does not match the file"):
        await hunk(apply, work, "a\nb\n", "@@ not there at all\n+new\n")


async def test_end_of_file_marker_resolves_ambiguity(apply, work):
    body = "@@\n-x\n+y\n*** End of File\n"
    assert await hunk(apply, work, "x\nz\nx\n", body) == "x\nz\ny\n"


async def test_one_file_may_be_named_twice(apply, tree, work):
    await apply(
        "*** Begin Patch\n*** Update File: src/b.py\n-x = 1\n+x = 5\n"
        "*** Update File: ./src/../src/b.py\n-x = 5\n+x = 6\n"
        "*** Add File: n\n+one\n*** Update File: n\n-one\n+two\n*** End Patch"
    )
    assert (work / "src/b.py").read_text() == "x = 6\ny = 2\n"
    assert (work / "n").read_text() == "two\n"


async def test_links_are_neither_moved_nor_deleted(apply, tree, work):
    (work / "link").symlink_to("old.txt")
    for body in ("*** Delete File: link\n", "*** Update File: link\n*** Move to: other\n-bye\n+hi\n"):
        with pytest.raises(ToolError, match=r"link is a link to .*old.txt; use the terminal"):
            await apply(f"*** Begin Patch\n{body}*** End Patch")


async def test_moved_file_keeps_its_mode_and_format(apply, work):
    (work / "f").write_bytes(b"\xef\xbb\xbfa\r\n")
    (work / "f").chmod(0o751)
    assert await apply("*** Begin Patch\n*** Update File: f\n*** Move to: sub/g\n*** End Patch") == (
        "moved f to sub/g (+0 -0)"
    )
    assert (work / "sub/g").read_bytes() == b"\xef\xbb\xbfa\r\n"
    assert (work / "sub/g").stat().st_mode & 0o777 == 0o751
    assert not (work / "f").exists()


# -- unified diffs -------------------------------------------------------------------------------------------


UNIFIED = (
    """\
diff --git a/src/a.py b/src/a.py
index 111..222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,5 +1,5 @@
-import os
+import sys


 def one():
     return 1
--- /dev/null
+++ b/new.txt
@@ -0,0 +1,2 @@
+one
+two
\\ No newline at end of file
--- a/old.txt\t2024-01-01 00:00:00
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/src/b.py b/b2.py
similarity index 80%
rename from src/b.py
rename to b2.py
--- a/src/b.py
+++ b/b2.py
@@ -7,2 +8,2 @@ some section
 x = 1
-y = 2
+y = 3
"""
    + "-- \n2.39.5\n"
)


async def test_a_unified_diff_is_applied_even_with_wrong_line_numbers(apply, tree):
    await apply(UNIFIED)
    assert tree() == {
        "src/a.py": FILES["src/a.py"].replace("os", "sys"),
        "new.txt": "one\ntwo",
        "b2.py": "x = 1\ny = 3\n",
    }


async def test_line_number_only_resolves_ambiguity(apply, work):
    head = "--- a/f\n+++ b/f\n"
    (work / "f").write_text("x\ny\nx\n")
    await apply(head + "@@ -3 +3 @@\n-x\n+z\n")
    assert (work / "f").read_text() == "x\ny\nz\n"
    (work / "f").write_text("x\ny\nx\n")
    with pytest.raises(ToolError, match="matches 2 places, at lines 1 and 3"):
        await apply(head + "@@ -2 +2 @@\n-x\n+z\n")
    await apply(head + "@@ -1,0 +2,1 @@\n+between\n")
    assert (work / "f").read_text() == "x\nbetween\ny\nx\n"


async def test_hunks_without_a_header_apply_to_path(apply, tree, work):
    await apply("@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 4\n", path="src/b.py")
    assert (work / "src/b.py").read_text() == "x = 1\ny = 4\n"
    await apply("@@\n-y = 4\n+y = 5", path="src/b.py")
    assert (work / "src/b.py").read_text() == "x = 1\ny = 5\n"


async def test_removed_line_that_looks_like_a_header_is_not_one(apply, work):
    (work / "q.sql").write_text("-- one\nselect 1;\n-- two\nselect 2;\n")
    await apply(
        "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n--- one\n+++ one\n select 1;\n@@ -3,2 +3,1 @@\n--- two\n select 2;\n"
    )
    assert (work / "q.sql").read_text() == "++ one\nselect 1;\nselect 2;\n"


async def test_a_rename_alone_is_a_move(apply, tree):
    await apply("diff --git a/old.txt b/x/y.txt\nsimilarity index 100%\nrename from old.txt\nrename to x/y.txt\n")
    assert tree()["x/y.txt"] == "bye\n" and "old.txt" not in tree()


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("--- a/x\n+++ b/x\nBinary files a/x and b/x differ\n", "not a valid patch|binary"),
        ("diff --git a/x b/x\nGIT binary patch\n--- a/x\n+++ b/x\n@@\n", "binary"),
        ("--- a/src/b.py\n+++ b/src/b.py\n@@ -1,2 +1,2 @@\n x = 1\noops\n", "line 5 of the patch is 'oops'"),
        ("--- a/src/b.py\n+++ b/src/b.py\n", "its hunks are missing"),
    ],
)
async def test_diffs_that_cannot_be_applied_say_why(apply, tree, patch, why):
    with pytest.raises(ToolError, match=why):
        await apply(patch)
    assert tree() == FILES


def test_patched_paths_lists_all_paths_of_a_patch():
    assert patched_paths({"mode": "patch", "patch": PATCH}) == [
        "src/a.py",
        "new/c.py",
        "old.txt",
        "src/b.py",
        "lib/b.py",
    ]
    assert patched_paths({"mode": "patch", "patch": UNIFIED}) == ["src/a.py", "new.txt", "old.txt", "src/b.py", "b2.py"]
    assert patched_paths({"mode": "replace", "path": "x"}) == ["x"]
    assert patched_paths({"mode": "patch", "patch": "nonsense"}) == patched_paths({"mode": "replace"}) == []


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (ToolCall("1", "write_file", {"path": "~/.bashrc", "content": ""}), "startup"),
        (ToolCall("1", "write_file", {"path": "/etc/cron.d/x", "content": ""}), "system"),
        (ToolCall("1", "write_file", {"path": "up/../../home/.bashrc", "content": ""}), "startup"),
        (ToolCall("1", "patch", {"mode": "replace", "path": "~/.ssh/authorized_keys"}), "startup"),
        (ToolCall("1", "patch", {"mode": "patch", "patch": PATCH.replace("lib/b.py", "~/.profile")}), "startup"),
        (ToolCall("1", "patch", {"mode": "patch", "patch": PATCH.replace("old.txt", "/usr/bin/env")}), "system"),
        (ToolCall("1", "patch", {"mode": "patch", "patch": PATCH}), ""),
        (ToolCall("1", "write_file", {"path": "src/new.py", "content": ""}), ""),
        (ToolCall("1", "write_file", {"path": "half\ud800", "content": ""}), ""),
    ],
)
def test_file_writes_are_judged_like_shell_writes(tmp_path, work, call, rule):
    places = Places(home=str(tmp_path / "home"), alipes_home=str(tmp_path / "home" / ".alipes"), scratch=())
    (work / "up").mkdir()
    risk = assess_call(call, str(work), places)
    assert (risk.rule if risk else "") == rule


@settings(max_examples=25, deadline=None)
@given(some.lists(some.text("ab \t\u00e9", max_size=3), max_size=12), some.data())
def test_output_of_diff_can_be_applied(tmp_path_factory, lines, data):
    """The output of `diff -u` turns one text into the other."""
    folder = tmp_path_factory.mktemp("diff")
    new = [*lines]
    for _ in range(data.draw(some.integers(1, 4))):
        at = data.draw(some.integers(0, len(new)))
        new[at : at + data.draw(some.integers(0, 2))] = data.draw(some.lists(some.sampled_from("xyz"), max_size=2))
    before = "\n".join(lines) + data.draw(some.sampled_from(["", "\n"]))
    after = "\n".join(new) + data.draw(some.sampled_from(["", "\n"]))
    (folder / "f").write_text(before)
    (folder / "g").write_text(after)
    seen = subprocess.run(
        ["diff", "-u", "--label", "a/f", "--label", "b/f", "f", "g"], cwd=folder, capture_output=True, text=True
    ).stdout
    if not seen:
        return
    tool = Patch(FileBoundary(Places(home=str(folder), alipes_home=str(folder / "own"))))
    try:
        asyncio.run(tool.run({"mode": "patch", "patch": seen}, RecordingContext(folder)))
    except ToolError as error:
        assert "places" in str(error)
        return
    assert (folder / "f").read_text() == after
