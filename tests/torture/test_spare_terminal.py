"""The terminal while it is resized, wide characters stream in and 10,000 lines are pasted; and while it is idle."""

import asyncio
import random

import pytest

from tests.e2e.program import Home
from tests.torture.trials import LONG, seeds
from tests.world.model_server import ModelServer, Say, Stall
from tests.world.terminal_process import CTRL_C, CTRL_D, ENTER, TerminalProcess

WORDS = ("lighthouse", "灯台の光", "등대", "🏝️", "👩‍👩‍👧", "naïve", "`code`", "**bold**", "ＷＩＤＥ", "x" * 37)
PASTE = "".join(f"line {number} 行\r" for number in range(10_000))
IDLE = 60.0 if LONG else 3.0


def make_story(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(150)) + "\n\nThe end of it."


async def resize_randomly(terminal: TerminalProcess, rng: random.Random, over: asyncio.Event) -> int:
    """Resize the window quickly, as when it is dragged; returns how often."""
    times = 0
    while not over.is_set():
        terminal.resize(rng.randint(20, 160), rng.randint(5, 50))
        times += 1
        await asyncio.sleep(rng.choice((0.0, 0.01, rng.uniform(0, 0.15))))
    terminal.resize(100, 30)
    return times


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(1, 20))
async def test_no_text_is_lost_while_the_window_is_resized(tmp_path, seed, figures):
    """Half of the answers are stopped; the pasted text is sent complete either way."""
    rng, home = random.Random(seed), Home(tmp_path / "home")
    stopped = rng.random() < 0.5
    first = Stall(make_story(rng)) if stopped else Say(make_story(rng), pieces=80, delay=0.02)
    async with ModelServer([first, Say("It was all there.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 30)) as terminal, asyncio.TaskGroup() as group:
            await terminal.until("(from ")
            over = asyncio.Event()
            resizing = group.create_task(resize_randomly(terminal, rng, over))
            terminal.type("tell me a story" + ENTER)
            await server.asked()
            await terminal.feed(f"sum up \x1b[200~{PASTE}\x1b[201~")
            if stopped:
                await terminal.until("The end of it.")
                terminal.type(CTRL_C)
            await server.idle()
            await asyncio.sleep(rng.uniform(0, 0.3))
            over.set()
            figures.tried(await resizing)
            await terminal.until(lambda: "10,000 lines]" in "".join(terminal.rows))
            terminal.type(ENTER)
            await terminal.until("It was all there.")
            assert "Traceback" not in terminal.text and terminal.text.count("The end of it.") >= 1
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
            assert not terminal.is_raw()
    asked = server.bodies[-1]["messages"][-1]["content"]
    assert asked == "sum up " + PASTE.replace("\r", "\n"), seed


@pytest.mark.deadline(120)
async def test_an_idle_terminal_writes_nothing_and_uses_almost_no_cpu(tmp_path, figures):
    async with TerminalProcess.of(Home(tmp_path / "home"), "-m", "scripted") as terminal:
        terminal.type("hello" + ENTER)
        await terminal.until("You said: hello\n\n›")
        await asyncio.sleep(1)
        before, used = terminal.written, terminal.cpu()
        await asyncio.sleep(IDLE)
        assert terminal.written == before
        figures.worst("CPU of an idle terminal", share := 100 * (terminal.cpu() - used) / IDLE, "%")
        assert share < 2
