"""The `write_file` tool and atomic writes, on real files."""

import asyncio
import os
import shutil
import socket
import stat
import threading

import pytest

from alipes.kernel.errors import ToolError
from alipes.tools.boundary import FileBoundary, UnjudgedCall
from alipes.tools.common import CommitGate, WorkCancelled, run_in_thread
from alipes.tools.files import text_file
from alipes.tools.files.text_file import MAX_TEXT_BYTES, diff_texts, open_target
from alipes.tools.files.write_file import FileChange, WriteFile, write_files


@pytest.fixture
def write(places, call):
    tool = WriteFile(FileBoundary(places))

    async def write(path, content):
        return await tool.run({"path": str(path), "content": content}, call)

    return write


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if path.name.startswith(".alipes-")]


async def test_new_file_is_created_with_its_folders(write, work, call):
    assert await write("a/b/c.txt", "one\ntwo\n") == "created a/b/c.txt (8 bytes, +2 -0 lines)"
    assert (work / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert call.shown == ["--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two"]
    assert stat.S_IMODE((work / "a/b/c.txt").stat().st_mode) == 0o666 & ~_umask()
    assert leftovers(work) == []


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_update_reports_the_change(write, work, call):
    (work / "f").write_text("".join(f"line {n}\n" for n in range(20)))
    text = (work / "f").read_text().replace("line 9\n", "line nine\nand more\n")
    assert await write("f", text) == f"updated f ({len(text)} bytes, +2 -1 lines)"
    assert (work / "f").read_text() == text
    assert call.shown[0].startswith("--- a/f\n+++ b/f\n@@ -7,7 +7,8 @@\n line 6\n line 7\n line 8\n-line 9\n+line n")


async def test_a_diff_names_the_whole_path_of_a_file_outside_the_project(write, work, call, tmp_path):
    path = tmp_path / "elsewhere.txt"
    path.write_text("one\n")
    await write(path, "two\n")
    assert call.shown == [f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-one\n+two"]


async def test_same_content_writes_nothing(write, work, call):
    (work / "f").write_text("same\n")
    before = (work / "f").stat()
    assert await write("f", "same\n") == "unchanged f (5 bytes)"
    assert (work / "f").stat() == before
    assert call.shown == []


async def test_the_mode_of_a_file_is_kept(write, work):
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o4751)
    await write("run.sh", "#!/bin/sh\ntrue\n")
    assert stat.S_IMODE((work / "run.sh").stat().st_mode) == 0o4751


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
async def test_the_owner_of_a_file_is_kept(write, work):
    (work / "f").write_text("theirs")
    os.chown(work / "f", 12345, 12345)
    await write("f", "ours?")
    assert ((work / "f").stat().st_uid, (work / "f").stat().st_gid) == (12345, 12345)


async def test_a_reader_with_the_file_open_still_sees_the_old_bytes(write, work):
    (work / "f").write_text("old")
    with (work / "f").open() as reader:
        await write("f", "new")
        assert reader.read() == "old"
    assert (work / "f").read_text() == "new"


async def test_link_is_followed_and_reported(write, work, tmp_path):
    (tmp_path / "real.txt").write_text("old\n")
    (work / "link").symlink_to(tmp_path / "real.txt")
    seen = await write("link", "new\n")
    assert seen == f"updated link (4 bytes, +1 -1 lines); through a link to {tmp_path}/real.txt"
    assert (work / "link").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new\n"


async def test_dangling_link_creates_its_target(write, work):
    (work / "link").symlink_to("sub/new.txt")
    assert "created link" in await write("link", "x")
    assert (work / "sub/new.txt").read_text() == "x"


async def test_other_hard_links_keep_the_old_content(write, work):
    (work / "f").write_text("old")
    os.link(work / "f", work / "g")
    assert (await write("f", "new")).endswith("its other hard links keep the old content")
    assert (work / "g").read_text() == "old"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nc\r\n", b"a\r\nc\r\n"),
        (b"a\r\nb\n", "a\nc\n", b"a\nc\n"),
        (b"a\nb\n", "a\r\nb\r\n", b"a\r\nb\r\n"),
        (b"\xef\xbb\xbfold\n", "n\u00e9w\n", b"\xef\xbb\xbfn\xc3\xa9w\n"),
        ("\ufeffold\r\n".encode("utf-16-le"), "neu\n", "\ufeffneu\r\n".encode("utf-16-le")),
        ("\ufeffold\n".encode("utf-16-be"), "neu\n", "\ufeffneu\n".encode("utf-16-be")),
        ("d\u00e9j\u00e0 vu\n".encode("latin-1"), "voil\u00e0\n", "voil\u00e0\n".encode("latin-1")),
        ("d\u00e9j\u00e0 vu\n".encode("latin-1"), "\u65e5\u672c\n", "\u65e5\u672c\n".encode()),
        (b"", "x\n", b"x\n"),
        (b"\x7fELF\0\0\1", "text", b"text"),
    ],
)
async def test_encoding_and_line_endings_are_kept(write, work, before, content, after):
    (work / "f").write_bytes(before)
    await write("f", content)
    assert (work / "f").read_bytes() == after


