"""`alipes serve` on Slack killed with -9 while people write, also while it is down and Slack's answers get lost."""

import asyncio
import os
import random
import re
import signal

import pytest

from tests.e2e.program import Home
from tests.e2e.service import serving
from tests.world.slack_server import SlackServer

KILLS = min(int(os.environ.get("ALIPES_TORTURE_TRIALS", "2")), 50)
PEOPLE = [f"person{number}" for number in range(6)]


def settle(home, server):
    home.path.mkdir(mode=0o700)
    allowed = [server.world.person(name).id for name in PEOPLE]
    lines = ['model = "scripted/echo"', "[slack]", f'base_url = "{server.base_url}"', f"allow = {allowed}"]
    (home.path / "config.toml").write_text("\n".join([*lines, 'busy = "queue"', ""]))
    tokens = f"SLACK_BOT_TOKEN={server.token}\nSLACK_APP_TOKEN={server.app_token}\n"
    (home.path / ".env").write_text(tokens)
    (home.path / ".env").chmod(0o600)


async def talk(server, who, dice, said, over):
    """Until it is over. Now and then Slack takes an answer, and we are not told that it did."""
    while not over.is_set():
        said[who].append(f"{who}n{len(said[who])}.")
        server.say(said[who][-1], who)
        if dice.random() < 0.2:
            # not `late`: what is taken only after the next process has looked for it, nobody can know of
            server.trouble("lost", "chat.postMessage", server.place("", who)[0])
        await asyncio.sleep(dice.uniform(0.1, 0.6))


@pytest.mark.deadline(60 + 10 * KILLS)
async def test_every_message_is_answered_once_and_in_order_however_often_it_is_killed(tmp_path, figures):
    dice, said, over = random.Random(7), {who: [] for who in PEOPLE}, asyncio.Event()

    def answers(who):
        told = "\n".join(post.text for post in server.posts("", who))
        return re.findall(r"You said: (\w+\.)", told)

    async with SlackServer() as server, asyncio.TaskGroup() as tasks:
        server.board.retries = (0.05, 1.0, 3.0)
        settle(home := Home(tmp_path / "home"), server)
        async with serving(home) as served:
            await server.until(lambda: server.board.lines)
            for who in PEOPLE:
                tasks.create_task(talk(server, who, dice, said, over))
            await asyncio.sleep(dice.uniform(0.2, 1.0))
            await served.left(by=signal.SIGKILL)
        for _ in range(KILLS - 1):
            async with serving(home) as served:
                await asyncio.sleep(dice.uniform(0.0, 1.5))
                await served.left(by=signal.SIGKILL)
        over.set()
        async with serving(home) as served:
            server.troubles.clear()  # of those that nobody met
            await server.until(lambda: all(set(said[who]) <= set(answers(who)) for who in PEOPLE))
            assert await served.left() == 0
        assert {who: answers(who) for who in PEOPLE} == said
    figures.tried(KILLS)
    figures.worst("messages of one person", max(map(len, said.values())))
