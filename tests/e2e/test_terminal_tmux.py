"""The terminal inside tmux: a real terminal program that reflows, keeps a scrollback and counts widths itself."""

import asyncio
import os
import shlex
import sys

import pytest

from tests.e2e.program import Home
from tests.world.environment import require
from tests.world.model_server import ModelServer, Say, Stall

pytestmark = pytest.mark.deadline(90)


class Tmux:
    """A tmux server with one window."""

    def __init__(self, folder) -> None:
        self._tmux = require("tmux", "apt install tmux")
        self._socket = str(folder / "tmux.sock")

    async def run(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(self._tmux, "-S", self._socket, "-f", os.devnull, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return out.decode()

    async def start(self, home: Home, *words: str, size: tuple[int, int] = (80, 24)) -> None:
        columns, lines = size
        home.path.mkdir(mode=0o700, exist_ok=True)
        (home.path / "history").touch(mode=0o600)  # no welcome
        env = [f"{name}={value}" for name, value in home.environ().items()]
        command = shlex.join(
            ["env", "-i", "TERM=tmux-256color", "TMUX=1", *env, sys.executable, "-m", "alipes", *words]
        )
        await self.run("new-session", "-d", "-x", str(columns), "-y", str(lines), f"{command}; echo left $?; cat")
        await self.run("set-option", "-g", "window-size", "manual")

    async def type(self, *keys: str) -> None:
        await self.run("send-keys", *keys)

    async def text(self, *more: str) -> str:
        """Scrollback and screen; `-J` joins wrapped lines."""
        rows = (await self.run("capture-pane", "-p", "-S", "-", *more)).split("\n")
        return "\n".join(row.rstrip() for row in rows if len(row) < 4 or row.strip("─"))  # without the rule

    async def rule(self, columns: int) -> None:
        """Wait for the rule above the input at this width."""
        for _ in range(400):
            if "─" * columns in (await self.run("capture-pane", "-p")).split("\n"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(await self.text())

    async def until(self, words: str) -> str:
        for _ in range(400):
            if words in (text := await self.text()):
                return text
            await asyncio.sleep(0.05)
        raise AssertionError(f"{words!r} did not appear:\n{text}")


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_a_conversation_in_tmux(home, tmp_path):
    tmux = Tmux(tmp_path)
    async with ModelServer([Say("**Good** morning 👩\u200d👧 日本語.", pieces=8, delay=0.02), Say("Bye.")]) as server:
        home.use(server)
        try:
            await tmux.start(home)
            await tmux.until("(from ")
            await tmux.type("hello 👍 日本", "Enter")
            await tmux.until("› hello 👍 日本\n\nGood morning 👩\u200d👧 日本語.\n\n›")
            await tmux.type("bye", "Enter")
            text = await tmux.until("› bye\n\nBye.\n\n›\n  test/scripted")
            assert text.count("›") == 3 and text.count("Good morning") == 1
            await tmux.type("C-d")
            await tmux.until("Bye.\n\nContinue with: alipes -c\nleft 0")
        finally:
            await tmux.run("kill-server")


async def test_a_resize_in_tmux_reflows_and_duplicates_nothing(home, tmp_path):
    tmux = Tmux(tmp_path)
    words = " ".join(f"word{number}" for number in range(200))
    async with ModelServer([Say(words, pieces=200, delay=0.02)]) as server:
        home.use(server)
        try:
            await tmux.start(home)
            await tmux.until("(from ")
            await tmux.type("go", "Enter")
            await tmux.until("word20")
            await tmux.type("a draft")
            await tmux.until("› a draft")
            for number, (columns, lines) in enumerate(((50, 20), (100, 30), (33, 12), (80, 24))):
                await tmux.run("resize-window", "-x", str(columns), "-y", str(lines))
                await tmux.until(f"word{60 + 35 * number}")
                text = await tmux.text()
                assert text.count("› a draft") == 1, text
                assert text.count("writing") <= 1, text
            await tmux.until("word199")
            text = await tmux.text("-J")
            assert [word for word in text.split() if word.startswith("word")] == words.split()
        finally:
            await tmux.run("kill-server")


async def test_live_rows_that_fill_the_screen_are_erased_after_a_resize(home, tmp_path):
    tmux = Tmux(tmp_path)
    head = "| Name | Description of the thing | Remarks |\n|---|---|---|\n"
    table = head + "".join(
        f"| row {n} | a rather long description {n} with many words | none at all |\n" for n in range(8)
    )
    async with ModelServer([Stall(table)]) as server:
        home.use(server)
        try:
            await tmux.start(home)
            await tmux.until("(from ")
            await tmux.type("go", "Enter")
            await tmux.until("row 7 ")
            for columns in (60, 45):
                await tmux.run("resize-window", "-x", str(columns), "-y", "24")
                await tmux.rule(columns)
            text = await tmux.text()
            assert text.count("writing") == 1 and text.count("row 7 ") == 1, text
        finally:
            await tmux.run("kill-server")


async def test_messages_stay_in_the_scrollback_of_the_normal_screen(home, tmp_path):
    tmux = Tmux(tmp_path)
    answer = "".join(f"- item {number}\n" for number in range(120))
    async with ModelServer([Say(answer, pieces=100), Stall("And then")]) as server:
        home.use(server)
        try:
            await tmux.start(home, size=(60, 15))
            await tmux.type("list", "Enter")
            await tmux.until("• item 119\n\n›")
            text = await tmux.text()
            assert [row for row in text.split("\n") if "item" in row] == [f"• item {n}" for n in range(120)]
            assert await tmux.run("display-message", "-p", "#{alternate_on}") == "0\n"
            await tmux.type("more", "Enter")
            await tmux.until("And then")
            await tmux.type("C-c")
            await tmux.until("· stopped")
        finally:
            await tmux.run("kill-server")


async def test_emoji_that_tmux_counts_otherwise_destroy_no_other_rows(home, tmp_path):
    tmux, thumb, family = Tmux(tmp_path), "\U0001f44d\U0001f3fd", "👩\u200d👩\u200d👧\u200d👦"
    listed = "".join(f"- {thumb * (number + 1)} good {number}\n" for number in range(30))
    table = f"| who | what |\n|---|---|\n| {family * 3} | all of them, and more words so that the row is full |\n"
    code = ["from __future__ import annotations", "import asyncio", "x" * 100 + thumb * 12 + " = 1", "main()"]
    answer = f"{listed}\n{table}\n```python\n" + "\n".join(code) + "\n```\n\nThe end."
    async with ModelServer([Say(answer, pieces=200, delay=0.005), Say(answer)]) as server:
        home.use(server)
        try:
            await tmux.start(home)
            await tmux.until("(from ")
            for word in ("list", "again"):
                await tmux.type(word, "Enter")
                await tmux.until(f"› {word}\n\n• ")
                await tmux.until("The end.\n\n›\n")
            text = await tmux.text("-J")
            for line in (code[0], code[1], code[3], "The end."):
                assert text.count(f"\n{line}\n") == 2, text
            assert text.count("x" * 100) == 2 and text.count(" = 1\n") == 2
            for number in range(30):
                assert text.count(f" good {number}\n") == 2, text
        finally:
            await tmux.run("kill-server")
