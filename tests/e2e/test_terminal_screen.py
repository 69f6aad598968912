"""The screen: a golden image at 80x24, other sizes, wide characters, colours."""

import asyncio

import pytest

from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall, Tokens
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)
MARKDOWN = """\
## What I found

The **first** thing is `width`, and this sentence is long enough to be broken at the edge of the screen.

- one
- two

```python
def add(a, b):
    return a + b
```
"""
GOLDEN = """\
alipes 0.2.0 · ~ · /help for commands
· Model: test/scripted (from config.toml)

› look around, please

✓ Run echo hello
  │ hello

What I found

The first thing is width, and this sentence is long enough to be broken at the
edge of the screen.

• one
• two

── python
def add(a, b):
    return a + b
──

›
  test/scripted · ▰▱▱▱▱▱ 13 % of 64k · $0.1600 · ~"""


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def priced(home: Home) -> None:
    file = home.path / "config.toml"
    facts = '[models."test/scripted"]\nwindow = 64000\nprice_input = 10.0\nprice_output = 100.0\n'
    file.write_text(file.read_text() + facts)


async def test_golden_screen_of_a_turn_at_80x24(home):
    script = [
        Calls((Call("terminal", {"command": "echo hello"}),), usage=Tokens(1000, 100)),
        Say(MARKDOWN, pieces=60, usage=Tokens(8000, 600)),
    ]
    async with ModelServer(script) as server:
        home.use(server)
        priced(home)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("look around, please" + ENTER)
            await terminal.until("$0.1")
            await terminal.until(lambda: terminal.text.rstrip() == GOLDEN)
            row = next(y for y, text in enumerate(terminal.rows) if text == "What I found")
            assert terminal.screen.buffer[row][0].bold and terminal.screen.buffer[row][0].fg == "brightblue"
            assert terminal.screen.cursor.y == 22 and terminal.screen.cursor.x == 2
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
            remains = GOLDEN.rpartition("\n›")[0].rstrip()
            assert terminal.text.rstrip() == f"{remains}\n\nContinue with: alipes -c"  # what remains in the shell


async def test_a_resize_during_a_stream_duplicates_nothing(home):
    words = " ".join(f"word{number}" for number in range(300))
    async with ModelServer([Say(words, pieces=300, delay=0.01)]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("go" + ENTER)
            await terminal.until("word20")
            terminal.type("a draft")
            await terminal.until("› a draft")
            for columns, lines in ((50, 20), (100, 30), (33, 10), (80, 24)):
                seen = terminal.text.count("word")
                terminal.resize(columns, lines)
                await terminal.until(
                    lambda seen=seen: terminal.text.count("word") > seen + 20 or "word299" in terminal.text
                )
                assert terminal.text.count("› a draft") == 1
                assert sum("writing" in row for row in terminal.text.split("\n")) <= 1
            await terminal.until("word299")
            await terminal.until(lambda: not any("writing" in row for row in terminal.rows))
            assert terminal.rows.count("› a draft") == 1
            shown = [word for word in terminal.text.split() if word.startswith("word")]
            assert shown[-20:] == [f"word{number}" for number in range(280, 300)]


@pytest.mark.parametrize("size", [(20, 5), (10, 3), (5, 2), (3, 1)])
async def test_tiny_screens_work(home, size):
    async with ModelServer([Say("A rather long answer, for such a screen.", pieces=10)] * 2) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=size) as terminal:
            await terminal.until(lambda: "›" in terminal.text)
            terminal.type("hello, I type more than fits" + ENTER)
            await server.asked()
            await terminal.until(lambda: "screen." in "".join(terminal.text.split()))
            terminal.type("again" + ENTER)
            await server.asked(2)
            terminal.type(CTRL_D)
            terminal.type(CTRL_D)
            await terminal.ended()
    contents = [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "user"]
    assert contents == ["hello, I type more than fits", "again"]


