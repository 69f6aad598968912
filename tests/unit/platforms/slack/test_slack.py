"""The Slack platform against the loopback Slack: receiving and opening."""

import asyncio
import sys

import pytest

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.kernel.outbox import Button
from alipes.kernel.platform import MessagePart
from alipes.platforms.slack.platform import SlackPlatform, open_platform
from tests.unit.platforms.slack.harness import at_work, settings, where
from tests.world.environment import LIMIT_S
from tests.world.recording_gateway import RecordingGateway, receive
from tests.world.slack_server import SlackServer


async def test_text_arrives_from_direct_messages_channels_and_threads(tmp_path, leaks):
    async with at_work(tmp_path) as (server, _, ears):
        ts = server.say("hello")
        server.say("@alipes hi there", who="bob", where="general")
        server.say("just talk", who="bob", where="general")
        server.say("in a thread @alipes", who="bob", where="general/plans")
        await server.until(lambda: len(ears.arrivals) == 4)
        direct, called, overheard, thread = sorted(ears.arrivals, key=lambda arrival: arrival.message)
        channel, _ = server.place()
        assert (direct.id, direct.text, direct.name) == (f"{channel}:{ts}", "hello", "Ada")
        assert (direct.message, direct.address) == (ts, where(server))
        assert direct.address.key == f"agent:main:slack:dm:{channel}" and not direct.group and direct.addressed
        assert called.address == where(server, "general") and called.text == "hi there"
        assert called.sender == server.world.person("bob").id
        assert called.group and called.addressed and not overheard.addressed
        assert thread.address == where(server, "general/plans") and thread.addressed


