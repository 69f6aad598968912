"""Our Discord, judged by a plain bot on the real discord.py."""

import asyncio
import io
import warnings
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import pytest
import yarl

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord
    from discord import app_commands
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

from tests.world.discord_server import DiscordServer, serve


class Bot(discord.Client):
    """Says back what it hears, offers a button and a command."""

    def __init__(self):
        intents = discord.Intents.default()
        intents.message_content = True
        super().__init__(intents=intents, guild_ready_timeout=0.1, max_ratelimit_timeout=30)
        self.heard = []
        self.pressed = []
        self.changed = []
        self.resumes = 0
        self.tree = app_commands.CommandTree(self)

        @self.tree.command(name="status", description="how it goes")
        async def status(interaction: discord.Interaction, arguments: str = ""):
            await interaction.response.send_message(f"fine {arguments}".strip(), ephemeral=True)

    async def on_message(self, message):
        if message.author.bot:
            return
        self.heard.append(message)
        if message.content.startswith("echo"):
            await message.reply(f"you said {message.content}")

    async def on_message_edit(self, before, after):
        self.changed.append((before.content, after.content))

    async def on_resumed(self):
        self.resumes += 1

    async def on_interaction(self, interaction):
        if interaction.type is discord.InteractionType.component:
            self.pressed.append(interaction.data["custom_id"])
            await interaction.response.edit_message(content="pressed", view=None)


@contextmanager
def aimed(server):
    """discord.py keeps its addresses in classes; they are put back."""
    before = Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
    Route.BASE = server.base_url
    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(server.world.root.replace("http", "ws") + "/gateway/")
    try:
        yield
    finally:
        Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = before


@asynccontextmanager
async def running(server):
    with aimed(server):
        async with Bot() as bot, asyncio.TaskGroup() as tasks:
            tasks.create_task(bot.start(server.token))
            await server.until(bot.is_ready)
            yield bot
            await bot.close()


async def test_a_bot_answers_in_direct_messages_channels_and_threads():
    async with DiscordServer() as server, running(server) as bot:
        said = server.say("echo one")
        server.say("echo two @alipes", where="general")
        server.say("echo three", where="general/plans")
        await server.until(lambda: server.said() and server.said("general") and server.said("general/plans"))
        assert server.said() == ["you said echo one"]
        assert server.posts()[0].answers == said
        here, channel, thread = bot.heard
        assert isinstance(here.channel, discord.DMChannel) and here.author.name == "ada"
        assert channel.guild.name == "The Guild" and channel.channel.name == "general"
        assert bot.user in channel.mentions
        assert isinstance(thread.channel, discord.Thread) and thread.channel.parent == channel.channel


async def test_edits_replies_and_forwards_arrive_as_such():
    async with DiscordServer() as server, running(server) as bot:
        first = server.say("first")
        server.say("second", answers=first)
        server.say("", forwards=first)
        server.change(first, "changed")
        await server.until(lambda: len(bot.heard) == 3 and bot.changed)
        assert bot.heard[1].reference.resolved.content == "first"
        assert bot.heard[2].message_snapshots[0].content == "first"
        assert bot.changed == [("first", "changed")]


async def test_files_travel_both_ways():
    async with DiscordServer() as server, running(server) as bot:
        server.say("look", files=[("cat.png", "image/png", b"not really"), ("a.txt", "text/plain", b"text")])
        server.say("", files=[("voice-message.ogg", "audio/ogg", b"Ogg")], voice=True)
        await server.until(lambda: len(bot.heard) == 2)
        picture, text = bot.heard[0].attachments
        assert (await picture.read(), await text.read()) == (b"not really", b"text")
        assert bot.heard[1].attachments[0].is_voice_message()
        file = discord.File(io.BytesIO(b"figures"), "report.csv")
        sent = await bot.heard[0].channel.send("here", file=file)
        assert (await sent.attachments[0].read(), sent.attachments[0].filename) == (b"figures", "report.csv")
        assert server.posts()[-1].files[0].data == b"figures"


async def test_a_message_is_changed_deleted_and_announced_by_typing():
    async with DiscordServer() as server, running(server) as bot:
        channel = bot.get_channel(int(server.place("general")))
        async with channel.typing():
            sent = await channel.send("draft")
        await sent.edit(content="final")
        assert [(post.text, [text for _, text in post.edits]) for post in server.posts("general")] == [
            ("final", ["final"])
        ]
        assert server.rest.signs
        assert [message.content async for message in channel.history()] == ["final"]
        await sent.delete()
        assert server.said("general") == []
        with pytest.raises(discord.NotFound):
            await sent.edit(content="too late")


async def test_the_same_nonce_gives_the_same_message():
    async with DiscordServer() as server, running(server) as bot:
        channel = bot.get_channel(int(server.place("general")))
        one, other = [await channel.send("once", nonce="n1") for _ in range(2)]
        assert one.id == other.id
        assert server.said("general") == ["once"]


