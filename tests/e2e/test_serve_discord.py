"""`alipes serve` with the loopback Discord and the real discord.py, and without the library."""

import asyncio
import signal

import pytest

from tests.e2e.program import Home, read_until
from tests.e2e.service import OWNER, open_serve, write_settings
from tests.world.discord_server import DiscordServer
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def settle_discord(home: Home, discord: DiscordServer) -> None:
    who = discord.world.person("ada").id
    with (home.path / "config.toml").open("a") as file:
        file.write(f'[discord]\nbase_url = "{discord.base_url}"\nallow = ["{who}"]\n')
    with (home.path / ".env").open("a") as file:
        file.write(f"DISCORD_BOT_TOKEN={discord.token}\n")
    (home.path / ".env").chmod(0o600)


async def test_two_platforms_are_served_and_one_that_is_down_does_not_affect_the_other(home):
    script = [Say("On Telegram."), Say("On Discord."), Say("Still on Discord.")]
    async with ModelServer(script) as model, TelegramServer() as telegram, DiscordServer() as discord:
        write_settings(home, model, telegram)
        settle_discord(home, discord)
        async with open_serve(home) as served:
            assert "telegram, discord" in await read_until(served.process.stdout, "Ctrl-C")
            await served.ready()
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "On Telegram.")
            discord.say("hello")
            await discord.until(lambda: "On Discord." in discord.said())
            await telegram.down()
            while "telegram" not in (await served.get("/ready")).json().get("because", {}):
                await asyncio.sleep(0.05)
            discord.say("and now?")
            await discord.until(lambda: "Still on Discord." in discord.said())
            assert await served.metric('alipes_platform_ready{platform="discord"}') == 1
            assert await served.metric('alipes_platform_ready{platform="telegram"}') == 0
            await telegram.up()
            await served.ready()
            assert await served.left() == 0


async def test_a_message_during_shutdown_is_answered_by_the_next_process(home):
    slow = Say("The first, in its time.", pieces=8, delay=0.25)
    async with ModelServer([slow, Say("The second.")]) as model, DiscordServer() as discord:
        write_settings(home, model)
        settle_discord(home, discord)
        async with open_serve(home) as served:
            await served.ready()
            discord.say("one")
            await model.asked()
            served.process.send_signal(signal.SIGTERM)
            await served.heard(b"STOPPING=1")
            discord.say("two")
            assert await served.left(by=None) == 0
        assert discord.said() == ["The first, in its time."]
        async with open_serve(home):
            await discord.until(lambda: "The second." in discord.said())
        assert discord.said() == ["The first, in its time.", "The second."]


async def test_a_missing_library_is_reported_and_the_other_platforms_are_served(home, tmp_path):
    """A package that cannot be imported simulates a missing one."""
    broken = tmp_path / "broken" / "discord"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ModuleNotFoundError('No module', name='discord')\n")
    path = f"{broken.parent}:{home.environ()['PYTHONPATH']}"
    async with ModelServer([Say("Here.")]) as model, TelegramServer() as telegram, DiscordServer() as discord:
        write_settings(home, model, telegram)
        settle_discord(home, discord)
        async with open_serve(home, PYTHONPATH=path) as served:
            said = await read_until(served.process.stdout, "Ctrl-C")
            assert "serves telegram at" in said and "alipes install discord" in said
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "Here.")
            assert "alipes install discord" in (await served.get("/ready")).json()["because"]["discord"]