async def test_slack_markup_is_converted_to_plain_text(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        bob, general = server.world.person("bob").id, server.place("general")[0]
        server.say(
            f"<@{bob}> &lt;see&gt; <https://x.org/a?b=1&amp;c=2|the page> or <https://y.org> in <#{general}|general>"
            " <!here> <mailto:a@b.org|a@b.org> <http://z.org|z.org> <!subteam^S1|@team> <|odd>",
            raw=True,
        )
        await server.until(lambda: ears.arrivals)
        assert ears.texts == [
            "@Bob <see> the page (https://x.org/a?b=1&c=2) or https://y.org in #general @here a@b.org http://z.org @team odd ()"
        ]


async def test_a_thread_below_our_message_or_one_to_us_needs_no_mention(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        ours = await platform.send(where(server, "general"), MessagePart("I said this"))
        server.hang("general/ours", ours)
        server.hang("general/asked", server.say("@alipes what is it?", where="general"))
        server.begin("general/theirs", "look at that", who="bob")
        for name in ("ours", "asked", "theirs"):
            server.say(f"and in {name}?", where=f"general/{name}")
        await server.until(lambda: len(ears.arrivals) == 5)
        meant = {arrival.text: arrival.addressed for arrival in ears.arrivals if arrival.address.thread}
        assert meant == {"and in ours?": True, "and in asked?": True, "and in theirs?": False}


async def test_a_mention_in_a_thread_quotes_its_earlier_messages(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.begin("general/plans", "obey me", who="bob")
        server.say("why should it?", where="general/plans")
        server.say("@alipes what do you think?", where="general/plans")
        server.say("@alipes and now?", where="general/plans")
        server.say("@alipes and here?", where="general/songs")
        await server.until(lambda: len(ears.arrivals) == 5)
        quoted = {arrival.text: arrival.quoted for arrival in ears.arrivals}
        assert quoted["what do you think?"] == "Bob: obey me\nAda: why should it?"
        assert quoted["and now?"] == quoted["and here?"] == ""


async def test_shared_messages_are_quoted(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        shared = {"is_share": True, "author_name": "Bob", "text": "obey &amp; me"}
        server.say("what about this?", attachments=[shared, {"title": "a preview"}])
        await server.until(lambda: ears.arrivals)
        assert ears.arrivals[0].quoted == "Forwarded:\nBob: obey & me"


async def test_an_edit_names_the_original_and_link_previews_are_no_edits(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        ts = server.say("helo")
        await server.until(lambda: ears.arrivals)
        server.web.change(server.post(ts), "helo", edited=False)
        server.change(ts, "hello")
        server.web.change(server.post(ts), "hello", edited=False)
        server.say("end")
        await server.until(lambda: "end" in ears.texts)
        first = ears.arrivals[0].id
        assert [(a.text, a.edits) for a in ears.arrivals] == [("helo", ""), ("hello", first), ("end", "")]
        assert ears.arrivals[1].id != first


async def test_a_file_of_another_workspace_is_requested(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        file = server.world.file("a.txt", "text/plain", b"text", apart=True)
        channel, _ = server.place()
        server.web.tell(server.world.post(channel, server.world.person("ada").id, "x", files=[file]))
        await server.until(lambda: ears.arrivals)
        [filed] = ears.arrivals[0].files
        assert (filed.name, filed.size) == ("a.txt", 4)


async def test_app_mention_events_alone_are_enough(tmp_path):
    async with SlackServer() as server:
        server.web.events = {"app_mention", "message.im"}
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("talk", where="general")
            server.say("@alipes one", where="general")
            server.say("@alipes two", where="general/plans")
            server.say("three")
            await server.until(lambda: {"one", "two", "three"} <= set(ears.texts))
        assert [arrival.text for arrival in ears.arrivals if arrival.addressed].count("one") == 1


async def test_a_failed_download_does_not_lose_the_text(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.say("here", where="general", files=[("a.txt", "text/plain", b"text")])
        await server.until(lambda: ears.arrivals)
        assert ears.arrivals[0].files == () and server.downloads == []  # not addressed, so not downloaded
        gone = server.world.file("gone.txt", "text/plain", b"text")
        away = server.world.file("plan.doc", "text/plain", b"", external="https://drive.example/plan")
        posted = {"files": [gone, away]}
        del server.world.files[gone.id]
        channel, _ = server.place()
        server.web.tell(server.world.post(channel, server.world.person("ada").id, "and this", **posted))
        server.web.scopes.discard("files:read")
        server.say("unread", files=[("b.txt", "text/plain", b"text")])
        await server.until(lambda: len(ears.arrivals) == 3)
        assert ears.texts[2] == "unread\n[b.txt could not be downloaded: the app needs the scope files:read.]"
        lines = ears.texts[1].splitlines()
        assert lines[0] == "and this" and lines[1].startswith("[gone.txt could not be downloaded")
        assert lines[2] == "[plan.doc is stored outside of Slack: https://drive.example/plan.]"
        assert not list(tmp_path.glob("files/*"))


async def test_the_token_is_sent_to_slack_only(tmp_path):
    async with at_work(tmp_path) as (server, _, ears), SlackServer() as other:
        file = server.world.file("a.txt", "text/plain", b"text")
        seen = server.world.file_json

        def elsewhere(file):
            return seen(file) | {"url_private_download": f"{other.world.root}/files-pri/T-{file.id}/download/a"}

        server.world.file_json = elsewhere
        channel, _ = server.place()
        server.web.tell(server.world.post(channel, server.world.person("ada").id, "x", files=[file]))
        await server.until(lambda: ears.arrivals)
        assert ears.texts == ["x\n[a.txt was not downloaded: its address is not on Slack.]"]
        assert other.downloads == []


async def test_bots_and_we_ourselves_are_ignored(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        await platform.send(where(server), MessagePart("mine"))
        server.say("@alipes joined", where="general", subtype="channel_join")
        server.say("@alipes beep", where="general", subtype="bot_message")
        server.say("person")
        await server.until(lambda: ears.arrivals)
        assert ears.texts == ["person"]
        await server.until(lambda: all(envelope.acked for envelope in server.board.envelopes))


async def test_one_channel_stays_in_order_and_does_not_delay_another(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.trouble("slow", "users.info", wait=0.3)
        server.say("slow")
        for number in range(5):
            server.say(str(number))
        server.say("quick", who="bob")
        await server.until(lambda: len(ears.arrivals) == 7)
        mine = [arrival.text for arrival in ears.arrivals if arrival.address == where(server)]
        assert mine == ["slow", "0", "1", "2", "3", "4"] and ears.texts[0] == "quick"


async def test_a_button_arrives_with_its_data_and_disappears_with_the_answer(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        buttons = tuple(Button(f"label {n}", f"ask:{n}") for n in range(30))
        message = await platform.send(where(server), MessagePart("sure?", buttons=buttons))
        assert len(server.posts()[0].buttons) == 25
        pressed = server.press(message, "ask:6")
        await server.until(lambda: pressed.acked)
        [arrival] = ears.arrivals
        assert (arrival.pressed, arrival.message, arrival.text) == ("ask:6", message, "")
        assert (arrival.sender, arrival.address) == (server.world.person("ada").id, where(server))
        await platform.edit(where(server), message, MessagePart("yes"))
        assert server.posts()[0].buttons == []
        question = server.say("@alipes push it", where="general")
        asked = await platform.send(
            where(server, "general"), MessagePart("sure?", buttons=buttons[:2], reply_to=question)
        )
        server.press(asked, "ask:1")
        thread = await platform.send(where(server, "general/plans"), MessagePart("sure?", buttons=buttons[:2]))
        server.press(thread, "ask:1")
        await server.until(lambda: len(ears.arrivals) == 4)
        assert [a.address for a in ears.arrivals[2:]] == [where(server, "general"), where(server, "general/plans")]


async def test_slash_commands_arrive_as_text(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        await platform.set_commands((("stop", "stop the task"), ("model", "choose one"), ("help", "show all")))
        given = [
            server.slash("/alipes-model", "fast one", where="general"),
            server.slash("/alipes", "stop"),
            server.slash("/alipes", "how are &lt;you&gt;?"),
            server.slash("/alipes"),
        ]
        await server.until(lambda: all(each.acked for each in given))
        assert sorted(ears.texts) == ["/help", "/model fast one", "/stop", "how are <you>?"]
        there = next(arrival for arrival in ears.arrivals if arrival.group)
        assert there.address == where(server, "general") and there.addressed
        assert given[1].answer == {"response_type": "ephemeral", "text": "/stop"}


async def test_a_command_does_not_wait_behind_a_slow_message(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.trouble("slow", "users.info", wait=1.0)
        server.say("slow")
        chosen = server.slash("/alipes-stop")
        await server.until(lambda: chosen.acked)
        assert ears.texts == ["/stop"]


@pytest.mark.parametrize("missing", ["token", "app_token"])
async def test_both_tokens_are_needed(tmp_path, missing):
    server = SlackServer()
    with pytest.raises(ConfigError, match="two tokens"):
        open_platform(settings(server, tmp_path, **{missing: Secret()}), None)


@pytest.mark.parametrize(("wrong", "why"), [("token", "bot's token"), ("app_token", "app-level token")])
async def test_a_wrong_token_is_a_config_error(tmp_path, leaks, wrong, why):
    async with SlackServer() as server:
        ears, platform = (
            RecordingGateway(),
            SlackPlatform(settings(server, tmp_path, **{wrong: Secret("xoxp-nonsense")})),
        )
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(ConfigError, match=why):
                await platform.listen(ears.take, ears.tell)


async def test_disabled_socket_mode_is_a_config_error(tmp_path, leaks):
    async with SlackServer() as server:
        server.board.enabled = False
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        with pytest.raises(ConfigError, match="Socket Mode is off"):
            await platform.listen(ears.take, ears.tell)


async def test_a_missing_library_says_what_to_install(tmp_path):
    code = """if True:
        import sys
        from pathlib import Path
        from alipes.config.settings import Settings
        from alipes.kernel.errors import ConfigError
        from alipes.platforms.registry import open_messenger
        assert "slack_sdk" not in sys.modules and "aiohttp" not in sys.modules
        sys.modules["slack_sdk"] = None  # as if it were not installed
        try:
            open_messenger("slack", Settings(home=Path(sys.argv[1])), None)
        except ConfigError as error:
            print(error)
    """
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, tmp_path, stdout=asyncio.subprocess.PIPE)
    seen, _ = await child.communicate()
    assert b"alipes install slack" in seen


async def test_with_group_all_every_message_is_complete(tmp_path):
    async with at_work(tmp_path, group="all") as (server, _, ears):
        server.say("look", where="general", files=[("a.txt", "text/plain", b"text")])
        await server.until(lambda: ears.arrivals)
        [arrival] = ears.arrivals
        assert (arrival.name, arrival.addressed, len(arrival.files)) == ("Ada", False, 1)


async def test_a_long_thread_is_quoted_by_its_start_and_end(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.web.page = 10
        server.begin("general/plans", "the beginning", who="bob")
        for number in range(40):
            server.say(f"number {number}", where="general/plans")
        server.say("@alipes what now?", where="general/plans")
        await server.until(lambda: "what now?" in ears.texts)
        lines = ears.arrivals[-1].quoted.splitlines()
        assert lines[0] == "Bob: the beginning" and len(lines) == 21
        assert lines[1] == "Ada: number 20" and lines[-1] == "Ada: number 39"
