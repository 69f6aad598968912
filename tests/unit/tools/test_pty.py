"""Pseudo terminals: children on a pty, and the terminal emulator."""

import asyncio
import os
import random
import sys
import time

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.runtime.processes.child import open_child, open_stream_ends
from alipes.tools.shell.pty import TerminalEmulator
from tests.world.environment import LIMIT_S

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"}


def open_on_pty(command, **more):
    return open_child(command, **{"cwd": "/", "env": ENV, "link": "terminal", **more})


async def read_all(child) -> bytes:
    written = b""
    while piece := await child.read():
        written += piece
    return written


async def read_until(child, wanted: bytes) -> bytes:
    written = b""
    while wanted not in written:
        piece = await child.read()
        assert piece, written
        written += piece
    return written


def render(raw: bytes) -> str:
    """The scrolled text and the screen."""
    emulator = TerminalEmulator()
    scrolled = emulator.feed(raw).decode()
    return scrolled + emulator.screen.text()


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_child_on_a_pty_has_it_as_stdio_and_controlling_terminal():
    async with open_on_pty("test -t 0 && test -t 1 && test -t 2 && stty size; echo hi >/dev/tty; exit 3") as child:
        assert await read_all(child) == b"24 80\r\nhi\r\n"
        assert await child.wait() == 3


async def test_argv_on_a_pty_is_run_without_a_shell():
    async with open_on_pty(["printf", "%s|", "a b", "$HOME"]) as child:
        assert await read_all(child) == b"a b|$HOME|"


async def test_input_is_read_and_ctrl_c_is_a_signal():
    async with open_on_pty("read line; echo got $line; sleep 300") as child:
        assert await child.input.write(b"hello\r", 5) == 6
        await read_until(child, b"got hello\r\n")
        await child.input.write(b"\x03", 5)
        assert await child.wait() == -2


@pytest.mark.parametrize("typed", [b"", b"a line\n", b"half a line"])
async def test_end_of_input_works_within_a_line(typed):
    async with open_on_pty("stty -echo; echo ready; cat; echo over") as child:
        await read_until(child, b"ready\r\n")
        await child.input.write(typed, 5)
        await child.input.finish()
        assert await read_all(child) == typed.replace(b"\n", b"\r\n") + b"over\r\n"


async def test_pipes_carry_more_than_their_buffer():
    data = random.Random(1).randbytes(300_000)
    async with open_child("cat", cwd="/", env=ENV, link="pipes") as child, asyncio.TaskGroup() as group:
        reading = group.create_task(read_all(child))
        assert await child.input.write(data, 10) == len(data)
        await child.input.finish()
        assert await reading == data
    assert child.input.closed


async def test_writer_does_not_block_if_nobody_reads():
    async with open_child("sleep 300", cwd="/", env=ENV, link="pipes") as child:
        assert 4096 <= await child.input.write(b"x" * 1_000_000, 0.05) < 1_000_000


async def test_closed_input_is_detected():
    async with open_child("exec <&-; echo closed; sleep 300", cwd="/", env=ENV, link="pipes") as child:
        assert await child.read() == b"closed\n"
        with pytest.raises(BrokenPipeError):
            await child.input.write(b"x", 1)


async def test_waiting_writer_notices_a_dead_reader():
    async with open_child("read x; exit", cwd="/", env=ENV, link="pipes") as child:
        with pytest.raises(BrokenPipeError):
            await child.input.write(b"x" * 100_000 + b"\n" + b"y" * 100_000, 5)


async def test_child_without_input_is_closed_for_writing():
    async with open_child("true", cwd="/", env=ENV) as child:
        assert child.input.closed


async def test_process_tree_on_a_pty_ends_with_its_scope():
    before = open_descriptors()
    stubborn = "trap '' TERM HUP INT; while :; do sleep 300; done"
    async with open_on_pty(f"setsid sh -c 'echo $$; {stubborn}' & {stubborn}") as child:
        inner = int(await child.read())
    assert not os.path.exists(f"/proc/{inner}") and not os.path.exists(f"/proc/{child.pid}")
    assert open_descriptors() == before