async def test_wide_letters_and_emoji_stay_in_their_columns(home):
    answer = "日本語の文章はとても長いので、画面の端で折り返されるはずです。👍 そして🙂続きます。" * 3
    async with ModelServer([Say(answer, pieces=60, delay=0.01)]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(40, 24)) as terminal:
            await terminal.until("(from")
            terminal.type("質問です🙂")
            await terminal.until("› 質問です🙂")
            assert terminal.screen.cursor.x == 2 + 8 + 2
            terminal.type(ENTER)
            await terminal.until(lambda: answer.replace(" ", "") in "".join(terminal.text.split()))
            await terminal.until(lambda: terminal.rows.count("›") == 1)
            assert "› 質問です🙂" in terminal.text


async def test_a_table_and_a_long_address_survive_a_narrow_screen(home):
    address = "https://example.org/" + "a-long-path/" * 8 + "end"
    text = f"| name | value |\n|---|---|\n| one | {'x' * 60} |\n\nSee {address} now.\n\nDone."
    async with ModelServer([Say(text, pieces=40)]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(40, 20)) as terminal:
            terminal.type("go" + ENTER)
            await terminal.until("Done.\n\n›")
            assert address in terminal.text.replace("\n", "")


async def test_no_color_disables_colours(home):
    async with ModelServer([Say(MARKDOWN)]) as server:
        home.use(server)
        async with TerminalProcess.of(home, NO_COLOR="1") as terminal:
            terminal.type("go" + ENTER)
            await terminal.until("return a + b")
            await terminal.until("·")
    assert b"m" not in {bytes([byte]) for byte in _finals(bytes(terminal.raw))}


@pytest.mark.parametrize(("colours", "hue"), [("0;15", "cyan"), ("15;0", "brightcyan")])
async def test_colours_suit_the_background(home, colours, hue):
    async with TerminalProcess.of(home, "-m", "scripted", COLORFGBG=colours) as terminal:
        await terminal.until("(from ")
        row = next(y for y, text in enumerate(terminal.screen.display) if text.startswith("›"))
        assert terminal.screen.buffer[row][0].fg == hue


@pytest.mark.parametrize(("answer", "hue"), [("ffff/fefe/f0f0", "cyan"), ("1616/1818/1d1d", "brightcyan")])
async def test_the_background_colour_reply_is_not_taken_for_typing(home, answer, hue):
    async with TerminalProcess.of(home, "-m", "scripted", COLORFGBG="") as terminal:
        await terminal.until("›")
        assert b"\x1b]11;?\x1b\\" in terminal.raw
        terminal.type("a\x1b]11;rgb")
        await asyncio.sleep(0.3)  # longer than the escape key timeout
        terminal.type(f":{answer}\x1b\\b")
        await terminal.until("› ab")
        row = next(y for y, text in enumerate(terminal.screen.display) if text.startswith("› ab"))
        await terminal.until(lambda: terminal.screen.buffer[row][0].fg == hue)
        terminal.type(ENTER)
        await terminal.until("You said: ab")


async def test_the_model_cannot_set_the_window_title_or_use_the_alternate_screen(home):
    async with ModelServer([Say(MARKDOWN), Stall("\x1b]0;owned\x07\x1b[?1049h")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("go" + ENTER)
            await terminal.until("return a + b")
            terminal.type("attack" + ENTER)
            await terminal.until("]0;owned")
            terminal.type(CTRL_D)
            await terminal.ended()
    for sequence in (b"\x1b]0;", b"\x1b]2;owned", b"\x1b[?1049"):
        assert sequence not in terminal.raw


def _finals(data: bytes) -> list[int]:
    """The final bytes of all control sequences."""
    found, at = [], 0
    while (at := data.find(b"\x1b[", at)) >= 0:
        at += 2
        while not 0x40 <= data[at] <= 0x7E:
            at += 1
        found.append(data[at])
    return found


async def test_a_latin_1_terminal_gets_latin_1(home):
    async with TerminalProcess.of(home, "-m", "scripted", PYTHONIOENCODING="latin-1") as terminal:
        await terminal.until("(from ")
        terminal.type_bytes("zwölf".encode("latin-1") + ENTER.encode())
        await terminal.until("You said: zw\N{REPLACEMENT CHARACTER}lf")  # decoded as UTF-8
    assert "zwölf".encode("latin-1") in terminal.raw
    assert b">\x1b[0m " in terminal.raw and "›".encode() not in terminal.raw
