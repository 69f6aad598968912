"""`alipes serve` on Discord killed with -9 while people write, also while it is down and Discord's answers get lost."""

import asyncio
import os
import random
import re
import signal

import pytest

from tests.e2e.program import Home
from tests.e2e.service import serving
from tests.world.discord_server import DiscordServer

KILLS = min(int(os.environ.get("ALIPES_TORTURE_TRIALS", "2")), 50)
PEOPLE = [f"person{number}" for number in range(6)]


def settle(home, server):
    home.path.mkdir(mode=0o700)
    allowed = [server.world.person(name).id for name in PEOPLE]
    lines = ['model = "scripted/echo"', "[discord]", f'base_url = "{server.base_url}"', f"allow = {allowed}"]
    (home.path / "config.toml").write_text("\n".join([*lines, 'busy = "queue"', ""]))
    (home.path / ".env").write_text(f"DISCORD_BOT_TOKEN={server.token}\n")
    (home.path / ".env").chmod(0o600)


async def talk(server, who, dice, said, over):
    """Until it is over. Now and then Discord takes an answer, and we are not told that it did."""
    while not over.is_set():
        said[who].append(f"{who}n{len(said[who])}.")
        message = server.say(said[who][-1], who)
        if dice.random() < 0.2:
            server.again(message)
        if dice.random() < 0.2:
            server.trouble("lost", "POST", f"/channels/{server.place('', who)}/messages")
        await asyncio.sleep(dice.uniform(0.1, 0.6))


@pytest.mark.deadline(60 + 10 * KILLS)
async def test_every_message_is_answered_once_and_in_order_however_often_it_is_killed(tmp_path, figures):
    dice, said, over = random.Random(7), {who: [] for who in PEOPLE}, asyncio.Event()

    def answers(who):
        told = "\n".join(post.text for post in server.posts("", who))
        return re.findall(r"You said: (\w+\.)", told)

    async with DiscordServer() as server, asyncio.TaskGroup() as tasks:
        settle(home := Home(tmp_path / "home"), server)
        async with serving(home) as served:
            await served.ready()
            for who in PEOPLE:
                tasks.create_task(talk(server, who, dice, said, over))
            await asyncio.sleep(dice.uniform(0.2, 1.0))
            await served.left(by=signal.SIGKILL)
        for _ in range(KILLS - 1):
            async with serving(home) as served:
                await asyncio.sleep(dice.uniform(0.0, 2.5))
                await served.left(by=signal.SIGKILL)
        over.set()
        async with serving(home) as served:
            server.troubles.clear()  # of those that nobody met
            await server.until(lambda: all(set(said[who]) <= set(answers(who)) for who in PEOPLE))
            assert await served.left() == 0
        assert {who: answers(who) for who in PEOPLE} == said
    figures.tried(KILLS)
    figures.worst("messages of one person", max(map(len, said.values())))
