"""Sending to Slack: send, edit, delete, errors, and no duplicates after uncertain sends."""

import asyncio
import time

import pytest
from msgspec.structs import replace

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button, Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.slack.platform import SlackPlatform
from tests.unit.platforms.slack.harness import at_work, settings, where
from tests.world.recording_gateway import RecordingGateway, receive, send_only
from tests.world.slack_server import SlackServer


async def test_messages_are_sent_edited_and_deleted(tmp_path, leaks):
    async with at_work(tmp_path) as (server, platform, _):
        thread = where(server, "general/plans")
        [answer] = platform.format_message("**answer** <!channel>")
        message = await platform.send(thread, replace(answer, id="1"))
        [post] = server.posts("general/plans")
        assert (post.ts, post.shown, post.answers) == (message, "answer <!channel>", "")
        assert post.text == "answer &lt;!channel&gt;"
        sent = server.asked("chat.postMessage")[0].args
        assert (sent["unfurl_links"], sent["unfurl_media"], sent["link_names"]) == (False, False, False)
        await platform.edit(thread, message, MessagePart("better"))
        await platform.edit(thread, message, MessagePart("better"))
        assert server.said("general/plans") == ["better"] and not server.said("general")
        await platform.delete(thread, message)
        await platform.delete(thread, message)
        assert server.said("general/plans") == []


