"""The Slack socket: acknowledged after delivery, replaced in time, and no message is lost."""

import asyncio

import pytest
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import MessagePart
from alipes.platforms.slack.platform import SlackPlatform
from tests.unit.platforms.slack.harness import at_work, settings, where
from tests.world.recording_gateway import RecordingGateway, receive
from tests.world.slack_server import SlackServer


async def test_an_envelope_is_acknowledged_after_delivery(tmp_path, leaks):
    async with at_work(tmp_path) as (server, _, ears):
        gate = ears.hold()
        server.say("hello")
        server.slash("/alipes-stop")
        await server.until(lambda: all(each.sent for each in server.board.envelopes))
        await asyncio.sleep(0.05)
        assert not any(each.acked for each in server.board.envelopes)
        gate.set()
        await server.until(lambda: all(each.acked for each in server.board.envelopes))
        assert sorted(ears.texts) == ["/stop", "hello"]


async def test_a_repeated_envelope_arrives_once(tmp_path, leaks):
    async with SlackServer() as server:
        server.board.patience, server.board.retries = 0.1, (0.0, 0.0, 0.0)
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            gate = ears.hold()
            ts = server.say("hello")
            [envelope] = server.board.of(f"{server.place()[0]}:{ts}")
            await server.until(lambda: len(envelope.sent) == 3)
            gate.set()
            await server.until(lambda: envelope.acked)
            server.say("end")
            await server.until(lambda: "end" in ears.texts)
        assert ears.texts == ["hello", "end"]


async def test_one_message_in_two_events_arrives_once(tmp_path):
    async with SlackServer() as server:
        server.web.events.add("app_mention")
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("@alipes hi", where="general", client="one")
            server.say("@alipes hi", where="general", client="one")  # as Slack does now and then
            await server.until(lambda: all(each.acked for each in server.board.envelopes))
            assert ears.texts == ["hi"] and len(server.board.envelopes) == 4
        later = RecordingGateway()
        async with receive(platform, later):
            await server.until(lambda: later.ready)
            server.say("@alipes hi", where="general", client="one")
            server.say("end")
            await server.until(lambda: "end" in later.texts)
            await server.until(lambda: all(each.acked for each in server.board.envelopes))
        assert {arrival.id for arrival in (*ears.arrivals, *later.arrivals) if arrival.text == "hi"} == {
            ears.arrivals[0].id
        }


async def test_a_requested_reconnect_loses_nothing(tmp_path, leaks):
    async with at_work(tmp_path) as (server, platform, ears):
        server.board.retries = ()
        gate = ears.hold()
        server.say("before")
        await server.until(lambda: server.board.envelopes[0].sent)
        server.board.refresh(closes=None)
        await server.until(lambda: server.board.count("connect") == 2)
        gate.set()
        server.say("after")
        await server.until(lambda: all(each.acked for each in server.board.envelopes))
        server.board.close_leaving()
        await server.until(lambda: server.board.count("close") == 1)
        assert ears.texts == ["before", "after"]
        assert [len(each.sent) for each in server.board.envelopes] == [1, 1]
        assert {state for state, _ in ears.states} == {"ready"}
        assert len(server.board.lines) == 1
        await platform.send(where(server), MessagePart("still here"))


@pytest.mark.parametrize("accident", ["drop", "deafen"])
async def test_a_closed_or_silent_socket_is_replaced(tmp_path, leaks, accident):
    async with at_work(tmp_path, beat=0.2) as (server, platform, ears):
        server.say("before")
        await server.until(lambda: ears.arrivals)
        getattr(server.board, accident)()
        server.say("meanwhile")
        await server.until(lambda: not ears.ready)
        assert ("timed out" if accident == "deafen" else "socket") in ears.states[-1][1]
        # sending does not use the socket
        await platform.send(where(server), MessagePart("still here"))
        await server.until(lambda: ears.ready and len(ears.arrivals) == 2)
        server.say("after")
        await server.until(lambda: "after" in ears.texts)
        assert ears.texts == ["before", "meanwhile", "after"]


async def test_every_sign_of_life_is_reported(tmp_path):
    async with at_work(tmp_path, beat=0.05) as (server, _, ears):
        await server.until(lambda: ears.states.count(("ready", "")) > 3)
        assert server.board.count("connect") == 1


