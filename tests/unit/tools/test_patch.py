"""The `patch` tool in mode replace, on real files."""

import asyncio
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from alipes.agent.tool_calls import validate_args
from alipes.kernel.errors import ToolError
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from alipes.tools.files.fuzzy_match import find_lines
from alipes.tools.files.hunks import replace_text
from alipes.tools.files.patch import Patch
from alipes.tools.files.text_file import MAX_TEXT_BYTES


@pytest.fixture
def edit(tmp_path, call):
    tool = Patch(FileBoundary(Places(home=str(tmp_path / "home"), alipes_home=str(tmp_path / "home" / ".alipes"))))

    async def edit(path, old, new, **more):
        args = {"mode": "replace", "path": str(path), "old_string": old, "new_string": new, **more}
        assert not validate_args(tool.spec.schema, args)
        return await tool.run(args, call)

    return edit


async def test_old_string_is_replaced(edit, work, call):
    (work / "f.py").write_text("a = 1\nb = 2\nc = 3\n")
    assert await edit("f.py", "b = 2", "b = 20\nbb = 2") == "updated f.py (+2 -1, line 2)"
    assert (work / "f.py").read_text() == "a = 1\nb = 20\nbb = 2\nc = 3\n"
    assert call.shown == ["--- a/f.py\n+++ b/f.py\n@@ -1,3 +1,4 @@\n a = 1\n-b = 2\n+b = 20\n+bb = 2\n c = 3"]


async def test_repeated_old_string_is_refused(edit, work):
    (work / "f").write_text("x\ny\nx\nz\nx\n")
    with pytest.raises(ToolError, match="f: old_string occurs 3 times, at lines 1, 3 and 5; add surrounding lines"):
        await edit("f", "x", "w")
    assert (work / "f").read_text() == "x\ny\nx\nz\nx\n"
    assert await edit("f", "x", "w", replace_all=True) == "updated f (+3 -3, line 1); 3 replacements"
    assert (work / "f").read_text() == "w\ny\nw\nz\nw\n"


def test_overlapping_occurrences_count_as_two():
    with pytest.raises(ToolError, match="2 times, at lines 1 and 1"):
        replace_text("aaa", "aa", "b")


def test_many_places_are_counted_not_listed():
    with pytest.raises(ToolError, match="50,000 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 49,990 more"):
        replace_text("x\n" * 50_000, "x", "y")


