"""The `read_file` tool on real files: text, images, directories, secrets, devices."""

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
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from alipes.tools.files.read_file import (
    BLOCK_BYTES,
    MAX_IMAGE_BYTES,
    MAX_LINE_BYTES,
    MAX_RESULT_BYTES,
    ReadFile,
    read_lines,
)
from alipes.tools.files.text_file import detect_encoding


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
    tool = ReadFile(FileBoundary(Places(home=str(tmp_path / "home"), alipes_home=str(own))))

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


async def test_small_file_is_returned_unchanged(read, tmp_path):
    text = "first\n\tsecond  \r\n\nlast without end"
    (tmp_path / "a.txt").write_bytes(text.encode())
    for path in "a.txt", tmp_path / "a.txt", "./x/../a.txt", "~/../a.txt":
        (tmp_path / "x").mkdir(exist_ok=True)
        assert await read(path) == text


async def test_long_file_is_cut_with_the_next_offset(read, tmp_path):
    (tmp_path / "long").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    first = await read("long")
    assert first.startswith("[lines 1-2000 of 5,000; continue with offset=2001]\nline 1\n")
    assert first.endswith("line 2000\n")
    assert await read("long", offset=4999) == "[lines 4999-5000 of 5,000]\nline 4999\nline 5000\n"
    assert (
        await read("long", offset=10, limit=2) == "[lines 10-11 of 5,000; continue with offset=12]\nline 10\nline 11\n"
    )
    assert await read("long", offset=-1) == "[lines 5000-5000 of 5,000]\nline 5000\n"
    assert (await read("long", offset=-9999, limit=1)).endswith("\nline 1\n")
    with pytest.raises(ToolError, match="line 6000 does not exist; the file has 5000 lines"):
        await read("long", offset=6000)


async def test_result_is_bounded_for_any_line_length(read, tmp_path):
    (tmp_path / "wide").write_text(("x" * 9_999 + "\n") * 100)
    seen = await read("wide")
    assert len(seen) < MAX_RESULT_BYTES + 2 * MAX_LINE_BYTES
    assert "[... 6,000 more bytes in this line]" in seen
    assert "continue with offset=" in seen