async def test_messages_missed_while_down_are_read_at_the_next_start(tmp_path, leaks):
    async with SlackServer() as server:
        server.board.retries = ()
        first, second = RecordingGateway(), RecordingGateway()
        platform = SlackPlatform(settings(server, tmp_path))
        server.say("before the first start")
        async with receive(platform, first):
            await server.until(lambda: first.ready)
            server.say("one")
            server.say("@alipes here", where="general")
            server.begin("general/plans", "plans")
            server.say("@alipes come", where="general/plans")
            await server.until(lambda: len(first.arrivals) == 4)
        server.say("two")
        server.say("three", files=[("a.txt", "text/plain", b"text")])
        server.say("from someone new", who="carol")
        server.say("@alipes there", where="general")
        server.say("@alipes go on", where="general/plans")
        server.begin("general/songs", "songs", who="bob")
        server.say("@alipes sing", where="general/songs")
        async with receive(platform, second):
            await server.until(lambda: {"three", "go on", "sing", "from someone new"} <= set(second.texts))
            server.say("four")
            server.say("@alipes last", where="general")
            await server.until(lambda: {"four", "last"} <= set(second.texts))
        assert "before the first start" not in (*first.texts, *second.texts)

        def seen(ears, place, *words):
            return [a.text for a in ears.arrivals if a.address == where(server, place) and a.text in words]

        news = [a for a in second.arrivals if a.id not in {known.id for known in first.arrivals}]
        assert len(news) == len({a.id for a in news}) == 9  # "songs" is not addressed to us
        assert seen(second, "", "two", "three", "four") == ["two", "three", "four"]
        assert seen(second, "general", "there", "songs", "last") == ["there", "songs", "last"]
        assert next(a for a in news if a.text == "three").files
        assert next(a for a in news if a.text == "sing").quoted == "Bob: songs"


async def test_an_edit_that_was_already_read_is_not_reported_again(tmp_path):
    async with SlackServer() as server:
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
        ts = server.say("helo")
        server.change(ts, "hello")
        said, changed = server.board.envelopes
        async with receive(platform, ears):
            await server.until(lambda: ears.arrivals)
            server.board.again(said)
            server.board.again(changed)
            await server.until(lambda: said.acked and changed.acked)
        assert [(arrival.text, arrival.edits) for arrival in ears.arrivals] == [("hello", "")]


async def test_only_missed_messages_are_read(tmp_path):
    async with SlackServer() as server:
        server.board.retries, server.web.page = (), 10
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
        for number in range(45):
            server.say(str(number))
        for post in list(server.world.posts.values())[:30]:  # sent long before
            del server.world.posts[post.channel, post.ts]
            post.ts = f"{float(post.ts) - 86_400:.6f}"
            server.world.posts[post.channel, post.ts] = post
        server.world.posts = dict(sorted(server.world.posts.items()))
        async with receive(platform, ears):
            await server.until(lambda: len(ears.arrivals) == 15)
        assert ears.texts == [str(number) for number in range(30, 45)]
        assert len([call for call in server.asked("conversations.history") if call.args["channel"][0] == "D"]) == 2


async def test_missed_messages_go_before_new_ones_also_in_unknown_channels(tmp_path):
    async with SlackServer() as server:
        server.board.retries = ()
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
        for number in range(3):
            server.say(str(number))
        server.trouble("slow", "users.conversations", wait=0.3)
        async with receive(platform, ears):
            await server.until(lambda: server.board.lines)
            server.say("3")
            await server.until(lambda: len(ears.arrivals) == 4)
        assert ears.texts == ["0", "1", "2", "3"]


async def test_messages_of_an_outage_are_read_in_order(tmp_path, leaks):
    server = SlackServer()
    server.board.retries, server.web.page = (), 2
    ears = RecordingGateway()
    async with server:
        platform = SlackPlatform(settings(server, tmp_path))
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
        for number in range(5):
            server.say(f"while Slack was away {number}")
        async with server:
            server.board.refuses = True
            await server.until(lambda: server.board.count("refused"))
            server.board.refuses = False
            server.trouble("limit", "conversations.history", times=1)
            await server.until(lambda: len(ears.arrivals) == 6)
    assert ears.texts == ["hello", *(f"while Slack was away {number}" for number in range(5))]