async def test_a_reply_in_a_channel_is_in_the_thread_and_shown_in_the_channel(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        asked = server.say("@alipes what is it?", where="general")
        await platform.send(where(server, "general"), MessagePart("A bird.", reply_to=asked))
        await platform.send(where(server, "general"), MessagePart("It sings."))
        assert server.said("general") == ["A bird.", "It sings."]
        assert [post.answers for post in server.posts("general")] == [asked, ""]
        server.hang("general/asked", asked)
        assert server.said("general/asked") == ["A bird."]


async def test_a_person_can_be_addressed_by_their_id(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        await platform.send(Address("slack", server.world.person("ada").id), MessagePart("hello"))
        assert server.said() == ["hello"]


async def test_a_reply_to_a_deleted_message_is_still_sent(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        await platform.send(where(server, "general"), MessagePart("answer", reply_to="12345.000001", id="1"))
        assert server.said("general") == ["answer"]
        with pytest.raises(Undeliverable, match="thread_not_found"):
            await platform.send(Address("slack", server.place("general")[0], "group", "12345.000001"), MessagePart("x"))


async def test_files_are_uploaded_shared_and_deleted(tmp_path, leaks):
    async with at_work(tmp_path) as (server, platform, _):
        path = tmp_path / "report.csv"
        path.write_bytes(b"a,b")
        media = Media(str(path), caption="figures", name="q3.csv")
        message = await platform.send(where(server, "general/plans"), MessagePart(media=media, id="f"))
        [post] = server.posts("general/plans")
        assert (post.text, post.files[0].name, post.files[0].data) == ("figures", "q3.csv", b"a,b")
        with pytest.raises(Undeliverable):
            await platform.edit(where(server), message, MessagePart("x"))
        await platform.delete(where(server, "general/plans"), message)
        assert not server.posts("general/plans")
        path.write_bytes(b"")
        for wrong in (str(tmp_path / "none"), str(path)):
            with pytest.raises(Undeliverable, match=r"cannot be read|empty"):
                await platform.send(where(server), MessagePart(media=Media(wrong)))


async def test_rejected_blocks_are_sent_as_plain_text(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        [piece] = platform.format_message("**answer**")
        broken = replace(piece, text=piece.text.replace("bold", "loud"), buttons=(Button("Yes", "y"),))
        message = await platform.send(where(server), broken)
        assert server.posts()[0].shown == "answer" and server.posts()[0].buttons == [("Yes", "y")]
        await platform.edit(where(server), message, replace(broken, buttons=()))
        assert server.posts()[0].shown == "answer" and server.posts()[0].blocks == []
        await platform.edit(where(server), message, piece)
        assert server.posts()[0].blocks


async def test_a_reaction_is_shown_until_the_answer_starts(tmp_path):
    async with at_work(tmp_path) as (server, platform, ears):
        ts = server.say("hello")
        await server.until(lambda: ears.arrivals)
        await platform.typing(where(server))
        await platform.typing(where(server))
        assert server.post(ts).marks == ["+eyes"]
        await platform.send(where(server), MessagePart("hi"))
        await server.until(lambda: server.post(ts).marks == ["+eyes", "-eyes"])
        server.web.scopes.discard("reactions:write")
        server.say("again")
        await server.until(lambda: len(ears.arrivals) == 2)
        await platform.typing(where(server))  # best effort: without permission nothing fails


@pytest.mark.parametrize("accident", ["lost", "late", "status", "error"])
async def test_an_unconfirmed_message_is_not_sent_twice(tmp_path, accident):
    async with at_work(tmp_path, deadline=0.5) as (server, platform, _):
        assert platform.capabilities.deduplicates
        for number, place in enumerate(("", "general", "general/plans")):
            asked = server.say("question", where=place) if place == "general" else ""
            server.trouble(accident, "chat.postMessage")
            piece = MessagePart("once", id=f"outbound:{number}", reply_to=asked)
            with pytest.raises(DeliveryError) as doubtful:
                await platform.send(where(server, place), piece)
            assert doubtful.value.uncertain and not isinstance(doubtful.value, Undeliverable)
            message = await platform.send(where(server, place), piece)
            assert [post.ts for post in server.posts(place)][-1:] == [message]
            assert server.said(place).count("once") == 1
        await platform.send(where(server), MessagePart("once", id="another"))
        assert server.said() == ["once", "once"]


async def test_an_unconfirmed_file_is_not_shared_twice(tmp_path):
    async with at_work(tmp_path, deadline=0.5) as (server, platform, _):
        (tmp_path / "a.txt").write_bytes(b"text")
        (tmp_path / "b.txt").write_bytes(b"text")
        for name, accident in (("a.txt", "late"), ("b.txt", "hang")):
            piece = MessagePart(media=Media(str(tmp_path / name)), id=name)
            server.trouble(accident, "files.completeUploadExternal")
            with pytest.raises(DeliveryError) as doubtful:
                await platform.send(where(server), piece)
            assert doubtful.value.uncertain
            await platform.send(where(server), piece)
        assert [post.files[0].name for post in server.posts()] == ["a.txt", "b.txt"]
        assert len(server.asked("files.getUploadURLExternal")) == 2


async def test_a_send_interrupted_by_a_kill_is_looked_for_by_the_next_process(tmp_path):
    async with SlackServer() as server:
        first, second = (SlackPlatform(settings(server, tmp_path, deadline=5.0)) for _ in range(2))
        piece, lost = MessagePart("once", id="outbound:1"), MessagePart("never", id="outbound:2")
        async with receive(first, ears := RecordingGateway()), asyncio.TaskGroup() as tasks:
            await server.until(lambda: ears.ready)
            server.trouble("late", "chat.postMessage")
            server.trouble("hang", "chat.postMessage")
            sending = [tasks.create_task(first.send(where(server), each)) for each in (piece, lost)]
            await server.until(lambda: len(server.asked("chat.postMessage")) == 2)
            for each in sending:
                each.cancel()
        async with receive(second, ears := RecordingGateway()):
            await server.until(lambda: ears.ready)
            message = await second.send(where(server), piece)
            await second.send(where(server), lost)
        assert server.said() == ["once", "never"] and server.posts()[0].ts == message


async def test_a_process_that_does_not_receive_sends_without_a_socket(tmp_path, leaks):
    async with SlackServer() as server:
        platform = SlackPlatform(settings(server, tmp_path))
        async with send_only(platform):
            message = await platform.send(where(server), MessagePart("hello", id="1"))
            await platform.typing(where(server))
            await platform.edit(where(server), message, MessagePart("better"))
            assert server.said() == ["better"] and not server.asked("apps.connections.open")
        assert not list(tmp_path.glob("*.jsonl"))


async def test_what_another_process_sent_is_found_and_not_sent_again(tmp_path):
    async with SlackServer() as server:
        first, second = (SlackPlatform(settings(server, tmp_path / name)) for name in ("one", "other"))
        (tmp_path / "a.txt").write_bytes(b"text")
        text, file = MessagePart("once", id="1"), MessagePart(media=Media(str(tmp_path / "a.txt")), id="2")
        new = MessagePart("new", id="3")
        async with send_only(first), send_only(second):
            for part in (text, file):
                sent = await first.send(where(server), part)
                assert await second.send(where(server), replace(part, tried_since=time.time() - 5)) == sent
            await second.send(where(server), replace(new, tried_since=time.time() - 5))
        assert server.said()[0] == "once" and server.said()[-1] == "new" and len(server.posts()) == 3


async def test_a_message_that_cannot_be_looked_for_is_not_sent(tmp_path):
    async with at_work(tmp_path, deadline=0.5) as (server, platform, _):
        server.trouble("late", "chat.postMessage")
        piece = MessagePart("once", id="outbound:1")
        with pytest.raises(DeliveryError):
            await platform.send(where(server), piece)
        server.trouble("limit", "conversations.history", retry_after=1)
        with pytest.raises(DeliveryError, match="may have been sent") as waiting:
            await platform.send(where(server), piece)
        assert waiting.value.retry_after == 1 and not waiting.value.uncertain
        assert len(server.asked("chat.postMessage")) == 1


async def test_a_rate_limit_is_reported_and_respected(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        channel, _ = server.place()
        server.trouble("limit", "chat.postMessage", channel, retry_after=7, times=9)
        for _ in range(3):
            with pytest.raises(DeliveryError) as limited:
                await platform.send(where(server), MessagePart("x", id="1"))
            assert 6 < limited.value.retry_after <= 7 and not limited.value.uncertain
        assert len(server.asked("chat.postMessage")) == 1
        await platform.send(where(server, "general"), MessagePart("others do not wait"))


@pytest.mark.parametrize(
    ("error", "gone", "uncertain"),
    [
        ("channel_not_found", True, False),
        ("is_archived", True, False),
        ("msg_too_long", True, False),
        ("fatal_error", False, True),
        ("token_revoked", False, False),
        ("request_timeout", False, False),
    ],
)
async def test_errors_say_who_acts_next(tmp_path, error, gone, uncertain):
    async with at_work(tmp_path) as (server, platform, _):
        server.trouble("error", "chat.postMessage", error=error)
        with pytest.raises(DeliveryError) as refused:
            await platform.send(where(server), MessagePart("x", id="1"))
        assert (isinstance(refused.value, Undeliverable), refused.value.uncertain) == (gone, uncertain)
        assert server.token not in str(refused.value) and error in str(refused.value).replace("our token", error)


async def test_a_missing_scope_is_named(tmp_path):
    async with at_work(tmp_path) as (server, platform, _):
        server.web.scopes.discard("chat:write")
        with pytest.raises(DeliveryError, match=r"scope chat:write") as lacking:
            await platform.send(where(server), MessagePart("x"))
        assert not isinstance(lacking.value, Undeliverable)
        server.web.scopes.add("chat:write")
        with pytest.raises(Undeliverable, match="channel_not_found"):
            await platform.send(Address("slack", "C0NONE"), MessagePart("x"))


async def test_nothing_is_sent_without_a_connection(tmp_path):
    async with SlackServer() as server:
        platform = SlackPlatform(settings(server, tmp_path))
        for work in (platform.send(where(server), MessagePart("x")), platform.typing(where(server))):
            with pytest.raises(DeliveryError) as early:
                await work
            assert not early.value.uncertain
        await platform.set_commands((("stop", "stop the task"),))
