"""The Discord connection: failures are reported and repaired, and no message is lost."""

import asyncio
import threading

import pytest

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import MessagePart
from alipes.platforms.discord.platform import DiscordPlatform
from tests.unit.platforms.discord.harness import at_work, settings, where
from tests.world.discord_server import DiscordServer
from tests.world.recording_gateway import RecordingGateway, receive, send_only


@pytest.mark.parametrize("how", ["drop", "ask_to_reconnect", "resumable", "mute"])
async def test_a_lost_connection_is_resumed_and_missed_messages_arrive_once(tmp_path, how, leaks):
    async with DiscordServer() as server:
        server.gateway.interval = 0.3
        ears, platform = RecordingGateway(), DiscordPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("before")
            await server.until(lambda: ears.texts == ["before"])
            match how:
                case "resumable":
                    server.gateway.invalidate(resumable=True)
                case "mute":
                    server.gateway.acks = False
                case _:
                    getattr(server.gateway, how)()
            server.say("meanwhile")
            await server.until(lambda: server.gateway.count("resume"))
            server.gateway.acks = True
            server.say("after")
            await server.until(lambda: len(ears.arrivals) >= 3)
            await server.until(lambda: ears.ready)
            assert ears.texts == ["before", "meanwhile", "after"]
            assert server.gateway.count("identify") == 1
            assert "broken" in [state for state, _ in ears.states]


async def test_a_process_that_does_not_receive_sends_without_a_gateway_connection(tmp_path, leaks):
    async with DiscordServer() as server:
        platform = DiscordPlatform(settings(server, tmp_path))
        with pytest.raises(DeliveryError):
            await platform.send(where(server), MessagePart("too early"))
        async with send_only(platform):
            await platform.set_commands((("help", "shows help"),))
            await platform.send(where(server), MessagePart("hello"))
            assert server.said() == ["hello"] and server.gateway.count("identify") == 0


async def test_a_silent_connection_is_detected_and_replaced(tmp_path, leaks):
    async with DiscordServer() as server:
        server.gateway.interval = 0.3
        ears, platform = RecordingGateway(), DiscordPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.gateway.deafen()
            server.say("into the void")
            await server.until(lambda: not ears.ready)
            assert "timed out" in ears.states[-1][1]
            # sending does not use the socket
            await platform.send(where(server), MessagePart("still here"))
            await server.until(lambda: ears.ready and ears.arrivals)
            assert ears.texts == ["into the void"]
            assert (server.gateway.count("identify"), server.gateway.count("resume") > 0) == (1, True)


async def test_every_answered_heartbeat_is_reported_and_no_thread_is_used(tmp_path):
    async with DiscordServer() as server:
        server.gateway.interval = 0.2
        ears, platform = RecordingGateway(), DiscordPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: server.gateway.count("beat") > 3)
            await server.until(lambda: ears.states.count(("ready", "")) > 3)
            assert not [thread for thread in threading.enumerate() if "keep-alive" in thread.name]


async def test_a_refused_session_is_replaced_and_the_gap_is_read(tmp_path, leaks):
    async with at_work(tmp_path) as (server, _, ears):
        server.say("before")
        server.say("@alipes before", where="general")
        server.say("@alipes before", where="general/plans")
        await server.until(lambda: len(ears.arrivals) == 3)
        server.gateway.forget()
        server.gateway.drop()
        for where in ("", "general", "general/plans"):
            for number in range(3):
                server.say(f"@alipes meanwhile {number}", where=where)
        await server.until(lambda: server.gateway.count("identify") == 2)
        for where in ("", "general", "general/plans"):
            server.say("@alipes after", where=where)
        await server.until(lambda: len(ears.arrivals) >= 15)
        expected = ["before", *(f"meanwhile {number}" for number in range(3)), "after"]
        for where in ("", "general", "general/plans"):
            place = server.place(where)
            here = [a.text for a in ears.arrivals if place in (a.address.thread or a.address.chat,)]
            assert here == expected, where
        assert len({arrival.id for arrival in ears.arrivals}) == 15
        thread = next(a for a in ears.arrivals if a.text == "meanwhile 0" and a.address.thread)
        assert thread.address.chat == server.place("general") and thread.addressed


