"""The line to Slack: acknowledged when it is kept, replaced in time, and what was said meanwhile is not lost."""

import asyncio

import pytest
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Piece
from alipes.platforms.slack.settings import open_slack
from tests.unit.platforms.slack.harness import at_work, settings, where
from tests.world.ears import Ears, listening
from tests.world.slack_server import SlackServer


async def test_slack_is_told_only_after_it_was_kept(tmp_path, leaks):
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


async def test_what_is_brought_again_because_we_were_slow_arrives_once(tmp_path, leaks):
    async with SlackServer() as server:
        server.board.patience, server.board.retries = 0.1, (0.0, 0.0, 0.0)
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
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


async def test_one_message_told_by_two_events_or_under_two_names_arrives_once(tmp_path):
    async with SlackServer() as server:
        server.web.events.add("app_mention")
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("@alipes hi", where="general", client="one")
            server.say("@alipes hi", where="general", client="one")  # as Slack does now and then
            await server.until(lambda: all(each.acked for each in server.board.envelopes))
            assert ears.texts == ["hi"] and len(server.board.envelopes) == 4
        later = Ears()
        async with listening(platform, later):
            await server.until(lambda: later.ready)
            server.say("@alipes hi", where="general", client="one")
            server.say("end")
            await server.until(lambda: "end" in later.texts)
            await server.until(lambda: all(each.acked for each in server.board.envelopes))
        assert {arrival.id for arrival in (*ears.arrivals, *later.arrivals) if arrival.text == "hi"} == {
            ears.arrivals[0].id
        }


async def test_when_slack_asks_for_another_line_none_is_missed_and_nothing_is_broken(tmp_path, leaks):
    async with at_work(tmp_path) as (server, platform, ears):
        gate = ears.hold()
        server.say("before")
        await server.until(lambda: server.board.envelopes[0].sent)
        server.board.refresh(closes=0.2)
        await server.until(lambda: server.board.count("connect") == 2)
        gate.set()
        server.say("after")
        await server.until(lambda: server.board.count("close") == 1 and len(ears.arrivals) == 2)
        assert ears.texts == ["before", "after"]
        await server.until(lambda: all(each.acked for each in server.board.envelopes))
        assert [len(each.sent) for each in server.board.envelopes] == [1, 1]
        assert {state for state, _ in ears.states} == {"ready"}
        assert len(server.board.lines) == 1
        await platform.send(where(server), Piece("still here"))


@pytest.mark.parametrize("accident", ["drop", "deafen"])
async def test_a_line_that_is_gone_or_went_silent_is_noticed_and_replaced(tmp_path, leaks, accident):
    async with at_work(tmp_path, beat=0.2) as (server, platform, ears):
        server.say("before")
        await server.until(lambda: ears.arrivals)
        getattr(server.board, accident)()
        server.say("meanwhile")
        await server.until(lambda: not ears.ready)
        assert ("silent" if accident == "deafen" else "line") in ears.states[-1][1]
        # Sending has a way of its own.
        await platform.send(where(server), Piece("still here"))
        await server.until(lambda: ears.ready and len(ears.arrivals) == 2)
        server.say("after")
        await server.until(lambda: "after" in ears.texts)
        assert ears.texts == ["before", "meanwhile", "after"]


async def test_every_sign_of_life_is_told(tmp_path):
    async with at_work(tmp_path, beat=0.05) as (server, _, ears):
        await server.until(lambda: ears.states.count(("ready", "")) > 3)
        assert server.board.count("connect") == 1


async def test_what_was_said_while_we_were_down_is_read_at_the_next_start(tmp_path, leaks):
    async with SlackServer() as server:
        server.board.retries = ()
        first, second = Ears(), Ears()
        platform = open_slack(settings(server, tmp_path))
        server.say("before the first start")
        async with listening(platform, first):
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
        async with listening(platform, second):
            await server.until(lambda: {"three", "go on", "sing", "from someone new"} <= set(second.texts))
            server.say("four")
            server.say("@alipes last", where="general")
            await server.until(lambda: {"four", "last"} <= set(second.texts))
        assert "before the first start" not in (*first.texts, *second.texts)

        def told(ears, place, *words):
            return [a.text for a in ears.arrivals if a.address == where(server, place) and a.text in words]

        news = [a for a in second.arrivals if a.id not in {known.id for known in first.arrivals}]
        assert len(news) == len({a.id for a in news}) == 9  # "songs" is overheard
        assert told(second, "", "two", "three", "four") == ["two", "three", "four"]
        assert told(second, "general", "there", "songs", "last") == ["there", "songs", "last"]
        assert next(a for a in news if a.text == "three").files
        assert next(a for a in news if a.text == "sing").quoted == "Bob: songs"


async def test_what_was_changed_before_it_was_read_is_not_told_as_changed_again(tmp_path):
    async with SlackServer() as server:
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
            await server.until(lambda: ears.ready)
        ts = server.say("helo")
        server.change(ts, "hello")
        said, changed = server.board.envelopes
        async with listening(platform, ears):
            await server.until(lambda: ears.arrivals)
            server.board.again(said)
            server.board.again(changed)
            await server.until(lambda: said.acked and changed.acked)
        assert [(arrival.text, arrival.edits) for arrival in ears.arrivals] == [("hello", "")]


