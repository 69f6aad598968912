"""What stands on the screen: golden at 80x24, right at any size, in any script, with and without colours."""

import asyncio

import pytest

from tests.e2e.program import Home
from tests.world.glass import CTRL_D, ENTER, Glass
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall, Tokens

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
alipes 0.1.0 · ~ · /help shows the commands
· test/scripted answers. It is the configured one.

› look around, please

✓ terminal echo hello
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
  test/scripted · 13 % of 64k · $0.1600"""


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def priced(home: Home) -> None:
    file = home.path / "config.toml"
    facts = '[models."test/scripted"]\nwindow = 64000\nprice_input = 10.0\nprice_output = 100.0\n'
    file.write_text(file.read_text() + facts)


async def test_a_turn_at_80x24_looks_like_this(home):
    script = [
        Calls((Call("terminal", {"command": "echo hello"}),), usage=Tokens(1000, 100)),
        Say(MARKDOWN, pieces=60, usage=Tokens(8000, 600)),
    ]
    async with ModelServer(script) as server:
        home.use(server)
        priced(home)
        async with Glass.of(home) as glass:
            await glass.until("answers.")
            glass.type("look around, please" + ENTER)
            await glass.until("$0.1")
            await glass.until(lambda: glass.text.rstrip() == GOLDEN)
            row = next(y for y, text in enumerate(glass.rows) if text == "What I found")
            assert glass.screen.buffer[row][0].bold and glass.screen.buffer[row][0].fg == "brightblue"
            assert glass.screen.cursor.y == 21 and glass.screen.cursor.x == 2
            glass.type(CTRL_D)
            assert await glass.ended() == 0
            assert glass.text.rstrip() == GOLDEN.rpartition("\n›")[0].rstrip()  # what is left in the shell


async def test_a_resize_in_the_middle_of_a_stream_leaves_one_of_everything(home):
    words = " ".join(f"word{number}" for number in range(300))
    async with ModelServer([Say(words, pieces=300, delay=0.01)]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            await glass.until("answers.")
            glass.type("go" + ENTER)
            await glass.until("word20")
            glass.type("a draft")
            await glass.until("› a draft")
            for columns, lines in ((50, 20), (100, 30), (33, 10), (80, 24)):
                seen = glass.text.count("word")
                glass.resize(columns, lines)
                await glass.until(
                    lambda seen=seen: glass.text.count("word") > seen + 20 or "word299" in glass.text
                )
                assert glass.text.count("› a draft") == 1
                assert sum("answering" in row for row in glass.text.split("\n")) <= 1
            await glass.until("word299")
            await glass.until(lambda: not any("answering" in row for row in glass.rows))
            assert glass.rows.count("› a draft") == 1
            shown = [word for word in glass.text.split() if word.startswith("word")]
            assert shown[-20:] == [f"word{number}" for number in range(280, 300)]


@pytest.mark.parametrize("size", [(20, 5), (10, 3), (5, 2), (3, 1)])
async def test_tiny_screens_work_too(home, size):
    async with ModelServer([Say("A rather long answer, for such a screen.", pieces=10)] * 2) as server:
        home.use(server)
        async with Glass.of(home, size=size) as glass:
            await glass.until(lambda: "›" in glass.text)
            glass.type("hello, I type more than fits" + ENTER)
            await server.asked()
            await glass.until(lambda: "screen." in "".join(glass.text.split()))
            glass.type("again" + ENTER)
            await server.asked(2)
            glass.type(CTRL_D)
            glass.type(CTRL_D)
            await glass.ended()
    contents = [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "user"]
    assert contents == ["hello, I type more than fits", "again"]


async def test_wide_letters_and_emoji_stay_in_their_columns(home):
    answer = "日本語の文章はとても長いので、画面の端で折り返されるはずです。👍 そして🙂続きます。" * 3
    async with ModelServer([Say(answer, pieces=60, delay=0.01)]) as server:
        home.use(server)
        async with Glass.of(home, size=(40, 24)) as glass:
            await glass.until("answers.")
            glass.type("質問です🙂")
            await glass.until("› 質問です🙂")
            assert glass.screen.cursor.x == 2 + 8 + 2
            glass.type(ENTER)
            await glass.until(lambda: answer.replace(" ", "") in "".join(glass.text.split()))
            await glass.until(lambda: glass.rows.count("›") == 1)
            assert "› 質問です🙂" in glass.text


async def test_a_table_and_a_long_address_survive_a_narrow_screen(home):
    address = "https://example.org/" + "a-long-path/" * 8 + "end"
    text = f"| name | value |\n|---|---|\n| one | {'x' * 60} |\n\nSee {address} now.\n\nDone."
    async with ModelServer([Say(text, pieces=40)]) as server:
        home.use(server)
        async with Glass.of(home, size=(40, 20)) as glass:
            glass.type("go" + ENTER)
            await glass.until("Done.\n\n›")
            assert address in glass.text.replace("\n", "")


async def test_without_colours_there_are_none(home):
    async with ModelServer([Say(MARKDOWN)]) as server:
        home.use(server)
        async with Glass.of(home, NO_COLOR="1") as glass:
            glass.type("go" + ENTER)
            await glass.until("return a + b")
            await glass.until("·")
    assert b"m" not in {bytes([byte]) for byte in _finals(bytes(glass.raw))}


@pytest.mark.parametrize(("colours", "hue"), [("0;15", "cyan"), ("15;0", "brightcyan")])
async def test_colours_suit_the_background(home, colours, hue):
    async with Glass.of(home, "-m", "scripted", COLORFGBG=colours) as glass:
        await glass.until("answers")
        row = glass.rows.index("›")
        assert glass.screen.buffer[row][0].fg == hue


@pytest.mark.parametrize(("answer", "hue"), [("ffff/fefe/f0f0", "cyan"), ("1616/1818/1d1d", "brightcyan")])
async def test_the_terminal_is_asked_for_its_background_and_its_answer_is_no_typing(home, answer, hue):
    async with Glass.of(home, "-m", "scripted", COLORFGBG="") as glass:
        await glass.until("›")
        assert b"\x1b]11;?\x1b\\" in glass.raw
        glass.type("a\x1b]11;rgb")
        await asyncio.sleep(0.3)  # longer than an escape key would be waited for
        glass.type(f":{answer}\x1b\\b")
        await glass.until("› ab")
        await glass.until(lambda: glass.screen.buffer[glass.rows.index("› ab")][0].fg == hue)
        glass.type(ENTER)
        await glass.until("You said: ab")


async def test_the_title_of_the_window_is_left_alone_and_no_other_screen_is_entered(home):
    async with ModelServer([Say(MARKDOWN), Stall("\x1b]0;owned\x07\x1b[?1049h")]) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("go" + ENTER)
            await glass.until("return a + b")
            glass.type("attack" + ENTER)
            await glass.until("]0;owned")
            glass.type(CTRL_D)
            await glass.ended()
    for sequence in (b"\x1b]0;", b"\x1b]2;", b"\x1b[?1049"):
        assert sequence not in glass.raw


def _finals(data: bytes) -> list[int]:
    """The last bytes of all control sequences."""
    found, at = [], 0
    while (at := data.find(b"\x1b[", at)) >= 0:
        at += 2
        while not 0x40 <= data[at] <= 0x7E:
            at += 1
        found.append(data[at])
    return found


async def test_a_terminal_that_speaks_latin_is_spoken_to_in_latin(home):
    async with Glass.of(home, "-m", "scripted", PYTHONIOENCODING="latin-1") as glass:
        await glass.until("answers")
        glass.type_bytes("zwölf".encode("latin-1") + ENTER.encode())
        await glass.until("You said: zw\N{REPLACEMENT CHARACTER}lf")  # as who expects UTF-8 reads it
    assert "zwölf".encode("latin-1") in glass.raw
    assert b">\x1b[0m " in glass.raw and "›".encode() not in glass.raw