async def test_messages_missed_while_down_are_read_at_the_next_start(tmp_path, leaks):
    async with DiscordServer() as server:
        first, second = RecordingGateway(), RecordingGateway()
        platform = DiscordPlatform(settings(server, tmp_path))
        server.say("before the first start")
        async with receive(platform, first):
            await server.until(lambda: first.ready)
            server.say("one")
            await server.until(lambda: first.arrivals)
        server.say("two")
        server.say("three", files=[("a.txt", "text/plain", b"text")])
        async with receive(platform, second):
            await server.until(lambda: len(second.arrivals) == 2)
            server.say("four")
            await server.until(lambda: len(second.arrivals) == 3)
        assert (first.texts, second.texts) == (["one"], ["two", "three", "four"])
        assert second.arrivals[1].files


async def test_a_first_mention_in_a_channel_while_down_is_found(tmp_path):
    async with DiscordServer() as server:
        platform = DiscordPlatform(settings(server, tmp_path))
        first, second = RecordingGateway(), RecordingGateway()
        server.say("@alipes before the first start", where="general")
        async with receive(platform, first):
            await server.until(lambda: first.ready)
            server.say("hello")
            await server.until(lambda: first.arrivals)
        server.say("@alipes are you there?", where="general", who="bob")
        server.say("@alipes and here?", where="general/plans", who="bob")
        async with receive(platform, second):
            await server.until(lambda: len(second.arrivals) == 2)
        assert sorted(second.texts) == ["and here?", "are you there?"]


async def test_undelivered_messages_are_read_again_after_a_restart(tmp_path):
    async with DiscordServer() as server:
        ears, platform = RecordingGateway(), DiscordPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("kept")
            await server.until(lambda: ears.arrivals)
            ears.hold()
            lost = server.say("cut off")
            server.say("also", who="bob")
            await server.until(lambda: server.gateway.ready)
            await asyncio.sleep(0.05)
        again = RecordingGateway()
        async with receive(platform, again):
            await server.until(lambda: len(again.arrivals) == 2)
        assert sorted(again.texts) == ["also", "cut off"]
        assert lost in [arrival.id for arrival in again.arrivals]


async def test_a_deleted_channel_is_not_requested_again(tmp_path):
    async with DiscordServer() as server:
        ears, platform = RecordingGateway(), DiscordPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("hi", who="bob")
            await server.until(lambda: ears.arrivals)
        server.rest.forbidden.add(server.place(who="bob"))
        for _ in range(2):
            later = RecordingGateway()
            async with receive(platform, later):
                await server.until(lambda ears=later: ears.ready)
                server.say("hello")
                await server.until(lambda ears=later: ears.arrivals)
        assert len([call for call in server.calls if server.place(who="bob") in call.path]) == 1


async def test_an_outage_is_survived_without_a_restart(tmp_path, leaks):
    server = DiscordServer()
    ears = RecordingGateway()
    async with server:
        platform = DiscordPlatform(settings(server, tmp_path))
    async with receive(platform, ears):
        await server.until(lambda: ears.states)
        assert ears.states[-1][0] == "broken" and "cannot be reached" in ears.states[-1][1]
        async with server:
            await server.until(lambda: ears.ready)
            server.say("hello")
            await server.until(lambda: ears.arrivals)
        await server.until(lambda: not ears.ready)
        with pytest.raises(DeliveryError) as away:
            await platform.send(where(server), MessagePart("x"))
        assert not away.value.uncertain
        server.say("while Discord was away")
        async with server:
            server.gateway.refuses = True
            await server.until(lambda: server.gateway.count("refused"))
            server.gateway.refuses = False
            await server.until(lambda: len(ears.arrivals) == 2)
    assert ears.texts == ["hello", "while Discord was away"]


async def test_a_failing_handler_ends_the_connection(tmp_path, leaks):
    async def take(arrival):
        raise OSError("disk full")

    async with DiscordServer() as server:
        ears, platform = RecordingGateway(), DiscordPlatform(settings(server, tmp_path))
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(_ending(platform.listen(take, ears.tell)))
            await server.until(lambda: ears.ready)
            server.say("hello")
        assert isinstance(ended.result(), OSError)


async def _ending(listening):
    try:
        await listening
    except OSError as error:
        return error


async def test_missed_messages_of_an_unknown_chat_go_before_new_ones(tmp_path):
    async with DiscordServer() as server:
        first, second = RecordingGateway(), RecordingGateway()
        platform = DiscordPlatform(settings(server, tmp_path))
        async with receive(platform, first):
            await server.until(lambda: first.ready)
            server.say("hello")
            await server.until(lambda: first.arrivals)
        for text in ("one", "two"):
            server.say(text, who="bob")
        async with receive(platform, second):
            await server.until(lambda: second.ready)
            server.say("three", who="bob")
            await server.until(lambda: len(second.arrivals) == 3)
        assert second.texts == ["one", "two", "three"]
