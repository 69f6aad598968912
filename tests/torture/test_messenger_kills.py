"""`alipes serve` killed with SIGKILL while people write and responses of the messenger get lost."""

import asyncio
import os
import random
import re
import signal

import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve
from tests.world.discord_server import DiscordServer
from tests.world.slack_server import SlackServer

KILLS = min(int(os.environ.get("ALIPES_TORTURE_TRIALS", "2")), 50)
PEOPLE = [f"person{number}" for number in range(6)]


class OnDiscord:
    name, server = "discord", DiscordServer

    @staticmethod
    def tokens(server):
        return f"DISCORD_BOT_TOKEN={server.token}\n"

    @staticmethod
    def inject_faults(server, who, message, rng):
        """Sometimes it loses the response to a send, or delivers a message twice."""
        if rng.random() < 0.2:
            server.again(message)
        if rng.random() < 0.2:
            server.trouble("lost", "POST", f"/channels/{server.place('', who)}/messages")


class OnSlack:
    name, server = "slack", SlackServer

    @staticmethod
    def tokens(server):
        server.board.retries = (0.05, 1.0, 3.0)
        return f"SLACK_BOT_TOKEN={server.token}\nSLACK_APP_TOKEN={server.app_token}\n"

    @staticmethod
    def inject_faults(server, who, _message, rng):
        if rng.random() < 0.2:
            # not `late`: a message accepted after the next process has checked cannot be detected
            server.trouble("lost", "chat.postMessage", server.place("", who)[0])


def write_home(home, messenger, server):
    home.path.mkdir(mode=0o700)
    allowed = [server.world.person(name).id for name in PEOPLE]
    here = [f"[{messenger.name}]", f'base_url = "{server.base_url}"', f"allow = {allowed}", 'busy = "queue"']
    (home.path / "config.toml").write_text("\n".join(['model = "scripted/echo"', *here, ""]))
    (home.path / ".env").write_text(messenger.tokens(server))
    (home.path / ".env").chmod(0o600)


@pytest.mark.deadline(60 + 10 * KILLS)
@pytest.mark.parametrize("messenger", [OnDiscord, OnSlack], ids=lambda each: each.name)
async def test_every_message_is_answered_once_and_in_order_however_often_it_is_killed(messenger, tmp_path, figures):
    rng, said, over = random.Random(7), {who: [] for who in PEOPLE}, asyncio.Event()

    async def talk(who):
        while not over.is_set():
            said[who].append(f"{who}n{len(said[who])}.")
            messenger.inject_faults(server, who, server.say(said[who][-1], who), rng)
            await asyncio.sleep(rng.uniform(0.1, 0.6))

    def answers(who):
        seen = "\n".join(post.text for post in server.posts("", who))
        return re.findall(r"You said: (\w+\.)", seen)

    async with messenger.server() as server, asyncio.TaskGroup() as tasks:
        write_home(home := Home(tmp_path / "home"), messenger, server)
        async with open_serve(home) as served:
            await served.ready()
            for who in PEOPLE:
                tasks.create_task(talk(who))
            await asyncio.sleep(rng.uniform(0.2, 1.0))
            await served.left(by=signal.SIGKILL)
        for _ in range(KILLS - 1):
            async with open_serve(home) as served:
                await asyncio.sleep(rng.uniform(0.0, 2.0))
                await served.left(by=signal.SIGKILL)
        over.set()
        async with open_serve(home) as served:
            server.troubles.clear()  # those that did not occur
            await server.until(lambda: all(set(said[who]) <= set(answers(who)) for who in PEOPLE))
            assert await served.left() == 0
        assert {who: answers(who) for who in PEOPLE} == said
    figures.tried(KILLS)
    figures.worst("messages of one person", max(map(len, said.values())))
