"""The `read_file` tool on real files: text, images, folders, and what must not be read or must not hang."""

import asyncio
import os
import socket
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from alipes.kernel.errors import ToolError
from alipes.tools.common import Places
from alipes.tools.files.read_file import BLOCK, LARGEST_IMAGE, LONGEST_LINE, ROOM, ReadFile, cut, encoding_of


class Call:
    call_id, session = "c1", "s1"

    def __init__(self, workdir):
        self.workdir = str(workdir)

    async def progress(self, text): ...


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "home" / ".alipes"
    (folder / "run").mkdir(parents=True)
    return folder


@pytest.fixture
def read(tmp_path, own):
    tool = ReadFile(Places(home=str(tmp_path / "home"), own=str(own)))

    async def read(path, **more):
        return await tool.run({"path": str(path), **more}, Call(tmp_path))

    return read


def png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\0\0"))
        + chunk(b"IEND", b"")
    )


async def test_a_small_file_comes_back_as_it_is(read, tmp_path):
    text = "first\n\tsecond  \r\n\nlast without end"
    (tmp_path / "a.txt").write_bytes(text.encode())
    for path in "a.txt", tmp_path / "a.txt", "./x/../a.txt", "~/../a.txt":
        (tmp_path / "x").mkdir(exist_ok=True)
        assert await read(path) == text


async def test_a_long_file_is_cut_and_says_how_to_go_on(read, tmp_path):
    (tmp_path / "long").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    first = await read("long")
    assert first.startswith("[lines 1-2000 of 5,000; go on with offset=2001]\nline 1\n")
    assert first.endswith("line 2000\n")
    assert await read("long", offset=4999) == "[lines 4999-5000 of 5,000]\nline 4999\nline 5000\n"
    assert (
        await read("long", offset=10, limit=2)
        == "[lines 10-11 of 5,000; go on with offset=12]\nline 10\nline 11\n"
    )
    assert await read("long", offset=-1) == "[lines 5000-5000 of 5,000]\nline 5000\n"
    assert (await read("long", offset=-9999, limit=1)).endswith("\nline 1\n")
    with pytest.raises(ToolError, match="no line 6000; the file has 5000"):
        await read("long", offset=6000)


async def test_an_answer_has_an_end_however_long_the_lines(read, tmp_path):
    (tmp_path / "wide").write_text(("x" * 9_999 + "\n") * 100)
    told = await read("wide")
    assert len(told) < ROOM + 2 * LONGEST_LINE
    assert "[... 6,000 more bytes in this line]" in told
    assert "go on with offset=" in told


async def test_a_huge_file_is_sliced_without_being_held(read, tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        for n in range(40):
            file.write(b"%08d\n" % n * 100_000)
    tracemalloc.start()
    told = await read("huge", offset=3_999_999, limit=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told.endswith("]\n00000039\n")
    assert peak < 8 * BLOCK


@pytest.mark.deadline(60)
async def test_a_sparse_giant_is_not_counted_to_its_end(read, tmp_path):
    with (tmp_path / "giant").open("wb") as file:
        file.write(b"one\ntwo\n" * 9000)
        file.truncate(1 << 40)
    assert (await read("giant", limit=1)) == "[lines 1-1; go on with offset=2]\none\n"
    with pytest.raises(ToolError, match="lies beyond the first"):
        await read("giant", offset=10**9)
    assert "more bytes in this line" in await read("giant", offset=18001)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("\ufeffmit Ä".encode(), "mit Ä"),
        ("breit Ä\nzwei\n".encode("utf-16"), "[from utf-16]\nbreit Ä\nzwei\n"),
        ("wide text\n".encode("utf-16-le"), "[from utf-16-le]\nwide text\n"),
        ("wide text\n".encode("utf-16-be"), "[from utf-16-be]\nwide text\n"),
        ("wider\n".encode("utf-32"), "[from utf-32]\nwider\n"),
        ("Grüße\n".encode("latin-1"), "[from latin-1]\nGrüße\n"),
        ("漢字 🎈\n".encode(), "漢字 🎈\n"),
        (b"", "(empty file)"),
    ],
)
async def test_encodings_are_recognised(read, tmp_path, raw, told):
    (tmp_path / "file").write_bytes(raw)
    assert await read("file") == told


def test_a_character_cut_at_the_end_of_the_sample_is_no_other_encoding():
    assert encoding_of("äöü".encode()[:-1]) == "utf-8"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"\x7fELF\2\1\1" + bytes(99), "ELF"),
        (b"%PDF-1.7\n\xff\0", "PDF"),
        (bytes(range(256)) * 4, "binary data"),
    ],
)
async def test_what_is_no_text_is_described(read, tmp_path, raw, kind):
    (tmp_path / "file").write_bytes(raw)
    told = await read("file")
    assert kind in told and f"{len(raw):,} bytes" in told


async def test_an_image_is_shown_as_an_image(read, tmp_path):
    (tmp_path / "a.dat").write_bytes(png())
    given = await read("a.dat")
    assert given.text == f"[image/png, {len(png())} bytes]"
    assert [(image.media_type, image.data) for image in given.images] == [("image/png", png())]
    (tmp_path / "big.png").write_bytes(png() + bytes(LARGEST_IMAGE))
    with pytest.raises(ToolError, match="too large"):
        await read("big.png")


