"""The `write_file` tool on real files: whole or not at all, in the bytes the file had, and never a secret."""

import asyncio
import os
import socket
import stat
import threading

import pytest

from alipes.kernel.errors import ToolError
from alipes.tools.common import CalledOff, Gate, aside
from alipes.tools.files import text_file
from alipes.tools.files.text_file import LARGEST, compare, find
from alipes.tools.files.write_file import Change, WriteFile, write


@pytest.fixture
def put(places, call):
    tool = WriteFile(places)

    async def put(path, content):
        return await tool.run({"path": str(path), "content": content}, call)

    return put


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if path.name.startswith(".alipes-")]


async def test_a_new_file_is_made_with_its_folders(put, work, call):
    assert await put("a/b/c.txt", "one\ntwo\n") == "created a/b/c.txt (8 bytes, +2 -0 lines)"
    assert (work / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert call.shown == ["--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two"]
    assert stat.S_IMODE((work / "a/b/c.txt").stat().st_mode) == 0o666 & ~_umask()
    assert leftovers(work) == []


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_an_update_tells_what_changed(put, work, call):
    (work / "f").write_text("".join(f"line {n}\n" for n in range(20)))
    text = (work / "f").read_text().replace("line 9\n", "line nine\nand more\n")
    assert await put("f", text) == f"updated f ({len(text)} bytes, +2 -1 lines)"
    assert (work / "f").read_text() == text
    assert call.shown[0].startswith(
        "--- a/f\n+++ b/f\n@@ -7,7 +7,8 @@\n line 6\n line 7\n line 8\n-line 9\n+line n"
    )


async def test_the_same_content_again_touches_nothing(put, work, call):
    (work / "f").write_text("same\n")
    before = (work / "f").stat()
    assert await put("f", "same\n") == "unchanged f (5 bytes)"
    assert (work / "f").stat() == before
    assert call.shown == []


async def test_the_mode_of_a_file_is_kept(put, work):
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o4751)
    await put("run.sh", "#!/bin/sh\ntrue\n")
    assert stat.S_IMODE((work / "run.sh").stat().st_mode) == 0o4751


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
async def test_the_owner_of_a_file_is_kept(put, work):
    (work / "f").write_text("theirs")
    os.chown(work / "f", 12345, 12345)
    await put("f", "ours?")
    assert ((work / "f").stat().st_uid, (work / "f").stat().st_gid) == (12345, 12345)


async def test_a_reader_with_the_file_open_still_sees_the_old_bytes(put, work):
    (work / "f").write_text("old")
    with (work / "f").open() as reader:
        await put("f", "new")
        assert reader.read() == "old"
    assert (work / "f").read_text() == "new"


async def test_a_link_is_followed_to_its_file_and_that_is_said(put, work, tmp_path):
    (tmp_path / "real.txt").write_text("old\n")
    (work / "link").symlink_to(tmp_path / "real.txt")
    told = await put("link", "new\n")
    assert told == f"updated link (4 bytes, +1 -1 lines); through the link, into {tmp_path}/real.txt"
    assert (work / "link").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new\n"


async def test_a_link_to_nothing_makes_the_file_it_points_to(put, work):
    (work / "link").symlink_to("sub/new.txt")
    assert "created link" in await put("link", "x")
    assert (work / "sub/new.txt").read_text() == "x"


async def test_hard_links_are_told_apart(put, work):
    (work / "f").write_text("old")
    os.link(work / "f", work / "g")
    assert (await put("f", "new")).endswith("its other hard links keep the old content")
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
async def test_the_bytes_of_a_text_stay_in_the_form_they_had(put, work, before, content, after):
    (work / "f").write_bytes(before)
    await put("f", content)
    assert (work / "f").read_bytes() == after


async def test_the_form_that_was_kept_is_said(put, work):
    (work / "f").write_bytes(b"\xef\xbb\xbfa\r\n")
    assert (await put("f", "b\n")).endswith("; UTF-8 with BOM kept; CRLF kept")
    (work / "g").write_bytes("d\u00e9j\u00e0 vu, d\u00e9j\u00e0 vu".encode("latin-1"))
    assert (await put("g", "\u65e5")).endswith("now UTF-8, was latin-1")
    (work / "h").write_bytes(b"\0\1\2")
    assert (await put("h", "x")).endswith("what was there before was no readable text")


