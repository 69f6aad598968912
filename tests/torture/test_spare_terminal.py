"""The terminal while its window changes, wide letters stream in and 10,000 lines are pasted; and when nothing happens."""

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


def story(dice: random.Random) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(150)) + "\n\nThe end of it."


async def shake(terminal: TerminalProcess, dice: random.Random, over: asyncio.Event) -> int:
    """Sizes that people drag a window through, quickly."""
    times = 0
    while not over.is_set():
        terminal.resize(dice.randint(20, 160), dice.randint(5, 50))
        times += 1
        await asyncio.sleep(dice.choice((0.0, 0.01, dice.uniform(0, 0.15))))
    terminal.resize(100, 30)
    return times


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(1, 20))
async def test_no_word_is_lost_however_the_window_is_shaken(tmp_path, seed, figures):
    """Half of the answers are stopped in their midst; what was pasted meanwhile is sent whole all the same."""
    dice, home = random.Random(seed), Home(tmp_path / "home")
    stopped = dice.random() < 0.5
    first = Stall(story(dice)) if stopped else Say(story(dice), pieces=80, delay=0.02)
    async with ModelServer([first, Say("It was all there.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 30)) as terminal, asyncio.TaskGroup() as group:
            await terminal.until("(from ")
            over = asyncio.Event()
            shaking = group.create_task(shake(terminal, dice, over))
            terminal.type("tell me a story" + ENTER)
            await server.asked()
            await terminal.feed(f"sum up \x1b[200~{PASTE}\x1b[201~")
            if stopped:
                await terminal.until("The end of it.")
                terminal.type(CTRL_C)
            await server.idle()
            await asyncio.sleep(dice.uniform(0, 0.3))
            over.set()
            figures.tried(await shaking)
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
async def test_not_a_byte_is_written_and_hardly_any_time_is_used_while_nothing_happens(tmp_path, figures):
    async with TerminalProcess.of(Home(tmp_path / "home"), "-m", "scripted") as terminal:
        terminal.type("hello" + ENTER)
        await terminal.until("You said: hello\n\n›")
        await asyncio.sleep(1)
        before, used = terminal.written, terminal.cpu()
        await asyncio.sleep(IDLE)
        assert terminal.written == before
        figures.worst("CPU of an idle terminal", share := 100 * (terminal.cpu() - used) / IDLE, "%")
        assert share < 2
