"""Pseudo terminals: a child's controlling terminal, its input, and what its screen shows."""

import asyncio
import os
import random
import sys
import time

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.runtime.processes.child import open_child, open_ends
from alipes.tools.shell.pty import Rendering

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"}


def on_terminal(command, **more):
    return open_child(command, **{"cwd": "/", "env": ENV, "link": "terminal", **more})


async def everything(child) -> bytes:
    written = b""
    while piece := await child.read():
        written += piece
    return written


async def until(child, wanted: bytes) -> bytes:
    written = b""
    while wanted not in written:
        piece = await child.read()
        assert piece, written
        written += piece
    return written


def shown(raw: bytes) -> str:
    """What was settled by it, and then the screen."""
    rendering = Rendering()
    settled = rendering.feed(raw).decode()
    return settled + rendering.live()


def fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_a_child_on_a_terminal_has_it_for_input_output_and_control():
    async with on_terminal(
        "test -t 0 && test -t 1 && test -t 2 && stty size; echo hi >/dev/tty; exit 3"
    ) as child:
        assert await everything(child) == b"24 80\r\nhi\r\n"
        assert await child.wait() == 3


async def test_an_argv_is_run_on_a_terminal_without_a_shell_reading_it():
    async with on_terminal(["printf", "%s|", "a b", "$HOME"]) as child:
        assert await everything(child) == b"a b|$HOME|"


async def test_what_is_written_is_read_and_an_interrupt_is_a_signal():
    async with on_terminal("read line; echo got $line; sleep 300") as child:
        assert await child.input.write(b"hello\r", 5) == 6
        await until(child, b"got hello\r\n")
        await child.input.write(b"\x03", 5)
        assert await child.wait() == -2


@pytest.mark.parametrize("typed", [b"", b"a line\n", b"half a line"])
async def test_the_end_of_input_is_the_end_also_within_a_line(typed):
    async with on_terminal("stty -echo; echo ready; cat; echo over") as child:
        await until(child, b"ready\r\n")
        await child.input.write(typed, 5)
        await child.input.finish()
        assert await everything(child) == typed.replace(b"\n", b"\r\n") + b"over\r\n"


async def test_pipes_both_ways_carry_more_than_they_hold():
    data = random.Random(1).randbytes(300_000)
    async with open_child("cat", cwd="/", env=ENV, link="pipes") as child, asyncio.TaskGroup() as group:
        reading = group.create_task(everything(child))
        assert await child.input.write(data, 10) == len(data)
        await child.input.finish()
        assert await reading == data
    assert child.input.closed


async def test_who_does_not_read_does_not_keep_the_writer():
    async with open_child("sleep 300", cwd="/", env=ENV, link="pipes") as child:
        assert 4096 <= await child.input.write(b"x" * 1_000_000, 0.05) < 1_000_000


async def test_who_closed_its_input_is_found_out():
    async with open_child("exec <&-; echo closed; sleep 300", cwd="/", env=ENV, link="pipes") as child:
        assert await child.read() == b"closed\n"
        with pytest.raises(BrokenPipeError):
            await child.input.write(b"x", 1)


async def test_a_writer_that_waits_hears_that_the_reader_died():
    async with open_child("read x; exit", cwd="/", env=ENV, link="pipes") as child:
        with pytest.raises(BrokenPipeError):
            await child.input.write(b"x" * 100_000 + b"\n" + b"y" * 100_000, 5)


async def test_a_child_without_input_has_none_to_write_to():
    async with open_child("true", cwd="/", env=ENV) as child:
        assert child.input.closed


async def test_a_tree_on_a_terminal_dies_with_its_scope_and_leaves_no_descriptor():
    before = fds()
    stubborn = "trap '' TERM HUP INT; while :; do sleep 300; done"
    async with on_terminal(f"setsid sh -c 'echo $$; {stubborn}' & {stubborn}") as child:
        inner = int(await child.read())
    assert not os.path.exists(f"/proc/{inner}") and not os.path.exists(f"/proc/{child.pid}")
    assert fds() == before


async def test_what_a_daemon_keeps_open_does_not_keep_the_reader():
    async with on_terminal("setsid sleep 300 & echo started") as child:
        assert await everything(child) == b"started\r\n"


async def test_a_last_burst_on_a_terminal_is_read_whole():
    command = [sys.executable, "-Sc", "import os; os.write(1, b'x' * 50_000)"]
    async with on_terminal(command) as child:
        assert await everything(child) == b"x" * 50_000


@pytest.mark.parametrize("link", ["output", "pipes", "terminal"])
async def test_what_cannot_be_started_leaks_no_end(link):
    before = fds()
    for command, cwd in ((["/no/such/program"], "/"), ("true", "/no/such/folder")):
        try:
            async with open_child(command, cwd=cwd, env=ENV, link=link) as child:
                assert (link, await child.wait()) == ("terminal", 127)  # a shell takes the terminal first
        except OSError as error:
            assert "no/such" in str(error)
    with pytest.raises(LookupError), open_ends(link):
        raise LookupError
    assert fds() == before


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
    assert shown(raw) == text