async def test_kept_format_is_reported(write, work):
    (work / "f").write_bytes(b"\xef\xbb\xbfa\r\n")
    assert (await write("f", "b\n")).endswith("; UTF-8 with BOM kept; CRLF kept")
    (work / "g").write_bytes("d\u00e9j\u00e0 vu, d\u00e9j\u00e0 vu".encode("latin-1"))
    assert (await write("g", "\u65e5")).endswith("now UTF-8, was latin-1")
    (work / "h").write_bytes(b"\0\1\2")
    assert (await write("h", "x")).endswith("replaced a file that was not readable text")


async def test_special_files_are_refused(write, work, tmp_path):
    (work / "folder").mkdir()
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "socket"))
    (work / "null").symlink_to("/dev/null")
    (work / "loop").symlink_to("loop")
    (work / "file").write_text("x")
    for path, why in (
        ("folder", "is a directory"),
        ("pipe", "is a pipe"),
        ("socket", "is a socket"),
        ("/dev/null", "is a device"),
        ("null", "is a device"),
        ("loop", "symbolic links"),
        ("file/below", "Not a directory"),
        ("", "does not name a file"),
        ("new/", "does not name a file"),
        ("nul\0byte", "null byte"),
        ("half\ud800", "cannot be opened"),
        ("n" * 300, "File name too long"),
        ("/proc/sys/kernel/nonsense", "cannot be written"),
    ):
        with pytest.raises(ToolError, match=why):
            await write(path, "content")
    assert (work / "file").read_text() == "x"
    assert leftovers(tmp_path) == []


async def test_lone_surrogate_is_refused(write, work):
    for before in (None, b"x", "\ufeffx".encode("utf-16-le")):
        if before is not None:
            (work / "f").write_bytes(before)
        with pytest.raises(ToolError, match="lone surrogate"):
            await write("f", "a\ud800b")
    assert leftovers(work) == []


async def test_our_own_files_cannot_be_written_under_any_name(write, work, places, tmp_path):
    own = tmp_path / "home" / ".alipes"
    (own / ".env").write_text("KEY=1")
    (work / "link").symlink_to(own / ".env")
    os.link(own / ".env", work / "hard")
    (work / "folder").symlink_to(own)
    (tmp_path / "home" / "plain").mkdir()
    for path in (
        own / ".env",
        "~/.alipes/.env",
        "~/plain/../.alipes/alipes.db",
        own / "run" / "new.sock",
        "link",
        "hard",
        "folder/.env",
        "folder/alipes.db-wal",
    ):
        with pytest.raises(ToolError, match="cannot be edited"):
            await write(path, "KEY=2")
    assert (own / ".env").read_text() == "KEY=1"
    assert os.listdir(own / "run") == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
async def test_unwritable_file_is_explained(write, work):
    (work / "closed").mkdir(mode=0o500)
    with pytest.raises(ToolError, match=r"closed/f cannot be written: Permission denied. Nothing was changed"):
        await write("closed/f", "x")


async def test_undecodable_names_can_be_written(write, work):
    await write(os.fsdecode(b"caf\xe9\n.txt"), "x")
    assert os.listdir(os.fsencode(work)) == [b"caf\xe9\n.txt"]


async def test_secrets_are_masked_in_what_is_shown(places, work, call):
    tool = WriteFile(FileBoundary(places), mask=lambda text: text.replace("sk-1", "***"))
    await tool.run({"path": "f", "content": "key = sk-1\n"}, call)
    assert (work / "f").read_text() == "key = sk-1\n"
    assert "+key = ***" in call.shown[0]


async def test_a_huge_file_is_replaced_without_being_compared(write, work):
    with (work / "f").open("wb") as file:
        file.truncate(MAX_TEXT_BYTES + 1)
    assert (await write("f", "small")).endswith("replaced 10,485,761 bytes")
    assert (work / "f").read_text() == "small"


# -- a stop, a failure, a race -------------------------------------------------------------------------------