async def test_no_more_is_read_than_what_was_missed(tmp_path):
    async with SlackServer() as server:
        server.board.retries, server.web.page = (), 10
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
            await server.until(lambda: ears.ready)
        for number in range(45):
            server.say(str(number))
        for post in list(server.world.posts.values())[:30]:  # said long before
            del server.world.posts[post.channel, post.ts]
            post.ts = f"{float(post.ts) - 86_400:.6f}"
            server.world.posts[post.channel, post.ts] = post
        server.world.posts = dict(sorted(server.world.posts.items()))
        async with listening(platform, ears):
            await server.until(lambda: len(ears.arrivals) == 15)
        assert ears.texts == [str(number) for number in range(30, 45)]
        assert (
            len([call for call in server.asked("conversations.history") if call.args["channel"][0] == "D"])
            == 2
        )


async def test_what_was_missed_goes_before_what_is_said_now_also_where_nobody_spoke_before(tmp_path):
    async with SlackServer() as server:
        server.board.retries = ()
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
            await server.until(lambda: ears.ready)
        for number in range(3):
            server.say(str(number))
        server.trouble("slow", "users.conversations", wait=0.3)
        async with listening(platform, ears):
            await server.until(lambda: server.board.lines)
            server.say("3")
            await server.until(lambda: len(ears.arrivals) == 4)
        assert ears.texts == ["0", "1", "2", "3"]


async def test_what_was_said_during_an_outage_is_read_in_its_order(tmp_path, leaks):
    server = SlackServer()
    server.board.retries, server.web.page = (), 2
    ears = Ears()
    async with server:
        platform = open_slack(settings(server, tmp_path))
    async with listening(platform, ears):
        await server.until(lambda: ears.states)
        assert ears.states[-1][0] == "broken" and "cannot be reached" in ears.states[-1][1]
        async with server:
            await server.until(lambda: ears.ready)
            server.say("hello")
            await server.until(lambda: ears.arrivals)
        await server.until(lambda: not ears.ready)
        with pytest.raises(DeliveryError) as away:
            await platform.send(where(server), Piece("x"))
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


async def test_what_could_not_be_read_after_a_gap_is_read_at_the_next_occasion(tmp_path):
    async with SlackServer() as server:
        server.board.retries = ()
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("one")
            await server.until(lambda: ears.arrivals)
        server.say("two")
        refused = server.trouble("limit", "conversations.history", server.place()[0], retry_after=0, times=6)
        async with listening(platform, later := Ears()):
            await server.until(lambda: refused.met == 6)
            server.say("three", who="bob")
            await server.until(lambda: "three" in later.texts)
        assert "two" not in later.texts
        async with listening(platform, last := Ears()):
            await server.until(lambda: "two" in last.texts)


async def test_the_address_of_a_line_is_not_told(tmp_path):
    async with at_work(tmp_path) as (server, _, ears):
        server.board.refuses = True
        server.board.drop()
        await server.until(lambda: server.board.count("refused"))
        await server.until(lambda: "503" in ears.states[-1][1])
        assert "ticket" not in str(ears.states)


async def test_what_was_not_kept_is_read_again_after_a_restart(tmp_path):
    async with SlackServer() as server:
        server.board.retries = ()
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
            await server.until(lambda: ears.ready)
            ears.hold()
            server.say("cut off")
            server.say("also", who="bob")
            await server.until(lambda: all(each.sent for each in server.board.envelopes))
            await asyncio.sleep(0.05)
        again = Ears()
        async with listening(platform, again):
            await server.until(lambda: len(again.arrivals) == 2)
        assert sorted(again.texts) == ["also", "cut off"]


async def test_a_channel_that_is_gone_is_not_read_again(tmp_path):
    async with SlackServer() as server:
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with listening(platform, ears):
            await server.until(lambda: ears.ready)
            server.say("@alipes hi", who="bob", where="general")
            await server.until(lambda: ears.arrivals)
        general = server.world.channel("general")
        general.member = False
        before = len(server.calls)
        for _ in range(2):
            later = Ears()
            async with listening(platform, later):
                await server.until(lambda ears=later: ears.ready)
                server.say("hello")
                await server.until(lambda ears=later: ears.arrivals)
        assert len([each for each in server.calls[before:] if each.args.get("channel") == general.id]) == 1


async def test_what_the_desk_cannot_take_ends_the_listening(tmp_path, leaks):
    async def take(arrival):
        raise OSError("disk full")

    async def ending(listening):
        try:
            await listening
        except OSError as error:
            return error

    async with SlackServer() as server:
        ears, platform = Ears(), open_slack(settings(server, tmp_path))
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(ending(platform.listen(take, ears.tell)))
            await server.until(lambda: ears.ready)
            server.say("hello")
        assert isinstance(ended.result(), OSError) and not server.board.envelopes[0].acked


async def test_the_library_as_it_comes_finds_our_slack_to_be_one(tmp_path):
    """The judge of the loopback Slack: slack_sdk's own client connects, hears, answers and takes another line."""
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
            told = await web.chat_postMessage(channel=server.place()[0], text="hi")
            history = await web.conversations_history(channel=server.place()[0], limit=2)
            uploaded = await web.files_upload_v2(channel=server.place()[0], filename="a.txt", content="text")
        finally:
            await client.close()
            tasks = (client.message_processor, client.current_session_monitor, client.message_receiver)
            await asyncio.gather(*tasks, return_exceptions=True)
        assert heard[:2] == ["hello", "again"] and server.said()[0] == "hi"
        assert history["messages"][0]["ts"] == told["ts"] and history["has_more"]
        assert uploaded["ok"] and server.posts()[-1].files[0].data == b"text"