async def test_huge_file_is_read_without_loading_it(read, tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        for n in range(40):
            file.write(b"%08d\n" % n * 100_000)
    tracemalloc.start()
    seen = await read("huge", offset=3_999_999, limit=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen.endswith("]\n00000039\n")
    assert peak < 8 * BLOCK_BYTES


@pytest.mark.deadline(60)
async def test_huge_sparse_file_is_not_counted(read, tmp_path):
    with (tmp_path / "giant").open("wb") as file:
        file.write(b"one\ntwo\n" * 9000)
        file.truncate(1 << 40)
    assert (await read("giant", limit=1)) == "[lines 1-1; continue with offset=2]\none\n"
    with pytest.raises(ToolError, match="is beyond the first"):
        await read("giant", offset=10**9)
    assert "more bytes in this line" in await read("giant", offset=18001)


@pytest.mark.parametrize(
    ("raw", "expected"),
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
async def test_encodings_are_recognised(read, tmp_path, raw, expected):
    (tmp_path / "file").write_bytes(raw)
    assert await read("file") == expected


def test_split_character_at_the_end_of_the_sample_is_still_utf8():
    assert detect_encoding("äöü".encode()[:-1]) == "utf-8"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [(b"\x7fELF\2\1\1" + bytes(99), "ELF"), (b"%PDF-1.7\n\xff\0", "PDF"), (bytes(range(256)) * 4, "binary data")],
)
async def test_binary_file_is_described(read, tmp_path, raw, kind):
    (tmp_path / "file").write_bytes(raw)
    seen = await read("file")
    assert kind in seen and f"{len(raw):,} bytes" in seen


async def test_image_is_returned_as_an_image(read, tmp_path):
    (tmp_path / "a.dat").write_bytes(png())
    given = await read("a.dat")
    assert given.text == f"[image/png, {len(png())} bytes]"
    assert [(image.media_type, image.data) for image in given.images] == [("image/png", png())]
    (tmp_path / "big.png").write_bytes(png() + bytes(MAX_IMAGE_BYTES))
    with pytest.raises(ToolError, match="the maximum is"):
        await read("big.png")


async def test_a_folder_is_listed(read, tmp_path):
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for n in range(300):
        (folder / f"f{n:03}").touch()
    seen = (await read("folder")).splitlines()
    assert seen[:2] == [f"[{folder} is a directory with 301 entries]", "f000"]
    assert seen[-1] == "[101 more]"


async def test_missing_file_suggests_similar_names(read, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Settings.py").touch()
    with pytest.raises(ToolError, match=r".*setings\.py does not exist\. Did you mean .*/src/Settings\.py\?"):
        await read("src/setings.py")
    with pytest.raises(ToolError, match=r"Did you mean .*/src\?"):
        await read("srv/Settings.py")
    with pytest.raises(ToolError, match=r"/src contains Settings\.py\."):
        await read("src/quite-different")
    with pytest.raises(ToolError, match="Not a directory"):
        await read("src/Settings.py/below")


async def test_pipes_and_devices_are_not_opened(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        async with asyncio.timeout(3):
            for path in "pipe", "/dev/zero", "/dev/tty", "/dev/stdin", "socket":
                with pytest.raises(ToolError, match=r"cannot be read|only files and directories"):
                    await read(path)
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(ToolError, match="is a pipe"):
        await read("link")


async def test_link_loops_and_unreadable_files_are_reported(read, tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ToolError, match="cannot be opened: Too many levels"):
        await read("circle")
    with pytest.raises(ToolError, match="null byte"):
        await read("a\0b")
    with pytest.raises(ToolError, match="cannot be opened: File name too long"):
        await read("x" * 5000)


async def test_proc_files_without_a_size_are_read(read):
    assert "Name:" in await read("/proc/self/status")


async def test_secrets_are_not_read_under_any_name(read, tmp_path, own):
    (own / ".env").write_text("KEY=canary")
    (own / "alipes.db").write_text("canary")
    (own / "run" / "1.sock").write_text("canary")
    (tmp_path / "harmless").symlink_to(own / ".env")
    (tmp_path / "folder").symlink_to(own)
    (tmp_path / "hard").hardlink_to(own / ".env")
    through_proc = f"/proc/self/root{own}/.env"
    with pytest.raises(ToolError, match="cannot be opened"):
        await read(through_proc)
    names = [
        *(own / ".env", own / "alipes.db", own / "run" / "1.sock", "harmless", "hard", "folder/.env"),
        *(f"{own}/run/../.env", "~/.alipes/.env", "/proc/self/environ", f"/proc/{os.getpid()}/environ"),
        *("/proc/self/mem", f"/proc/self/task/{os.getpid()}/environ"),
    ]
    for name in names:
        with pytest.raises(ToolError, match="not shown"):
            await read(name)


async def test_other_files_in_the_home_are_read(read, own):
    (own / "spill").mkdir()
    for name in "config.toml", "SOUL.md", "spill/terminal-1.txt":
        (own / name).write_text("x = 1")
        assert await read(own / name) == "x = 1"


async def test_known_secrets_are_masked_in_any_file(tmp_path, own):
    tool = ReadFile(
        FileBoundary(Places(home=str(tmp_path), alipes_home=str(own))), mask=lambda text: text.replace("canary", "***")
    )
    (own / "config.toml").write_text("key = 'canary'")
    assert await tool.run({"path": str(own / "config.toml")}, Call(tmp_path)) == "key = '***'"


async def test_personal_secret_files_are_recognised(tmp_path, own):
    places = Places(home=str(tmp_path), alipes_home=str(own))
    for name in ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".gnupg/x", ".config/gh/hosts.yml", "project/.env":
        assert places.secrecy(f"{tmp_path}/{name}") == "personal"
    for name in ".ssh/id_ed25519.pub", ".ssh/config", ".bashrc", "project/.env.example", "netrc":
        assert places.secrecy(f"{tmp_path}/{name}") == ""
    assert places.secrecy("/etc/shadow") == "personal"
    assert places.secrecy("/etc/passwd") == ""


@settings(max_examples=150, deadline=None)
@given(
    lines=some.lists(
        some.text(some.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30), max_size=40
    ),
    ended=some.booleans(),
    offset=some.integers(-45, 45).filter(bool),
    limit=some.integers(1, 50),
)
def test_any_slice_equals_split_lines(tmp_path_factory, lines, ended, offset, limit):
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    expected = text.encode().split(b"\n")
    expected = [line + b"\n" for line in expected[:-1]] + ([expected[-1]] if expected[-1] else [])
    first = offset if offset > 0 else max(1, len(expected) + 1 + offset)
    path = tmp_path_factory.getbasetemp() / "sliced"
    path.write_bytes(text.encode())
    with path.open("rb") as file:
        found = read_lines(file, offset=offset, limit=limit, room=10**6)
    wanted = b"".join(expected[first - 1 : first - 1 + limit]).decode()
    assert found.text == (wanted.removeprefix("\ufeff") if first == 1 else wanted)
    assert (found.first, found.lines) == (first, len(expected))