async def test_daemon_holding_the_pty_does_not_block_the_reader():
    async with open_on_pty("setsid sleep 300 & echo started") as child:
        assert await read_all(child) == b"started\r\n"


async def test_final_burst_on_a_pty_is_read_completely():
    command = [sys.executable, "-Sc", "import os; os.write(1, b'x' * 50_000)"]
    async with open_on_pty(command) as child:
        assert await read_all(child) == b"x" * 50_000


@pytest.mark.parametrize("link", ["output", "pipes", "terminal"])
async def test_failed_start_leaks_no_descriptor(link):
    before = open_descriptors()
    for command, cwd in ((["/no/such/program"], "/"), ("true", "/no/such/folder")):
        try:
            async with open_child(command, cwd=cwd, env=ENV, link=link) as child:
                assert (link, await child.wait()) == ("terminal", 127)  # a shell sets up the terminal first
        except OSError as error:
            assert "no/such" in str(error)
    with pytest.raises(LookupError), open_stream_ends(link):
        raise LookupError
    assert open_descriptors() == before


SCREENS = {
    "lines": (b"one\r\ntwo\r\n", "one\ntwo"),
    "colour": (b"\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[m", "red x"),
    "progress": (b" 10%\r 50%\r100%\r\ndone", "100%\ndone"),
    "a shorter line over a longer": (b"downloading\r\x1b[Kok", "ok"),
    "bars above each other": (b"a 0%\r\nb 0%\r\n\x1b[2Aa 9%\r\n\x1b[Bdone", "a 9%\nb 0%\ndone"),
    "clear": (b"old\r\nold\x1b[H\x1b[2Jnew", "new"),
    "titles and links": (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\", "ab"),
    "pictures": (b"a\x1bPq" + b"#0;2;0" * 5000 + b"\x1b\\b", "ab"),
    "a string that was broken off": (b"\x1b]0;ti\x1b[1mtext", "text"),
    "long lines are one": (b"x" * 100 + b"\r\nnext", "x" * 100 + "\nnext"),
    "a full line is not two": (b"x" * 80 + b"\r\nnext", "x" * 80 + "\nnext"),
    "wide": ("漢字\bX".encode(), "漢 X"),
    "wide at the edge": (b"x" * 79 + "漢".encode(), "x" * 79 + "漢"),
    "accents": ("e\u0301te\u0301".encode(), "e\u0301te\u0301"),
    "boxes": (b"\x1b(0lqqk\x1b(B ok \x0e\x1b)0x\x0f", "┌──┐ ok │"),
    "tabs": (b"a\tb\x1b[Zc", "a       c"),
    "insert and delete": (b"abcdef\x1b[3D\x1b[2@XY\x1b[2P", "abcXYf"),
    "insert mode": (b"ad\b\x1b[4hbc\x1b[4l\r", "abcd"),
    "insert lines": (b"1\r\n3\x1b[L\r2", "1\n2\n3"),
    "delete lines": (b"1\r\n2\r\n3\r\n4\x1b[2;9H\x1b[2M", "1\n4"),
    "repeat": (b"=\x1b[9b", "=" * 10),
    "save": (b"\x1b7abc\x1b8X\x1b[sY\x1b[uZ", "XZc"),
    "another screen": (b"shell\r\n\x1b[?1049h\x1b[Hvim\x1b[?1049l$ ", "shell\n$"),
    "on another screen": (b"shell\x1b[?1049h\x1b[Htop", "top"),
    "reverse": (b"b\r\x1bMa", "a\nb"),
    "reset": (b"old\x1bcnew", "new"),
    "bytes that are no text": (b"\xff\x80ok\x00\x07\x7f", "\ufffd\ufffdok"),
}


@pytest.mark.parametrize(("raw", "text"), SCREENS.values(), ids=SCREENS)
def test_a_screen_shows_what_a_person_would_see(raw, text):
    assert render(raw) == text


@pytest.mark.parametrize("raw", [raw for raw, _ in SCREENS.values()], ids=SCREENS)
def test_splitting_the_output_does_not_change_the_screen(raw):
    whole, bytewise = TerminalEmulator(), TerminalEmulator()
    whole.feed(raw)
    for n in range(len(raw)):
        bytewise.feed(raw[n : n + 1])
    assert bytewise.screen.text() == whole.screen.text()


def test_scrolled_rows_are_returned_once_and_in_order():
    emulator, scrolled = TerminalEmulator(), b""
    for n in range(100):
        scrolled += emulator.feed(b"line %d\r\n" % n)
    assert scrolled.decode().splitlines() == [f"line {n}" for n in range(77)]
    assert (scrolled + emulator.finish()).decode().splitlines() == [f"line {n}" for n in range(100)]
    assert (emulator.screen.text(), emulator.finish()) == ("", b"")


def test_scrolling_in_margins_or_alternate_screen_returns_nothing():
    emulator = TerminalEmulator()
    assert emulator.feed(b"\x1b[5;10r\x1b[10H" + b"x\r\n" * 50) == b""
    assert emulator.feed(b"\x1b[r\x1b[?1049h" + b"x\r\n" * 50) == b""
    assert emulator.feed(b"\x1b[?1049l\x1b[1;23r\x1b[23Hfirst" + b"\r\nx" * 23).startswith(b"\n\n")


def test_device_queries_are_answered():
    emulator = TerminalEmulator()
    emulator.feed(b"ab\r\nc\x1b[6n\x1b[5n\x1b[c\x1b[>c")
    assert bytes(emulator.replies) == b"\x1b[2;2R\x1b[0n\x1b[?6c"
    emulator.feed(b"\x1b[6n" * 10_000)
    assert len(emulator.replies) < 1100


def random_output(rng: random.Random) -> str:
    """Random output that all terminals show alike."""
    number = rng.choice(["", "1", "2", "5", "23", "79", "200"])
    return rng.choice(
        [
            "".join(rng.choices("abcdef XYZé─", k=rng.randrange(1, 60))),
            rng.choice(["\r\n", "\n", "\r", "\b", "\t"]),
            "\r\n" * rng.randrange(1, 30),
            f"\x1b[{number}{rng.choice('ABCDEFGd')}",
            f"\x1b[{rng.randrange(30)};{rng.randrange(90)}H",
            f"\x1b[{rng.choice('012')}{rng.choice('JK')}",
            f"\x1b[{number}{rng.choice('PX@')}",
            rng.choice(["\x1bM", "\x1bD", "\x1b[31m", "\x1b]0;t\x07"]),
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_drawings_look_the_same_in_pyte(seed):
    rng = random.Random(seed)
    text = "".join(random_output(rng) for _ in range(40))
    other = pyte.Screen(80, 24)
    pyte.Stream(other).feed(text)
    ours = TerminalEmulator()
    ours.feed(text.encode())
    rows = ["".join(row.cells).rstrip() for row in ours.screen.rows]
    assert rows == [line.rstrip() for line in other.display]


HOSTILE = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(["漢", "é", "é", "\u200d", "👩\u200d👩\u200d👧", "a"]).map(str.encode),
        st.tuples(st.text("0123456789;?<:", max_size=8), st.sampled_from("@ABCDEFGHIJKLMPSTXZbcdefhlnrsu`m")).map(
            lambda pair: f"\x1b[{pair[0]}{pair[1]}".encode()
        ),
        st.sampled_from([b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[3;9r", b"\x1b[4h", b"\x1b(0", b"\x1b]", b"\n" * 30]),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(HOSTILE)
def test_no_output_breaks_the_screen(parts):
    emulator = TerminalEmulator()
    for part in parts:
        emulator.feed(part)
        screen = emulator.screen
        assert len(screen.rows) == 24
        assert all(len(row.cells) <= 80 for row in screen.rows)
        assert 0 <= screen.y < 24 and 0 <= screen.x <= 80
    emulator.screen.text()
    emulator.finish()


@pytest.mark.parametrize(
    "unit", [b"y\r\n", b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"a\x1b[9999b", b"\x1b[99L", b"\xcc\x81", b"\x1b[1"]
)
def test_hostile_flood_is_processed_in_linear_time(unit):
    raw = unit * (400_000 // len(unit))
    emulator, began = TerminalEmulator(), time.process_time()
    for start in range(0, len(raw), 4095):
        emulator.feed(raw[start : start + 4095])
    assert time.process_time() - began < LIMIT_S / 3
