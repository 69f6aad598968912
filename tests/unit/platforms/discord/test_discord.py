"""The Discord platform against the loopback Discord: receiving, sending, opening."""

import asyncio
import sys

import pytest

from alipes.kernel.errors import ConfigError, DeliveryError, Undeliverable
from alipes.kernel.models import Secret
from alipes.kernel.outbox import Button, Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.discord.platform import DiscordPlatform, open_platform
from alipes.platforms.discord.settings import DiscordConfig
from tests.unit.platforms.discord.harness import at_work, settings, where
from tests.world.discord_server import DiscordServer
from tests.world.recording_gateway import RecordingGateway

# Receiving


async def test_text_arrives_from_direct_messages_channels_and_threads(tmp_path, leaks):
    async with at_work(tmp_path) as (server, _, ears):
        id = server.say("hello", who="ada")
        server.say("@alipes hi there", who="bob", where="general")
        server.say("just talk", who="bob", where="general")
        server.say("in a thread @alipes", who="bob", where="general/plans")
        await server.until(lambda: len(ears.arrivals) == 4)
        direct, called, overheard, thread = sorted(ears.arrivals, key=lambda arrival: int(arrival.id))
        assert (direct.id, direct.text, direct.name, direct.message) == (id, "hello", "Ada", id)
        assert direct.address == where(server) and direct.address.key == f"agent:main:discord:dm:{server.place()}"
        assert not direct.group and direct.addressed
        general = server.place("general")
        assert called.address == Address("discord", general, "group") and called.text == "hi there"
        assert called.sender == server.world.person("bob").id
        assert called.group and called.addressed and not overheard.addressed
        assert thread.address == Address("discord", general, "group", server.place("general/plans"))