async def test_a_folder_is_listed(read, tmp_path):
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for n in range(300):
        (folder / f"f{n:03}").touch()
    told = (await read("folder")).splitlines()
    assert told[:2] == [f"[{folder} is a folder of 301]", "f000"]
    assert told[-1] == "[101 more]"


async def test_a_missing_file_brings_the_names_that_come_near(read, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Settings.py").touch()
    with pytest.raises(ToolError, match=r"there is no .*setings\.py\. Did you mean .*/src/Settings\.py\?"):
        await read("src/setings.py")
    with pytest.raises(ToolError, match=r"Did you mean .*/src\?"):
        await read("srv/Settings.py")
    with pytest.raises(ToolError, match=r"/src has Settings\.py\."):
        await read("src/quite-different")
    with pytest.raises(ToolError, match="there is no"):
        await read("src/Settings.py/below")


async def test_nothing_that_could_hang_is_opened(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        async with asyncio.timeout(3):
            for path in "pipe", "/dev/zero", "/dev/tty", "/dev/stdin", "socket":
                with pytest.raises(ToolError, match=r"cannot be read|only files and folders"):
                    await read(path)
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(ToolError, match="is a pipe"):
        await read("link")


async def test_a_link_that_leads_in_circles_and_a_file_we_may_not_read_are_told(read, tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ToolError, match="cannot be read: Too many levels"):
        await read("circle")
    with pytest.raises(ToolError, match="zero byte"):
        await read("a\0b")
    with pytest.raises(ToolError, match="cannot be read: File name too long"):
        await read("x" * 5000)


async def test_files_of_the_kernel_are_read_although_they_have_no_size(read):
    assert "Name:" in await read("/proc/self/status")


async def test_secrets_are_not_read_by_whatever_name(read, tmp_path, own):
    (own / ".env").write_text("KEY=canary")
    (own / "alipes.db").write_text("canary")
    (own / "run" / "1.sock").write_text("canary")
    (tmp_path / "harmless").symlink_to(own / ".env")
    (tmp_path / "folder").symlink_to(own)
    (tmp_path / "hard").hardlink_to(own / ".env")
    names = [
        *(own / ".env", own / "alipes.db", own / "run" / "1.sock", "harmless", "hard", "folder/.env"),
        *(f"{own}/run/../.env", "~/.alipes/.env", "/proc/self/environ", f"/proc/{os.getpid()}/environ"),
        *("/proc/self/mem", f"/proc/self/root{own}/.env", f"/proc/self/task/{os.getpid()}/environ"),
    ]
    for name in names:
        with pytest.raises(ToolError, match="not shown"):
            await read(name)


async def test_what_lies_open_in_the_home_is_read(read, own):
    (own / "spill").mkdir()
    for name in "config.toml", "SOUL.md", "spill/terminal-1.txt":
        (own / name).write_text("x = 1")
        assert await read(own / name) == "x = 1"


async def test_known_secrets_are_masked_in_any_file(tmp_path, own):
    tool = ReadFile(Places(home=str(tmp_path), own=str(own)), mask=lambda text: text.replace("canary", "***"))
    (own / "config.toml").write_text("key = 'canary'")
    assert await tool.run({"path": str(own / "config.toml")}, Call(tmp_path)) == "key = '***'"


async def test_files_of_the_person_that_hold_secrets_are_known(tmp_path, own):
    places = Places(home=str(tmp_path), own=str(own))
    for name in ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".gnupg/x", ".config/gh/hosts.yml":
        assert places.secrecy(f"{tmp_path}/{name}") == "personal"
    for name in ".ssh/id_ed25519.pub", ".ssh/config", ".bashrc", "project/.env", "netrc":
        assert places.secrecy(f"{tmp_path}/{name}") == ""
    assert places.secrecy("/etc/shadow") == "personal"
    assert places.secrecy("/etc/passwd") == ""


@settings(max_examples=150, deadline=None)
@given(
    lines=some.lists(
        some.text(some.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30),
        max_size=40,
    ),
    ended=some.booleans(),
    offset=some.integers(-45, 45).filter(bool),
    limit=some.integers(1, 50),
)
def test_any_slice_is_what_splitting_the_lines_would_give(tmp_path_factory, lines, ended, offset, limit):
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    expected = text.encode().split(b"\n")
    expected = [line + b"\n" for line in expected[:-1]] + ([expected[-1]] if expected[-1] else [])
    first = offset if offset > 0 else max(1, len(expected) + 1 + offset)
    path = tmp_path_factory.getbasetemp() / "sliced"
    path.write_bytes(text.encode())
    with path.open("rb") as file:
        found = cut(file, offset=offset, limit=limit, room=10**6)
    wanted = b"".join(expected[first - 1 : first - 1 + limit]).decode()
    assert found.text == (wanted.removeprefix("\ufeff") if first == 1 else wanted)
    assert (found.first, found.lines) == (first, len(expected))