@pytest.mark.parametrize("raw", [raw for raw, _ in SCREENS.values()], ids=SCREENS)
def test_pieces_cut_anywhere_show_the_same(raw):
    whole, bytewise = Rendering(), Rendering()
    whole.feed(raw)
    for n in range(len(raw)):
        bytewise.feed(raw[n : n + 1])
    assert bytewise.live() == whole.live()


def test_what_scrolls_away_is_settled_once_and_in_order():
    rendering, settled = Rendering(), b""
    for n in range(100):
        settled += rendering.feed(b"line %d\r\n" % n)
    assert settled.decode().splitlines() == [f"line {n}" for n in range(77)]
    assert (settled + rendering.finish()).decode().splitlines() == [f"line {n}" for n in range(100)]
    assert (rendering.live(), rendering.finish()) == ("", b"")


def test_what_scrolls_inside_margins_or_on_another_screen_is_not_settled():
    rendering = Rendering()
    assert rendering.feed(b"\x1b[5;10r\x1b[10H" + b"x\r\n" * 50) == b""
    assert rendering.feed(b"\x1b[r\x1b[?1049h" + b"x\r\n" * 50) == b""
    assert rendering.feed(b"\x1b[?1049l\x1b[1;23r\x1b[23Hfirst" + b"\r\nx" * 23).startswith(b"\n\n")


def test_questions_to_the_terminal_are_answered():
    rendering = Rendering()
    rendering.feed(b"ab\r\nc\x1b[6n\x1b[5n\x1b[c\x1b[>c")
    assert bytes(rendering.replies) == b"\x1b[2;2R\x1b[0n\x1b[?6c"
    rendering.feed(b"\x1b[6n" * 10_000)
    assert len(rendering.replies) < 1100


def pieces(dice: random.Random) -> str:
    """Some of what all terminals agree on."""
    number = dice.choice(["", "1", "2", "5", "23", "79", "200"])
    return dice.choice(
        [
            "".join(dice.choices("abcdef XYZé─", k=dice.randrange(1, 60))),
            dice.choice(["\r\n", "\n", "\r", "\b", "\t"]),
            "\r\n" * dice.randrange(1, 30),
            f"\x1b[{number}{dice.choice('ABCDEFGd')}",
            f"\x1b[{dice.randrange(30)};{dice.randrange(90)}H",
            f"\x1b[{dice.choice('012')}{dice.choice('JK')}",
            f"\x1b[{number}{dice.choice('PX@')}",
            dice.choice(["\x1bM", "\x1bD", "\x1b[31m", "\x1b]0;t\x07"]),
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_any_drawing_looks_as_on_another_terminal(seed):
    dice = random.Random(seed)
    text = "".join(pieces(dice) for _ in range(40))
    other = pyte.Screen(80, 24)
    pyte.Stream(other).feed(text)
    ours = Rendering()
    ours.feed(text.encode())
    rows = ["".join(row.cells).rstrip() for row in ours.screen.rows]
    assert rows == [line.rstrip() for line in other.display]


HOSTILE = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(["漢", "é", "é", "\u200d", "👩\u200d👩\u200d👧", "a"]).map(str.encode),
        st.tuples(
            st.text("0123456789;?<:", max_size=8), st.sampled_from("@ABCDEFGHIJKLMPSTXZbcdefhlnrsu`m")
        ).map(lambda pair: f"\x1b[{pair[0]}{pair[1]}".encode()),
        st.sampled_from(
            [b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[3;9r", b"\x1b[4h", b"\x1b(0", b"\x1b]", b"\n" * 30]
        ),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(HOSTILE)
def test_nothing_that_is_written_breaks_the_screen(parts):
    rendering = Rendering()
    for part in parts:
        rendering.feed(part)
        screen = rendering.screen
        assert len(screen.rows) == 24
        assert all(len(row.cells) <= 80 for row in screen.rows)
        assert 0 <= screen.y < 24 and 0 <= screen.x <= 80
    rendering.live()
    rendering.finish()


@pytest.mark.parametrize(
    "unit",
    [b"y\r\n", b"\x1b", b"\x1b[", b"\x1b]", b"\x1bP", b"a\x1b[9999b", b"\x1b[99L", b"\xcc\x81", b"\x1b[1"],
)
def test_a_hostile_flood_is_shown_in_linear_time(unit):
    raw = unit * (400_000 // len(unit))
    rendering, began = Rendering(), time.process_time()
    for start in range(0, len(raw), 4095):
        rendering.feed(raw[start : start + 4095])
    assert time.process_time() - began < 5