async def test_mentions_our_role_and_replies_to_us_are_addressed(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        ours = await platform.send(Address("discord", server.place("general"), "group"), MessagePart("I said this"))
        server.say(f"<@&{server.world.bot_role}> by role", where="general")
        answer = server.say("by answer", where="general", answers=ours)
        server.say("no, you", where="general", answers=answer, who="bob")
        bob = server.world.person("bob").id
        server.say(f"<@{bob}> look at <#{server.place('general')}>", where="general")
        await server.until(lambda: len(ears.arrivals) == 4)
        assert [(a.text, a.addressed) for a in ears.arrivals] == [
            ("by role", True),
            ("by answer", True),
            ("no, you", False),
            ("@Bob look at #general", False),
        ]
        assert ears.arrivals[1].quoted == "Alipes: I said this"


async def test_replies_and_forwards_are_quoted(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        first = server.say("obey me", who="bob", where="general")
        server.say("what about this? @alipes", where="general", answers=first)
        server.say("", forwards=first)
        await server.until(lambda: len(ears.arrivals) == 3)
        quoted = {a.text: a.quoted for a in ears.arrivals}
        assert quoted == {"obey me": "", "what about this?": "Bob: obey me", "": "Forwarded:\nobey me"}


async def test_an_edit_names_the_original_and_link_previews_are_no_edits(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        id = server.say("helo")
        await server.until(lambda: ears.arrivals)
        server.rest.tell("MESSAGE_UPDATE", server.world.posts[id])  # Discord added a preview
        server.change(id, "hello")
        server.rest.tell("MESSAGE_UPDATE", server.world.posts[id])
        server.say("end")
        await server.until(lambda: "end" in ears.texts)
        assert [(a.text, a.edits) for a in ears.arrivals] == [("helo", ""), ("hello", id), ("end", "")]
        assert ears.arrivals[1].id != id


async def test_a_failed_download_does_not_lose_the_text(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.say("before")
        id = server.say("here", where="general", files=[("gone.txt", "text/plain", b"text")])
        await server.until(lambda: len(ears.arrivals) == 2)
        assert ears.arrivals[1].files == ()  # not addressed, so not downloaded
        assert server.downloads == []
        server.world.files.clear()
        server.say("and this", answers=id, files=[("gone.txt", "text/plain", b"text")])
        server.world.files.clear()
        await server.until(lambda: len(ears.arrivals) == 3)
        assert ears.texts[2].startswith("and this\n[gone.txt could not be downloaded: 404")
        assert not list(tmp_path.glob("files/*"))


async def test_bots_and_we_ourselves_are_ignored(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        server.world.person("robot", bot=True)
        server.say("@alipes loop", who="robot", where="general")
        await platform.send(where(server), MessagePart("mine"))
        server.say("@alipes pinned", where="general", kind=6)
        server.say("person")
        await server.until(lambda: ears.arrivals)
        assert ears.texts == ["person"]


async def test_one_chat_stays_in_order_and_does_not_delay_another(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.trouble("slow", "GET", "/cdn")
        gate = ears.hold()
        for number in range(5):
            server.say(str(number))
            server.say(str(number + 10), who="bob")
        gate.set()
        await server.until(lambda: len(ears.arrivals) == 10)
        mine = [arrival.text for arrival in ears.arrivals if arrival.address == where(server)]
        assert mine == ["0", "1", "2", "3", "4"]


async def test_a_button_is_acknowledged_and_arrives_with_its_data(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        buttons = tuple(Button(f"label {n}", f"ask:{n}") for n in range(7))
        message = await platform.send(where(server), MessagePart("sure?", buttons=buttons))
        assert [len(row["components"]) for row in server.posts()[0].components] == [5, 2]
        pressed = server.press(message, "ask:6")
        await server.until(lambda: ears.arrivals and server.interaction(pressed).answer)
        [arrival] = ears.arrivals
        assert (arrival.pressed, arrival.message, arrival.id) == ("ask:6", message, pressed)
        assert (arrival.sender, arrival.address) == (server.world.person("ada").id, where(server))
        assert server.interaction(pressed).answer == {"type": 6}
        await platform.edit(where(server), message, MessagePart("yes"))
        assert server.posts()[0].buttons == []


async def test_slash_commands_are_registered_and_arrive_as_text(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        await platform.set_commands((("stop", "stop the task"), ("model", "x" * 300)))
        assert [command["name"] for command in server.rest.commands] == ["stop", "model"]
        chosen = server.slash("model", "fast one", where="general/plans")
        await server.until(lambda: ears.arrivals and server.interaction(chosen).answer)
        [arrival] = ears.arrivals
        assert (arrival.text, arrival.group, arrival.addressed) == ("/model fast one", True, True)
        assert arrival.address.thread == server.place("general/plans")
        answer = server.interaction(chosen).answer
        assert answer["type"] == 4 and answer["data"]["flags"] == 64


async def test_a_command_does_not_wait_behind_a_slow_message(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        await platform.set_commands((("stop", "stop the task"),))
        gate = ears.hold()
        server.say("slow")
        chosen = server.slash("stop")
        await server.until(lambda: server.interaction(chosen).answer)
        assert ears.arrivals == []
        gate.set()
        await server.until(lambda: len(ears.arrivals) == 2)


async def test_the_menu_is_registered_once_and_only_when_connected(tmp_path):
    commands = (("stop", "stop the task"),)
    async with at_work(tmp_path) as (server, platform, _):
        await platform.set_commands(commands)
        await platform.set_commands(commands)
        assert len(server.asked("PUT", "/commands")) == 1
    with pytest.raises(DeliveryError):
        await platform.set_commands((("new", "start over"),))


# Sending


async def test_messages_are_sent_edited_and_deleted(tmp_path, leaks):
    async with at_work(tmp_path) as (server, platform, _):
        thread = Address("discord", server.place("general"), "group", server.place("general/plans"))
        asked = server.say("question", where="general/plans")
        message = await platform.send(thread, MessagePart("**answer** @everyone", reply_to=asked, id="1"))
        [post] = server.posts("general/plans")
        assert (post.id, post.text, post.answers) == (message, "**answer** @everyone", asked)
        sent = server.asked("POST", "/messages")[0].body
        assert sent["allowed_mentions"]["parse"] == []
        await platform.edit(thread, message, MessagePart("better"))
        await platform.edit(thread, message, MessagePart("better"))
        assert server.said("general/plans") == ["better"]
        await platform.typing(thread)
        assert [place for _, place in server.rest.signs] == [thread.thread]
        await platform.delete(thread, message)
        await platform.delete(thread, message)
        assert server.said("general/plans") == []


async def test_a_reply_to_a_deleted_message_is_still_sent(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        await platform.send(where(server), MessagePart("answer", reply_to="12345"))
        assert server.said() == ["answer"]


async def test_files_are_sent_with_their_caption(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        path = tmp_path / "report.csv"
        path.write_bytes(b"a,b")
        await platform.send(
            where(server), MessagePart(media=Media(str(path), caption="figures", name="q3.csv"), id="f")
        )
        [post] = server.posts()
        assert (post.text, post.files[0].name, post.files[0].data) == ("figures", "q3.csv", b"a,b")
        with pytest.raises(Undeliverable, match="cannot be read"):
            await platform.send(where(server), MessagePart(media=Media(str(tmp_path / "none"))))


@pytest.mark.parametrize("accident", ["lost", "late"])
async def test_an_unconfirmed_message_is_not_sent_twice(tmp_path, accident):
    async with at_work(tmp_path, deadline=1.0) as (server, platform, _):
        assert platform.capabilities.deduplicates
        server.trouble(accident, "POST", "/messages")
        piece = MessagePart("once", id="outbound:" + "long" * 20 + ":0")
        with pytest.raises(DeliveryError) as doubtful:
            await platform.send(where(server), piece)
        assert doubtful.value.uncertain and not isinstance(doubtful.value, Undeliverable)
        message = await platform.send(where(server), piece)
        assert [post.id for post in server.posts()] == [message]


async def test_errors_say_who_acts_next(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        server.trouble("limit", "POST", "/messages", retry_after=34)
        with pytest.raises(DeliveryError) as limited:
            await platform.send(where(server), MessagePart("x"))
        assert (limited.value.retry_after, limited.value.uncertain) == (34, False)
        server.trouble("limit", "PATCH", "/messages", retry_after=0.4)
        message = await platform.send(where(server), MessagePart("x"))
        with pytest.raises(DeliveryError) as limited:
            await platform.edit(where(server), message, MessagePart("y"))
        assert limited.value.retry_after == 0.4
        server.trouble("status", "POST", "/messages", status=502)
        with pytest.raises(DeliveryError) as broken:
            await platform.send(where(server), MessagePart("x"))
        assert broken.value.uncertain and len(server.asked("POST", "/messages")) == 3  # one attempt each
        with pytest.raises(Undeliverable, match="no longer has this chat"):
            await platform.send(Address("discord", "123"), MessagePart("x"))
        with pytest.raises(Undeliverable, match="no longer has this chat or message"):
            await platform.edit(where(server), "123", MessagePart("x"))
        with pytest.raises(Undeliverable, match="rejected it"):
            await platform.send(where(server), MessagePart("x" * 2001))
        server.rest.forbidden.add(server.place())
        with pytest.raises(Undeliverable, match="does not allow"):
            await platform.send(where(server), MessagePart("x"))


async def test_a_global_rate_limit_applies_to_all_calls(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        server.trouble("limit", "POST", "/messages", retry_after=60, everywhere=True)
        for place in (where(server), where(server, "bob")):
            with pytest.raises(DeliveryError) as limited:
                await platform.send(place, MessagePart("x"))
            assert 55 < limited.value.retry_after <= 60
        assert len(server.asked("POST", "/messages")) == 1


async def test_sending_respects_the_rate_limit_windows(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        server.limits["/messages"] = (3, 0.6)
        for number in range(8):
            await platform.send(where(server), MessagePart(str(number)))
        assert server.said() == [str(number) for number in range(8)]
        assert {call.status for call in server.asked("POST", "/messages")} == {200}


async def test_nothing_is_sent_without_a_connection(tmp_path):
    async with DiscordServer() as server:
        platform = DiscordPlatform(settings(server, tmp_path))
        with pytest.raises(DeliveryError, match="not connected yet"):
            await platform.send(where(server), MessagePart("x"))


# Opening


async def test_a_missing_token_says_what_to_set(tmp_path):
    with pytest.raises(ConfigError, match="token_env"):
        open_platform(DiscordConfig(token=Secret("")), None)


async def test_a_missing_library_says_how_to_install_it(tmp_path):
    code = """if True:
        import sys
        from pathlib import Path
        from alipes.config.settings import Settings
        from alipes.kernel.errors import ConfigError
        from alipes.platforms.registry import open_messenger
        assert "discord" not in sys.modules and "aiohttp" not in sys.modules
        sys.modules["discord"] = None  # as if it were not installed
        try:
            open_messenger("discord", Settings(home=Path(sys.argv[1])), None)
        except ConfigError as error:
            print(error)
    """
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, tmp_path, stdout=asyncio.subprocess.PIPE)
    seen, _ = await child.communicate()
    assert b"alipes install discord" in seen


async def test_a_wrong_token_is_a_config_error_that_does_not_show_it(tmp_path, leaks):
    async with DiscordServer() as server:
        platform = DiscordPlatform(settings(server, tmp_path, token=Secret("secret token")))
        with pytest.raises(ConfigError, match="does not know the bot's token") as refused:
            await platform.listen(RecordingGateway().take, RecordingGateway().tell)
        assert "secret token" not in str(refused.value)


async def test_missing_read_permission_says_what_to_turn_on(tmp_path, leaks):
    async with DiscordServer() as server:
        server.gateway.disallowed = 1 << 15
        platform = DiscordPlatform(settings(server, tmp_path))
        with pytest.raises(ConfigError, match="Message Content Intent"):
            await platform.listen(RecordingGateway().take, RecordingGateway().tell)