async def test_buttons_are_pressed_and_slash_commands_chosen():
    async with DiscordServer() as server, running(server) as bot:
        await bot.tree.sync()
        channel = bot.get_channel(int(server.place("general")))
        view = discord.ui.View(timeout=None)
        view.add_item(discord.ui.Button(label="Yes", custom_id="yes:1"))
        sent = await channel.send("sure?", view=view)
        view.stop()
        pressed = server.press(str(sent.id), "yes:1")
        await server.until(lambda: server.interaction(pressed).answer)
        assert bot.pressed == ["yes:1"]
        assert server.posts("general")[0].text == "pressed" and not server.posts("general")[0].buttons
        chosen = server.slash("status", "now", where="general")
        await server.until(lambda: server.interaction(chosen).answer)
        assert server.interaction(chosen).answer["data"]["content"] == "fine now"
        assert server.world.posts[server.interaction(chosen).post].flags & 64


@pytest.mark.parametrize("how", ["drop", "ask_to_reconnect", "resumable"])
async def test_a_lost_connection_is_resumed_and_missed_events_are_replayed(how):
    async with DiscordServer() as server, running(server) as bot:
        server.say("before")
        await server.until(lambda: bot.heard)
        if how == "resumable":
            server.gateway.invalidate(resumable=True)
        else:
            getattr(server.gateway, how)()
        server.say("meanwhile")
        await server.until(lambda: bot.resumes)
        server.say("after")
        await server.until(lambda: len(bot.heard) == 3)
        assert [message.content for message in bot.heard] == ["before", "meanwhile", "after"]
        assert (server.gateway.count("identify"), server.gateway.count("resume")) == (1, 1)


async def test_heartbeats_are_answered_and_silence_is_a_lost_connection():
    async with DiscordServer() as server:
        server.gateway.interval = 0.2
        async with running(server) as bot:
            await server.until(lambda: server.gateway.count("beat") >= 3)
            assert bot.latency < 5
            server.gateway.deafen()
            assert not server.gateway.ready
            # The library would notice after a minute; it is enough that nothing comes through.
            server.say("unheard")
            await asyncio.sleep(0.3)
            assert not bot.heard
            server.gateway.drop()
            await server.until(lambda: bot.resumes)
            await server.until(lambda: bot.heard)


async def test_a_wrong_token_is_refused():
    async with DiscordServer() as server:
        async with Bot() as bot:
            with aimed(server), pytest.raises(discord.LoginFailure):
                await bot.start("another token")


async def test_rate_limit_windows_are_announced_and_enforced():
    async with DiscordServer() as server, running(server) as bot:
        server.limits["/messages"] = (2, 0.5)
        channel = bot.get_channel(int(server.place("general")))
        for number in range(4):
            await channel.send(str(number))
        assert server.said("general") == ["0", "1", "2", "3"]
        assert not [call for call in server.calls if call.status == 429]  # the library read the headers
        server.trouble("limit", "POST", "/messages", retry_after=0.1)
        await channel.send("later")
        assert [call.status for call in server.asked("POST", "/messages")][-2:] == [429, 200]
        server.trouble("limit", "POST", "/messages", retry_after=34)
        with pytest.raises(discord.RateLimited) as limited:
            await channel.send("much later")
        assert limited.value.retry_after == 34


async def test_accidents_befall_the_requests_they_are_meant_for():
    async with DiscordServer() as server, running(server) as bot:
        channel = bot.get_channel(int(server.place("general")))
        server.trouble("lost", "POST", "/messages")
        with pytest.raises(aiohttp.ClientError):
            await channel.send("arrived")
        server.trouble("drop", "POST", "/messages")
        with pytest.raises(aiohttp.ClientError):
            await channel.send("never arrived")
        server.trouble("late", "POST", "/messages")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await channel.send("accepted")
        server.trouble("status", "POST", "/messages", status=503)
        with pytest.raises(discord.DiscordServerError):
            await channel.send("refused")
        server.rest.forbidden.add(str(channel.id))
        with pytest.raises(discord.Forbidden):
            await channel.send("forbidden")
        assert server.said("general") == ["arrived", "accepted"]


async def test_what_discord_refuses_is_refused():
    async with DiscordServer() as server, running(server) as bot:
        channel = bot.get_channel(int(server.place("general")))
        for content in ("", "   ", "x" * 2001):
            with pytest.raises(discord.HTTPException) as refused:
                await channel.send(content)
            assert refused.value.status == 400
        with pytest.raises(discord.NotFound):
            await bot.get_partial_messageable(1).send("nowhere")


@pytest.mark.deadline(60)
async def test_it_serves_from_a_process_of_its_own(tmp_path):
    async with serve(tmp_path) as served:
        await served.do("tune", interval=10.0, limits={"/messages": [5, 1.0]})
        said = await served.do("say", text="hello", who="ada")
        headers = {"Authorization": f"Bot {served.token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            place = await served.do("place")
            async with session.get(f"{served.base_url}/channels/{place}/messages") as response:
                assert [message["id"] for message in await response.json()] == [said]
            async with session.post(f"{served.base_url}/channels/{place}/messages", json={"content": "hi"}) as response:
                assert response.status == 200
        assert await served.do("said") == ["hi"]
        assert [line["body"] for line in served.log_lines("call")][-1] == {"content": "hi"}