@pytest.mark.parametrize(
    ("text", "old", "new", "after", "regardless_of"),
    [
        ("a  \nb\t\nc\n", "a\nb\nc\n", "a\nB\nc\n", "a  \nB\nc\n", "trailing whitespace"),
        ("a\nb\n", "a \nb", "a \nc", "a\nc\n", "trailing whitespace"),
        ("\tif x:\n\t\tgo()\n", "if x:\n\tgo()\n", "if x:\n\tstop()\n", "\tif x:\n\t\tstop()\n", "indentation"),
        (
            "class A:\n    def f(self):\n        return 1\n",
            "def f(self):\n    return 1",
            "def f(self):\n    if self:\n        return 2\n    return 1",
            "class A:\n    def f(self):\n        if self:\n            return 2\n        return 1\n",
            "indentation",
        ),
        (
            "def f():\n  if x:\n    return 1\n",
            "    if x:\n      return 1",
            "    if y:\n      return 2\n    return 3",
            "def f():\n  if y:\n    return 2\n  return 3\n",
            "indentation",
        ),
        (
            "\tif x:\n\t\treturn 1\n",
            "    if x:\n        return 1\n",
            "    if x:\n        for y in x:\n            return 2\n",
            "\tif x:\n\t\tfor y in x:\n\t\t\treturn 2\n",
            "indentation",
        ),
        (
            "    if x:\n        return 1\n",
            "\tif x:\n\t\treturn 1\n",
            "\tif x:\n\t\tif y:\n\t\t\treturn 2\n",
            "    if x:\n        if y:\n            return 2\n",
            "indentation",
        ),
        (
            "print(\u201chello\u201d)\nx = 1\n",
            'print("hello")\nx = 1\n',
            'print("hello")\nx = 2\n',
            "print(\u201chello\u201d)\nx = 2\n",
            "look-alike characters",
        ),
        (
            "say \u201chello\u201d \u2013 and go\n",
            '"hello" - and go',
            '"hello" - and stay',
            "say \u201chello\u201d \u2013 and stay\n",
            "look-alike characters",
        ),
        ("a\u00a0b\nc\n", "a b\nc", "a b\nd", "a\u00a0b\nd\n", "look-alike characters"),
        ("wait\u2026\nok\n", "wait...\nok", "wait...\nno", "wait\u2026\nno\n", "look-alike characters"),
        ("cafe\u0301\nx\n", "caf\u00e9\nx", "caf\u00e9\ny", "cafe\u0301\ny\n", "look-alike characters"),
        ("a\nb\n", "a\\nb", "a\\nc", "a\nc\n", "escaping"),
        ('say("a\\n")\n', 'say(\\"a\\\\n\\")', 'say(\\"b\\\\n\\")', 'say("b\\n")\n', "escaping"),
        ('say("a\\n")\n', 'say(\\"a\\n\\")', 'say(\\"b\\n\\")', 'say("b\\n")\n', "escaping"),
        ("\tx\n", "\\tx", "\\ty", "\ty\n", "escaping"),
        ("x\nlast", "last\n", "end\n", "x\nend", ""),
        ("a\nb\n", "\n\na\n", "\n\nA\n", "A\nb\n", ""),
    ],
)
def test_small_differences_are_tolerated(text, old, new, after, regardless_of):
    done = replace_text(text, old, new)
    assert (done.text, done.ignored) == (after, regardless_of)


async def test_ignored_difference_is_reported(edit, work):
    (work / "f").write_text("a \nb\n")
    assert (await edit("f", "a\nb", "a\nc")).endswith("; matched ignoring trailing whitespace")


def test_exact_match_wins_over_loose_ones():
    assert replace_text("  x = 1\nx = 1 \nx = 1\ny\n", "x = 1\ny", "z\ny").text == "  x = 1\nx = 1 \nz\ny\n"
    assert replace_text("x = 1  \n    x = 1\n", "x = 1\n", "y = 1\n").text == "x = 1  \n    y = 1\n"


def test_two_loose_matches_are_ambiguous():
    with pytest.raises(ToolError, match="2 times, at lines 1 and 3"):
        replace_text("  go()\nx\n    go()\n", "\tgo()\n", "\tstop()\n")
    assert replace_text("  go()\nx\n    go()\n", "\tgo()\n", "\tstop()\n", everywhere=True).text == (
        "  stop()\nx\n    stop()\n"
    )


def test_code_characters_are_not_look_alikes():
    with pytest.raises(ToolError, match="was not found"):
        replace_text("x = `a`\n", "x = 'a'", "x = 'b'")


def test_inconsistent_indentation_is_no_match():
    with pytest.raises(ToolError, match="was not found"):
        replace_text("a\n  b\nc\n", "  a\n  b\n  c\n", "x\n")


def test_missing_old_string_shows_the_nearest_place_and_differences():
    text = "import os\n\n\ndef total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n"
    with pytest.raises(ToolError) as caught:
        replace_text(text, "def total(items):\n    result = 1\n    for item in items:\n", "x")
    assert str(caught.value) == (
        "old_string was not found. The most similar part:\n"
        "4: def total(items):\n5:     result = 0\n6:     for item in items:\n"
        "Differences:\nline 5 is not '    result = 1'"
    )