async def test_a_failed_backfill_is_repeated_later(tmp_path):
    async with SlackServer() as server:
        server.board.retries = ()
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("one")
            await server.until(lambda: ears.arrivals)
        server.say("two")
        refused = server.trouble("limit", "conversations.history", server.place()[0], retry_after=0, times=6)
        async with receive(platform, later := RecordingGateway()):
            await server.until(lambda: refused.met == 6)
            server.say("three", who="bob")
            await server.until(lambda: "three" in later.texts)
        assert "two" not in later.texts
        async with receive(platform, last := RecordingGateway()):
            await server.until(lambda: "two" in last.texts)


async def test_the_address_of_a_socket_is_not_logged(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.board.refuses = True
        server.board.drop()
        await server.until(lambda: server.board.count("refused"))
        await server.until(lambda: "503" in ears.states[-1][1])
        assert "ticket" not in str(ears.states)


async def test_undelivered_messages_are_read_again_after_a_restart(tmp_path):
    async with SlackServer() as server:
        server.board.retries = ()
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            ears.hold()
            server.say("cut off")
            server.say("also", who="bob")
            await server.until(lambda: all(each.sent for each in server.board.envelopes))
            await asyncio.sleep(0.05)
        again = RecordingGateway()
        async with receive(platform, again):
            await server.until(lambda: len(again.arrivals) == 2)
        assert sorted(again.texts) == ["also", "cut off"]


async def test_a_deleted_channel_is_not_read_again(tmp_path):
    async with SlackServer() as server:
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("@alipes hi", who="bob", where="general")
            await server.until(lambda: ears.arrivals)
        general = server.world.channel("general")
        general.member = False
        before = len(server.calls)
        for _ in range(2):
            later = RecordingGateway()
            async with receive(platform, later):
                await server.until(lambda ears=later: ears.ready)
                server.say("hello")
                await server.until(lambda ears=later: ears.arrivals)
        assert len([each for each in server.calls[before:] if each.args.get("channel") == general.id]) == 1


async def test_a_failing_handler_ends_the_connection(tmp_path, leaks):
    async def take(arrival):
        raise OSError("disk full")

    async def ending(listening):
        try:
            await listening
        except OSError as error:
            return error

    async with SlackServer() as server:
        ears, platform = RecordingGateway(), SlackPlatform(settings(server, tmp_path))
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(ending(platform.listen(take, ears.tell)))
            await server.until(lambda: ears.ready)
            server.say("hello")
        assert isinstance(ended.result(), OSError) and not server.board.envelopes[0].acked


async def test_the_original_library_accepts_the_fake_slack(tmp_path):
    """Checks the loopback Slack: slack_sdk's own client connects, receives, answers and reconnects."""
    async with SlackServer() as server:
        web = AsyncWebClient(server.token, server.base_url)
        web.proxy = None
        client = SocketModeClient(server.app_token, web_client=web, ping_interval=0.2)
        client.proxy = None
        heard = []

        async def listener(client, request):
            heard.append(request.payload["event"]["text"])
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))

        client.socket_mode_request_listeners.append(listener)
        await client.connect()
        try:
            server.say("hello")
            await server.until(lambda: server.board.envelopes[0].acked)
            server.board.refresh()
            await server.until(lambda: server.board.count("connect") == 2)
            server.say("again")
            await server.until(lambda: len(heard) >= 2)
            seen = await web.chat_postMessage(channel=server.place()[0], text="hi")
            history = await web.conversations_history(channel=server.place()[0], limit=2)
            uploaded = await web.files_upload_v2(channel=server.place()[0], filename="a.txt", content="text")
        finally:
            await client.close()
            tasks = (client.message_processor, client.current_session_monitor, client.message_receiver)
            await asyncio.gather(*tasks, return_exceptions=True)
        assert heard[:2] == ["hello", "again"] and server.said()[0] == "hi"
        assert history["messages"][0]["ts"] == seen["ts"] and history["has_more"]
        assert uploaded["ok"] and server.posts()[-1].files[0].data == b"text"
