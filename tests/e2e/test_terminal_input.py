"""Input: several lines, pastes, history, completion, external editor, fast typing."""

import asyncio
import stat
import sys

import pytest

from tests.e2e.program import Home
from tests.world.model_server import ModelServer, Say
from tests.world.terminal_process import CTRL_C, ENTER, ESCAPE, TerminalProcess

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
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("one" + ESCAPE + ENTER + "two\nthree\\" + ENTER + "four")
            await terminal.until("› one\n  two\n  three\n  four\n")
            terminal.type(ENTER)
            await terminal.until("› one\n  two\n  three\n  four\n\nSeen.")
    assert asked(server) == ["one\ntwo\nthree\nfour"]


async def test_ten_thousand_pasted_lines_are_shown_as_one_and_sent_whole(home):
    text = "".join(f"this is line number {number} of the paste\n" for number in range(10_000))
    async with ModelServer([Say("Long.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("sum up ")
            await terminal.feed(pasted(text.replace("\n", "\r")))
            await terminal.until("› sum up [pasted 10,000 lines]")
            terminal.type(" in a word" + ENTER)
            await terminal.until("› sum up [pasted 10,000 lines] in a word\n\nLong.")
            assert terminal.written < 5000
            terminal.type(UP)
            await terminal.until(lambda: terminal.text.count("sum up [pasted 10,000 lines] in a word") == 2)
            terminal.type(BACKSPACE * 11)
            await terminal.until(lambda: "› sum up" in terminal.rows)  # a paste is deleted by one key
    assert asked(server) == [f"sum up {text} in a word"]


async def test_a_short_paste_is_inserted_and_not_sent(home):
    async with ModelServer([Say("Both.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type(pasted("two\r\nlines"))
            await terminal.until("› two\n  lines")
            assert server.requests == []
            terminal.type(ENTER)
            await terminal.until("Both.")
    assert asked(server) == ["two\nlines"]


async def test_the_history_is_kept_and_private(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        for text in ("first", "second"):
            terminal.type(text + ENTER)
            await terminal.until(f"You said: {text}")
    assert stat.S_IMODE((home.path / "history").stat().st_mode) == 0o600
    async with TerminalProcess.of(home, "-m", "scripted", "--session", "another") as terminal:
        await terminal.until("(from ")
        terminal.type(UP)
        await terminal.until(lambda: "› second" in terminal.rows)
        terminal.type(UP)
        await terminal.until(lambda: "› first" in terminal.rows)
        terminal.type(DOWN)
        await terminal.until(lambda: "› second" in terminal.rows)
        terminal.type(CTRL_C + "\x12fir")
        await terminal.until("history search: fir")
        assert "? first" in terminal.rows
        terminal.type(ENTER + ENTER)
        await terminal.until("You said: first")


async def test_commands_models_and_files_are_completed(home, tmp_path):
    (tmp_path / "chapter one.md").touch()
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "two.md").write_text("Second chapter.")
    async with ModelServer([Say("Read.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("/st")
            await terminal.until("  /status")
            assert any("/stop" in row for row in terminal.rows) and any("/steer" in row for row in terminal.rows)
            terminal.type("a" + TAB)
            await terminal.until(lambda: "› /status" in terminal.rows)
            terminal.type(ENTER)
            await terminal.until("nothing is running")
            terminal.type("/model large")
            await terminal.until("▸ test/scripted-large")
            terminal.type(TAB)
            await terminal.until("› /model test/scripted-large")
            terminal.type(ENTER)
            await terminal.until("Switched to test/scripted-large")
            terminal.type("read @cha")
            await terminal.until("chapter one.md")
            terminal.type("pters" + TAB)
            await terminal.until(lambda: "› read @chapters/" in terminal.rows)
            terminal.type("t")
            await terminal.until("▸ chapters/two.md")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "▸ chapters/two.md" not in terminal.rows)
            terminal.type(TAB)
            await terminal.until("› read @chapters/two.md")
            terminal.type(ENTER)
            await terminal.until("Read.")
    assert asked(server) == [
        'read @chapters/two.md \n\n<attachment path="chapters/two.md">\nSecond chapter.\n</attachment>'
    ]


async def test_the_menu_follows_the_arrow_keys_and_disappears(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("/")
        await terminal.until("  … ")
        await terminal.until("▸ /help")  # Enter would take it
        terminal.type(DOWN)
        await terminal.until(lambda: terminal.rows.count("› /new") == 1)
        assert any(row.startswith("▸ /new ") for row in terminal.rows)
        terminal.type(CTRL_C)
        await terminal.until(lambda: terminal.shown[2:] == ["›", "  scripted/echo · ~"])


async def test_a_message_can_be_written_in_an_editor(home, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys\ntext = open(sys.argv[1]).read()\nprint('editing')\n"
        "open(sys.argv[1], 'w').write(text.upper() + ' at length\\n')\n"
    )
    async with TerminalProcess.of(home, "-m", "scripted", EDITOR=f"{sys.executable} {editor}", VISUAL="") as terminal:
        await terminal.until("(from ")
        terminal.type("some words" + "\x18\x05")
        await terminal.until("› SOME WORDS at length")
        assert "editing" in terminal.text
        terminal.type(ENTER)
        await terminal.until("You said: SOME WORDS at length")


async def test_clearing_the_screen_keeps_the_scrollback(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        terminal.type("hello" + ENTER)
        await terminal.until("You said: hello")
        terminal.type("draft\x18\x0c")
        await terminal.until(lambda: terminal.rows[1] == "› draft")
        assert "You said: hello" in terminal.text and terminal.shown[0] == "› draft" and len(terminal.shown) == 2


async def test_no_key_is_lost_while_text_streams_in(home):
    words = " ".join(f"word{number}" for number in range(400))
    async with ModelServer([Say(words, pieces=400, delay=0.005)]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("go" + ENTER)
            await terminal.until("word3")
            typed = ""
            for number in range(60):
                letter = "abcdefghij"[number % 10]
                typed += letter
                terminal.type(letter)
                await asyncio.sleep(0.02)
            await terminal.until(f"› {typed}")
            await terminal.until("word399")
            on_screen = " ".join(terminal.text.split())
            assert words in on_screen and f"› {typed}" in on_screen


async def test_unknown_keys_and_invalid_bytes_are_ignored(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("zwölf 日本語 🙂 ")
        await terminal.until("› zwölf 日本語")
        terminal.type_bytes(b"\xff\xfe\x80 end" + ENTER.encode())
        await terminal.until("You said: zwölf 日本語")
        await terminal.until(" end")