@pytest.mark.parametrize(
    ("text", "old", "why"),
    [
        ("alpha\nbeta gamma delta\n", "beta gamme delta", "2: beta gamma delta\nDifferences:\nline 2 is not"),
        ("alpha\n", "something else entirely", "Nothing similar is in the file"),
        ("\n\n", "anything", "The file is empty"),
        ("a\n  b\nc\n", "a\n b\nd\n", "line 2: whitespace only: '  b', not ' b'"),
        ("a \u2013 b\nc\n", "a - b\nd", r"look-alike characters only \(U\+2013\)"),
        ("new line here\n", "gone", "new_string is already at line 1; was this edit already made?"),
        ("".join(f"l{n}\n" for n in range(99)), "".join(f"l{n}\n" for n in range(20)) + "x", "12: l11\n... to line 21"),
    ],
)
def test_nearest_place_is_described_briefly(text, old, why):
    with pytest.raises(ToolError, match=why) as caught:
        replace_text(text, old, "new line here")
    assert len(str(caught.value)) < 1500


def test_search_for_the_nearest_place_takes_bounded_time():
    with pytest.raises(ToolError):
        replace_text(
            "some line of a large file, much like the others\n" * 100_000, "some line that is not in it, not", "x"
        )
    with pytest.raises(ToolError):
        replace_text("a\n" * 300_000, "a\n" * 1000 + "b", "y")


async def test_invalid_edits_are_refused(edit, work):
    (work / "f").write_text("text\n")
    for old, new, why in (("", "x", "old_string is empty"), ("text", "text", "are identical")):
        with pytest.raises(ToolError, match=why):
            await edit("f", old, new)
    (work / "g").write_text("a b\n")
    with pytest.raises(ToolError, match=r"h does not exist. Did you mean f or g"):
        await edit("h", "a", "b")
    with pytest.raises(ToolError, match=r"The directory .* does not exist"):
        await edit("no/such/f", "a", "b")


async def test_missing_arguments_are_named(tmp_path, call):
    tool = Patch(FileBoundary(Places(home=str(tmp_path), alipes_home=str(tmp_path / "own"))))
    with pytest.raises(ToolError, match="mode replace needs path and new_string"):
        await tool.run({"mode": "replace", "old_string": "x"}, call)
    with pytest.raises(ToolError, match="mode patch needs the parameter patch"):
        await tool.run({"mode": "patch", "path": "x"}, call)
    assert validate_args(tool.spec.schema, {"path": "x"}) and validate_args(tool.spec.schema, {"mode": "other"})


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\n", "a\nb", "a\nc\nd", b"a\r\nc\r\nd\r\n"),
        (b"a\nb\n", "a\r\nb\r\n", "a\r\nc\r\n", b"a\nc\n"),
        (b"a\r\nb\nc\r\n", "a\nb\n", "x\nb\n", b"x\r\nb\nc\r\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        ("\ufeffa\r\nb\r\n".encode("utf-16-le"), "a\nb", "a\n\u00e9", "\ufeffa\r\n\u00e9\r\n".encode("utf-16-le")),
        (
            "d\u00e9j\u00e0 vu, vu\n".encode("latin-1"),
            "d\u00e9j\u00e0",
            "\u00e7a",
            "\u00e7a vu, vu\n".encode("latin-1"),
        ),
        (b"a\x0cb\x1cc\n", "b", "x", b"a\x0cx\x1cc\n"),
    ],
)
async def test_line_endings_and_encoding_are_kept(edit, work, before, old, new, after):
    (work / "f").write_bytes(before)
    await edit("f", old, new)
    assert (work / "f").read_bytes() == after


async def test_text_the_encoding_cannot_represent_is_refused(edit, work):
    (work / "f").write_bytes("d\u00e9j\u00e0 vu, vu\n".encode("latin-1"))
    with pytest.raises(ToolError, match="encoded as latin-1 and the new text contains characters it cannot"):
        await edit("f", "vu,", "\u65e5")
    (work / "g").write_text("x\n")
    with pytest.raises(ToolError, match="lone surrogate"):
        await edit("g", "x", "\udc80")