async def test_stop_before_the_gate_cancels_the_work():
    reached, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work(gate: CommitGate):
        try:
            reached.set()
            go.wait(5)
            gate.enter()
            pytest.fail("the gate was closed")
        finally:
            ended.set()

    task = asyncio.create_task(run_in_thread(work))
    await asyncio.to_thread(reached.wait, 5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    go.set()
    assert await asyncio.to_thread(ended.wait, 5)


async def test_stop_after_the_gate_waits_for_the_work():
    reached, go, done = threading.Event(), threading.Event(), []

    def work(gate: CommitGate):
        gate.enter()
        reached.set()
        go.wait(5)
        done.append(True)

    task = asyncio.create_task(run_in_thread(work))
    await asyncio.to_thread(reached.wait, 5)
    for _ in range(2):  # a second cancellation changes nothing
        task.cancel()
        await asyncio.wait([task], timeout=0.02)
        assert not task.done()
    go.set()
    await asyncio.wait([task])
    assert task.cancelled() and done == [True]


async def test_error_in_the_work_is_raised_to_the_caller():
    def work(gate: CommitGate):
        raise ToolError("no")

    with pytest.raises(ToolError, match="no"):
        await run_in_thread(work)


def change(places, work, name, content):
    return FileChange(open_target(FileBoundary(places), name, UnjudgedCall(str(work))), content)


def test_cancelled_write_leaves_nothing(places, work):
    gate = CommitGate()
    assert gate.close()
    (work / "f").write_text("old")
    with pytest.raises(WorkCancelled):
        write_files([change(places, work, "f", b"new"), change(places, work, "new/sub/g", b"new")], gate)
    assert sorted(path.name for path in work.rglob("*")) == ["f"]
    assert (work / "f").read_text() == "old"


def test_when_one_rename_fails_the_others_are_undone(places, work):
    (work / "a").write_text("old a")
    (work / "a").chmod(0o640)
    (work / "gone").write_text("old gone")
    (work / "d").mkdir()
    before = (work / "a").stat()

    class Late(CommitGate):
        """Another process removes the folder of the last file at the last moment."""

        def enter(self):
            super().enter()
            shutil.rmtree(work / "d")

    changes = [
        change(places, work, "a", b"new a"),
        change(places, work, "new/b", b"new b"),
        change(places, work, "gone", None),
        change(places, work, "d/last", b"x"),
    ]
    with pytest.raises(ToolError, match=r"d/last cannot be written: No such file.*Nothing was changed"):
        write_files(changes, Late())
    assert sorted(path.name for path in work.iterdir()) == ["a", "gone"]
    assert (work / "a").read_text() == "old a" and (work / "gone").read_text() == "old gone"
    assert (work / "a").stat().st_ino == before.st_ino and (work / "a").stat().st_mode == before.st_mode


def test_file_created_meanwhile_is_not_overwritten(places, work):
    changes = [change(places, work, "a", b"ours"), change(places, work, "b", b"ours")]
    (work / "b").symlink_to("nowhere")
    with pytest.raises(ToolError, match="changed on disk"):
        write_files(changes, CommitGate())
    assert sorted(path.name for path in work.iterdir()) == ["b"]


def test_file_changed_meanwhile_is_not_overwritten(places, work):
    (work / "f").write_text("old")
    target = open_target(FileBoundary(places), "f", UnjudgedCall(str(work)))
    (work / "f").write_text("theirs, longer")
    with pytest.raises(ToolError, match="changed on disk"):
        write_files([FileChange(target, b"ours")], CommitGate())
    assert (work / "f").read_text() == "theirs, longer"
    assert leftovers(work) == []


async def test_concurrent_writers_leave_one_complete_text(places, work, call):
    tool = WriteFile(FileBoundary(places))
    texts = [f"{n}\n" * 5000 for n in range(8)]

    async def write(text):
        try:
            await tool.run({"path": "f", "content": text}, call)
        except ToolError as error:
            assert "changed on disk" in str(error)

    async with asyncio.TaskGroup() as group:
        for text in texts:
            group.create_task(write(text))
    assert (work / "f").read_text() in texts
    assert leftovers(work) == []


# -- the diff ------------------------------------------------------------------------------------------------


def diff(old, new):
    return diff_texts(old, new, before="f", after="f")


def test_diff_counts_lines_and_gives_the_first_change():
    seen = diff("a\nb\nc\n", "a\nB\nc\nd\n")
    assert (seen.added, seen.removed, seen.line, seen.summary) == (2, 1, 2, "+2 -1")
    assert seen.text == "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d"
    assert diff("same", "same") == text_file.FileDiff(0, 0, 0, "")


def test_distant_changes_are_separate_hunks():
    old = [f"{n}\n" for n in range(40)]
    new = [*old]
    new[5], new[30] = "five\n", "thirty\n"
    text = diff("".join(old), "".join(new)).text
    assert [line for line in text.split("\n") if line.startswith("@@")] == ["@@ -3,7 +3,7 @@", "@@ -28,7 +28,7 @@"]


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        ("a", "a\n", ["@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+a"]),
        ("", "a\n", ["@@ -0,0 +1 @@", "+a"]),
        ("a\n", "", ["@@ -1 +0,0 @@", "-a"]),
        ("a\fb\n", "a\fc\n", ["@@ -1 +1 @@", "-a\fb", "+a\fc"]),
    ],
)
def test_changes_at_the_edges_are_in_the_diff(old, new, rows):
    assert diff(old, new).text.split("\n")[2:] == rows


def test_diff_is_bounded_in_time_and_size():
    seen = diff("a\nb\n" * 200_000, "b\na\n" * 200_000 + "c\n" * 9)
    assert seen.text.count("\n") <= text_file.MAX_DIFF_LINES and "more lines of this diff" in seen.text
    assert len(diff("", "x" * 1_000_000).text) < text_file.MAX_DIFF_CHARS + 200