async def test_what_is_no_plain_file_is_refused(put, work, tmp_path):
    (work / "folder").mkdir()
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "socket"))
    (work / "null").symlink_to("/dev/null")
    (work / "loop").symlink_to("loop")
    (work / "file").write_text("x")
    for path, why in (
        ("folder", "is a folder"),
        ("pipe", "is a pipe"),
        ("socket", "is a socket"),
        ("/dev/null", "is a device"),
        ("null", "is a device"),
        ("loop", "symbolic links"),
        ("file/below", "Not a directory"),
        ("", "does not name a file"),
        ("new/", "does not name a file"),
        ("nul\0byte", "zero byte"),
        ("half\ud800", "cannot be used"),
        ("n" * 300, "File name too long"),
        ("/proc/sys/kernel/nonsense", "cannot be written"),
    ):
        with pytest.raises(ToolError, match=why):
            await put(path, "content")
    assert (work / "file").read_text() == "x"
    assert leftovers(tmp_path) == []


async def test_half_a_character_is_refused(put, work):
    for before in (None, b"x", "\ufeffx".encode("utf-16-le")):
        if before is not None:
            (work / "f").write_bytes(before)
        with pytest.raises(ToolError, match="half a character"):
            await put("f", "a\ud800b")
    assert leftovers(work) == []


async def test_our_own_state_is_out_of_reach_by_any_way(put, work, places, tmp_path):
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
        with pytest.raises(ToolError, match="out of reach"):
            await put(path, "KEY=2")
    assert (own / ".env").read_text() == "KEY=1"
    assert os.listdir(own / "run") == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
async def test_what_may_not_be_written_is_a_sentence(put, work):
    (work / "closed").mkdir(mode=0o500)
    with pytest.raises(
        ToolError, match=r"closed/f cannot be written: Permission denied. Nothing was changed"
    ):
        await put("closed/f", "x")


async def test_names_that_are_no_text_can_be_written(put, work):
    await put(os.fsdecode(b"caf\xe9\n.txt"), "x")
    assert os.listdir(os.fsencode(work)) == [b"caf\xe9\n.txt"]


async def test_secrets_are_masked_in_what_is_shown(places, work, call):
    tool = WriteFile(places, mask=lambda text: text.replace("sk-1", "***"))
    await tool.run({"path": "f", "content": "key = sk-1\n"}, call)
    assert (work / "f").read_text() == "key = sk-1\n"
    assert "+key = ***" in call.shown[0]


async def test_a_huge_file_is_replaced_without_being_compared(put, work):
    with (work / "f").open("wb") as file:
        file.truncate(LARGEST + 1)
    assert (await put("f", "small")).endswith("bytes were there before")
    assert (work / "f").read_text() == "small"


# -- a stop, a failure, a race -------------------------------------------------------------------------------


