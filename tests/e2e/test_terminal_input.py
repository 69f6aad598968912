"""Typing: several lines, pastes of any size, history, completion, an editor of one's own, keys at any speed."""

import asyncio
import stat
import sys

import pytest

from tests.e2e.program import Home
from tests.world.glass import CTRL_C, ENTER, ESCAPE, Glass
from tests.world.model_server import ModelServer, Say

pytestmark = pytest.mark.deadline(90)
UP, DOWN, LEFT, TAB, BACKSPACE = "\x1b[A", "\x1b[B", "\x1b[D", "\t", "\x7f"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def pasted(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


def asked(server: ModelServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.bodies]


async def test_a_message_may_have_several_lines(home):
    async with ModelServer([Say("Seen.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            await glass.until("answers")
            glass.type("one" + ESCAPE + ENTER + "two\nthree\\" + ENTER + "four")
            await glass.until("› one\n  two\n  three\n  four\n")
            glass.type(ENTER)
            await glass.until("› one\n  two\n  three\n  four\n\nSeen.")
    assert asked(server) == ["one\ntwo\nthree\nfour"]


async def test_ten_thousand_pasted_lines_are_one_line_and_are_sent_whole(home):
    text = "".join(f"this is line number {number} of the paste\n" for number in range(10_000))
    async with ModelServer([Say("Long.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            await glass.until("answers")
            glass.type("sum up ")
            await glass.feed(pasted(text.replace("\n", "\r")))
            await glass.until("› sum up [pasted 10,000 lines]")
            glass.type(" in a word" + ENTER)
            await glass.until("› sum up [pasted 10,000 lines] in a word\n\nLong.")
            assert glass.written < 5000
            glass.type(UP)
            await glass.until(lambda: glass.text.count("sum up [pasted 10,000 lines] in a word") == 2)
            glass.type(BACKSPACE * 11)
            await glass.until(lambda: "› sum up" in glass.rows)  # a paste is deleted by one key
    assert asked(server) == [f"sum up {text} in a word"]


async def test_a_short_paste_is_text_and_sends_nothing_by_itself(home):
    async with ModelServer([Say("Both.")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            await glass.until("answers")
            glass.type(pasted("two\r\nlines"))
            await glass.until("› two\n  lines")
            assert server.requests == []
            glass.type(ENTER)
            await glass.until("Both.")
    assert asked(server) == ["two\nlines"]


async def test_the_history_is_there_the_next_time_and_nobody_else_may_read_it(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        for text in ("first", "second"):
            glass.type(text + ENTER)
            await glass.until(f"You said: {text}")
    assert stat.S_IMODE((home.path / "history").stat().st_mode) == 0o600
    async with Glass.of(home, "-m", "scripted", "--session", "another") as glass:
        await glass.until("answers")
        glass.type(UP)
        await glass.until(lambda: "› second" in glass.rows)
        glass.type(UP)
        await glass.until(lambda: "› first" in glass.rows)
        glass.type(DOWN)
        await glass.until(lambda: "› second" in glass.rows)
        glass.type(CTRL_C + "\x12fir")
        await glass.until("earlier input with: fir")
        assert "? first" in glass.rows
        glass.type(ENTER + ENTER)
        await glass.until("You said: first")


async def test_commands_models_and_files_are_completed(home, tmp_path):
    (tmp_path / "chapter one.md").touch()
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "two.md").touch()
    async with Glass.of(home, "-m", "scripted") as glass:
        await glass.until("answers")
        glass.type("/st")
        await glass.until("  /status")
        assert any("/stop" in row for row in glass.rows) and any("/steer" in row for row in glass.rows)
        glass.type("a" + TAB)
        await glass.until(lambda: "› /status" in glass.rows)
        glass.type(ENTER)
        await glass.until("nothing is running")
        glass.type("/model scr")
        await glass.until("  scripted/echo")
        glass.type(TAB)
        await glass.until("› /model scripted/echo")
        glass.type(ENTER)
        await glass.until("scripted/echo answers in this conversation")
        glass.type("read @cha")
        await glass.until("chapter one.md")
        glass.type("pters" + TAB)
        await glass.until(lambda: "› read @chapters/" in glass.rows)
        glass.type("t")
        await glass.until("  two.md")
        glass.type(ESCAPE)
        await glass.until(lambda: "  two.md" not in glass.rows)
        glass.type(TAB)
        await glass.until("› read @chapters/two.md")
        glass.type(ENTER)
        await glass.until("You said: read @chapters/two.md")


async def test_the_menu_moves_with_the_arrows_and_goes_away_without_a_trace(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        await glass.until("answers")
        glass.type("/")
        await glass.until("  … ")
        glass.type(DOWN + DOWN)
        await glass.until(lambda: "› /new" in "\n".join(glass.rows[3:]) and glass.rows.count("› /new") == 1)
        glass.type(CTRL_C)
        await glass.until(lambda: glass.shown[2:] == ["›", "  scripted/echo"])


async def test_a_message_can_be_written_in_an_editor(home, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys\ntext = open(sys.argv[1]).read()\nprint('editing')\n"
        "open(sys.argv[1], 'w').write(text.upper() + ' at length\\n')\n"
    )
    async with Glass.of(home, "-m", "scripted", EDITOR=f"{sys.executable} {editor}", VISUAL="") as glass:
        await glass.until("answers")
        glass.type("some words" + "\x18\x05")
        await glass.until("› SOME WORDS at length")
        assert "editing" in glass.text
        glass.type(ENTER)
        await glass.until("You said: SOME WORDS at length")


async def test_an_empty_screen_keeps_the_scrollback(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        glass.type("hello" + ENTER)
        await glass.until("You said: hello")
        glass.type("draft\x0c")
        await glass.until(lambda: glass.rows[1] == "› draft")
        assert "You said: hello" in glass.text and glass.shown[0] == "› draft" and len(glass.shown) == 2


async def test_no_key_is_lost_while_text_streams_in(home):
    words = " ".join(f"word{number}" for number in range(400))
    async with ModelServer([Say(words, pieces=400, delay=0.005)]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            await glass.until("answers")
            glass.type("go" + ENTER)
            await glass.until("word3")
            typed = ""
            for number in range(60):
                letter = "abcdefghij"[number % 10]
                typed += letter
                glass.type(letter)
                await asyncio.sleep(0.02)
            await glass.until(f"› {typed}")
            await glass.until("word399")
            told = " ".join(glass.text.split())
            assert words in told and f"› {typed}" in told


async def test_keys_of_other_keyboards_and_bytes_that_are_no_text_do_no_harm(home):
    async with Glass.of(home, "-m", "scripted") as glass:
        await glass.until("answers")
        glass.type("zwölf 日本語 🙂 ")
        await glass.until("› zwölf 日本語")
        glass.type_bytes(b"\xff\xfe\x80 end" + ENTER.encode())
        await glass.until("You said: zwölf 日本語")
        await glass.until(" end")