async def test_binary_files_are_refused(edit, work, tmp_path):
    (work / "b").write_bytes(b"\x7fELF\0\1x")
    os.mkfifo(work / "pipe")
    with (work / "huge").open("wb") as file:
        file.truncate(MAX_TEXT_BYTES + 1)
    (tmp_path / "home/.alipes/.env").write_text("KEY=x")
    (work / "env").symlink_to(tmp_path / "home/.alipes/.env")
    for path, why in (
        ("b", "is a program or library"),
        ("pipe", "is a pipe"),
        (".", "is a directory"),
        ("huge", "use the terminal"),
        ("env", "cannot be edited"),
        ("~/.alipes/alipes.db", "cannot be edited"),
    ):
        with pytest.raises(ToolError, match=why):
            await edit(path, "x", "y")


async def test_a_link_is_followed_and_named(edit, work, tmp_path):
    (tmp_path / "real").write_text("x\n")
    (tmp_path / "real").chmod(0o755)
    (work / "link").symlink_to("../real")
    assert await edit("link", "x", "y") == f"updated link (+1 -1, line 1); through a link to {tmp_path}/real"
    assert (work / "link").is_symlink() and (tmp_path / "real").read_text() == "y\n"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o755


async def test_secrets_in_the_file_are_masked_in_errors_and_diffs(tmp_path, work, call):
    (work / "f").write_text("key = sk-1\n")
    places = Places(home=str(tmp_path / "home"), alipes_home=str(tmp_path / "own"))
    tool = Patch(FileBoundary(places), mask=lambda text: text.replace("sk-1", "***"))
    with pytest.raises(ToolError) as caught:
        await tool.run({"mode": "replace", "path": "f", "old_string": "key = sk-2", "new_string": "x"}, call)
    assert "sk-1" not in str(caught.value) and "***" in str(caught.value)
    await tool.run({"mode": "replace", "path": "f", "old_string": "key", "new_string": "Key"}, call)
    assert "+Key = ***" in call.shown[0]


async def test_cancelled_edit_changes_nothing_or_everything(edit, work):
    (work / "f").write_text("old\n" + "x\n" * 200_000)
    for _ in range(5):
        before = (work / "f").read_text()
        old, new = ("old", "new") if before.startswith("old") else ("new", "old")
        task = asyncio.create_task(edit("f", old, new))
        await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.wait([task])
        assert (work / "f").read_text()[:4] in ("old\n", "new\n")
    while any(path.name.startswith(".alipes-") for path in work.iterdir()):
        await asyncio.sleep(0.01)  # a cancelled edit removes its temporary files


@settings(max_examples=150, deadline=None)
@given(some.data())
def test_replacement_equals_str_replace_or_is_refused(data):
    lines = some.sampled_from(["a", "b", "  a", "\tb", "", "a ", "c d"])
    text = "\n".join(data.draw(some.lists(lines, max_size=8)))
    old = "\n".join(data.draw(some.lists(lines, min_size=1, max_size=3)))
    new = "\n".join(data.draw(some.lists(lines, max_size=3)))
    try:
        done = replace_text(text, old, new)
    except ToolError:
        return
    if old in text:
        assert text.count(old) == 1 and done.text == text.replace(old, new)
    else:
        assert done.ignored or old.endswith("\n") or old.strip("\n") != old


@settings(max_examples=150, deadline=None)
@given(some.lists(some.sampled_from(["a", " a", "b", "b ", "\u2013", "-", ""]), max_size=9), some.integers(1, 4))
def test_lines_are_found_at_any_position(lines, count):
    for start in range(len(lines) - count + 1):
        wanted = lines[start : start + count]
        found, overlooked = find_lines(lines, wanted)
        assert start in [each.start for each in found] and not overlooked
