"""The terminal while its window changes, wide letters stream in and 10,000 lines are pasted; and when nothing happens."""

import asyncio
import random

import pytest

from tests.e2e.program import Home
from tests.torture.trials import LONG, seeds
from tests.world.glass import CTRL_C, CTRL_D, ENTER, Glass
from tests.world.model_server import ModelServer, Say, Stall

WORDS = ("lighthouse", "灯台の光", "등대", "🏝️", "👩‍👩‍👧", "naïve", "`code`", "**bold**", "ＷＩＤＥ", "x" * 37)
PASTE = "".join(f"line {number} 行\r" for number in range(10_000))
IDLE = 60.0 if LONG else 3.0


def story(dice: random.Random) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(150)) + "\n\nThe end of it."


async def shake(glass: Glass, dice: random.Random, over: asyncio.Event) -> int:
    """Sizes that people drag a window through, quickly."""
    times = 0
    while not over.is_set():
        glass.resize(dice.randint(20, 160), dice.randint(5, 50))
        times += 1
        await asyncio.sleep(dice.choice((0.0, 0.01, dice.uniform(0, 0.15))))
    glass.resize(100, 30)
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
        async with Glass.of(home, size=(100, 30)) as glass, asyncio.TaskGroup() as group:
            await glass.until("answers.")
            over = asyncio.Event()
            shaking = group.create_task(shake(glass, dice, over))
            glass.type("tell me a story" + ENTER)
            await server.asked()
            await glass.feed(f"sum up \x1b[200~{PASTE}\x1b[201~")
            if stopped:
                await glass.until("The end of it.")
                glass.type(CTRL_C)
            await server.idle()
            await asyncio.sleep(dice.uniform(0, 0.3))
            over.set()
            figures.tried(await shaking)
            await glass.until(lambda: "10,000 lines]" in "".join(glass.rows))
            glass.type(ENTER)
            await glass.until("It was all there.")
            assert "Traceback" not in glass.text and glass.text.count("The end of it.") >= 1
            glass.type(CTRL_D)
            assert await glass.ended() == 0
            assert not glass.is_raw()
    asked = server.bodies[-1]["messages"][-1]["content"]
    assert asked == "sum up " + PASTE.replace("\r", "\n"), seed


@pytest.mark.deadline(120)
async def test_not_a_byte_is_written_and_hardly_any_time_is_used_while_nothing_happens(tmp_path, figures):
    async with Glass.of(Home(tmp_path / "home"), "-m", "scripted") as glass:
        glass.type("hello" + ENTER)
        await glass.until("You said: hello\n\n›")
        await asyncio.sleep(1)
        before, used = glass.written, glass.cpu()
        await asyncio.sleep(IDLE)
        assert glass.written == before
        figures.worst("CPU of an idle terminal", share := 100 * (glass.cpu() - used) / IDLE, "%")
        assert share < 2