async def test_a_stop_before_the_gate_calls_it_off():
    reached, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work(gate: Gate):
        try:
            reached.set()
            go.wait(5)
            gate.enter()
            pytest.fail("the gate was closed")
        finally:
            ended.set()

    task = asyncio.create_task(aside(work))
    await asyncio.to_thread(reached.wait, 5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    go.set()
    assert await asyncio.to_thread(ended.wait, 5)


async def test_a_stop_after_the_gate_waits_until_it_is_done():
    reached, go, done = threading.Event(), threading.Event(), []

    def work(gate: Gate):
        gate.enter()
        reached.set()
        go.wait(5)
        done.append(True)

    task = asyncio.create_task(aside(work))
    await asyncio.to_thread(reached.wait, 5)
    for _ in range(2):  # also one who does not wait for the first stop to be heard
        task.cancel()
        await asyncio.wait([task], timeout=0.02)
        assert not task.done()
    go.set()
    await asyncio.wait([task])
    assert task.cancelled() and done == [True]


async def test_an_error_in_the_work_is_the_askers():
    def work(gate: Gate):
        raise ToolError("no")

    with pytest.raises(ToolError, match="no"):
        await aside(work)


def change(places, work, name, content):
    return Change(find(places, name, str(work)), content)


def test_a_stopped_write_leaves_nothing(places, work):
    gate = Gate()
    assert gate.close()
    (work / "f").write_text("old")
    with pytest.raises(CalledOff):
        write([change(places, work, "f", b"new"), change(places, work, "new/sub/g", b"new")], gate)
    assert sorted(path.name for path in work.rglob("*")) == ["f"]
    assert (work / "f").read_text() == "old"


def test_when_one_rename_fails_the_others_are_undone(places, work):
    (work / "a").write_text("old a")
    (work / "a").chmod(0o640)
    (work / "gone").write_text("old gone")
    (work / "d").mkdir()
    before = (work / "a").stat()

    class Late(Gate):
        """At the last moment somebody takes the folder of the last file away."""

        def enter(self):
            super().enter()
            (work / "d").rename(work / "elsewhere")

    changes = [
        change(places, work, "a", b"new a"),
        change(places, work, "new/b", b"new b"),
        change(places, work, "gone", None),
        change(places, work, "d/last", b"x"),
    ]
    with pytest.raises(ToolError, match=r"d/last cannot be written: No such file.*Nothing was changed"):
        write(changes, Late())
    assert sorted(path.name for path in work.iterdir()) == ["a", "elsewhere", "gone"]
    assert (work / "a").read_text() == "old a" and (work / "gone").read_text() == "old gone"
    assert (work / "a").stat().st_ino == before.st_ino and (work / "a").stat().st_mode == before.st_mode


def test_a_file_that_came_meanwhile_is_not_overwritten(places, work):
    changes = [change(places, work, "a", b"ours"), change(places, work, "b", b"ours")]
    (work / "b").symlink_to("nowhere")
    with pytest.raises(ToolError, match="changed by somebody else"):
        write(changes, Gate())
    assert sorted(path.name for path in work.iterdir()) == ["b"]


def test_a_file_that_somebody_else_changed_meanwhile_is_left_alone(places, work):
    (work / "f").write_text("old")
    target = find(places, "f", str(work))
    (work / "f").write_text("theirs, longer")
    with pytest.raises(ToolError, match="changed by somebody else meanwhile"):
        write([Change(target, b"ours")], Gate())
    assert (work / "f").read_text() == "theirs, longer"
    assert leftovers(work) == []


async def test_many_writers_of_one_file_leave_one_whole_text(places, work, call):
    tool = WriteFile(places)
    texts = [f"{n}\n" * 5000 for n in range(8)]

    async def put(text):
        try:
            await tool.run({"path": "f", "content": text}, call)
        except ToolError as error:
            assert "changed by somebody else" in str(error)

    async with asyncio.TaskGroup() as group:
        for text in texts:
            group.create_task(put(text))
    assert (work / "f").read_text() in texts
    assert leftovers(work) == []


# -- the diff ------------------------------------------------------------------------------------------------


def diff(old, new):
    return compare(old, new, before="a/f", after="b/f")


def test_a_diff_counts_and_points_to_the_first_change():
    told = diff("a\nb\nc\n", "a\nB\nc\nd\n")
    assert (told.added, told.removed, told.line, told.summary) == (2, 1, 2, "+2 -1")
    assert told.text == "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d"
    assert diff("same", "same") == text_file.Diff(0, 0, 0, "")


def test_distant_changes_are_hunks_of_their_own():
    old = [f"{n}\n" for n in range(40)]
    new = [*old]
    new[5], new[30] = "five\n", "thirty\n"
    text = diff("".join(old), "".join(new)).text
    assert [line for line in text.split("\n") if line.startswith("@@")] == [
        "@@ -3,7 +3,7 @@",
        "@@ -28,7 +28,7 @@",
    ]


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        ("a", "a\n", ["@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+a"]),
        ("", "a\n", ["@@ -0,0 +1 @@", "+a"]),
        ("a\n", "", ["@@ -1 +0,0 @@", "-a"]),
        ("a\fb\n", "a\fc\n", ["@@ -1 +1 @@", "-a\fb", "+a\fc"]),
    ],
)
def test_the_edges_of_a_text_are_in_its_diff(old, new, rows):
    assert diff(old, new).text.split("\n")[2:] == rows


def test_a_diff_takes_little_time_and_room_whatever_the_texts_are():
    told = diff("a\nb\n" * 200_000, "b\na\n" * 200_000 + "c\n" * 9)
    assert told.text.count("\n") <= text_file.SHOWN_LINES and "more lines of this diff" in told.text
    assert len(diff("", "x" * 1_000_000).text) < text_file.SHOWN + 200
