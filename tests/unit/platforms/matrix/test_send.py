"""Sending to Matrix: replies, threads, buttons, files, and each message once."""

from contextlib import asynccontextmanager

import pytest

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button, Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from tests.world.matrix_harness import homeserver, open_matrix_harness  # noqa: F401
from tests.world.recording_gateway import RecordingGateway

pytestmark = [pytest.mark.deadline(60), pytest.mark.usefixtures("homeserver")]


@asynccontextmanager
async def with_ada(tmp_path, **more):
    """The running platform, a person, and their chat."""
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world, world.listening(ears, **more) as platform:
        ada = await world.town.person("ada")
        room = await ada.room(world.us, direct=True)
        await ada.say(room, "hello")
        await ears.until(lambda: ears.arrivals)
        yield world, platform, ears, ada, ears.arrivals[0].address


async def test_a_reply_names_its_original_and_stays_in_its_thread(tmp_path):
    async with with_ada(tmp_path) as (_, platform, ears, ada, where):
        asked = ears.arrivals[0].id
        plain = await platform.send(where, MessagePart(text="plain"))
        reply = await platform.send(where, MessagePart(text="reply", reply_to=asked))
        inside = Address("matrix", where.chat, thread=asked)
        thread = await platform.send(inside, MessagePart(text="in the thread"))
        both = await platform.send(inside, MessagePart(text="both", reply_to=asked))
        posts = ada.chat(where.chat).posts
        await ada.until(lambda: both in posts)
        assert not posts[plain].related and posts[plain].content["m.mentions"] == {}
        assert (posts[reply].answers, posts[reply].thread) == (asked, "")
        assert posts[reply].content["m.mentions"] == {"user_ids": [ada.id]}
        assert (posts[thread].answers, posts[thread].thread) == ("", asked)
        assert (posts[both].answers, posts[both].thread) == (asked, asked)


async def test_buttons_are_reactions_that_are_removed_with_the_answer(tmp_path):
    buttons = (Button("Yes", "ask:1:once"), Button("No", "ask:1:no"))
    async with with_ada(tmp_path) as (world, platform, ears, ada, where):
        inside = Address("matrix", where.chat, thread=ears.arrivals[0].id)
        sent = await platform.send(inside, MessagePart(text="Approve?", buttons=buttons))
        posts = ada.chat(where.chat).posts
        await ada.until(lambda: sent in posts and len(posts[sent].reactions) == 2)
        assert set(posts[sent].reactions.values()) == {(world.us.id, "Yes"), (world.us.id, "No")}
        await ada.react(where.chat, sent, "👍")
        await ada.react(where.chat, ears.arrivals[0].id, "Yes")
        await ada.react(where.chat, sent, "Yes")
        await ears.until(lambda: len(ears.arrivals) == 2)
        pressed = ears.arrivals[1]
        assert (pressed.pressed, pressed.message, pressed.sender) == ("ask:1:once", sent, ada.id)
        assert pressed.address == inside and not pressed.text
        await platform.edit(inside, sent, MessagePart(text="Allowed.", plain="Allowed."))
        await ada.until(lambda: world.us.id not in {who for who, _ in posts[sent].reactions.values()})
        assert posts[sent].body == "Allowed."


async def test_a_question_from_before_a_restart_can_be_answered(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(ears) as platform:
            room = await ada.room(world.us, direct=True)
            await ada.say(room, "hello")
            await ears.until(lambda: ears.arrivals)
            sent = await platform.send(
                ears.arrivals[0].address, MessagePart(text="Approve?", buttons=(Button("Yes", "ask:1:once"),))
            )
        await ada.react(room, sent, "Yes")
        again = RecordingGateway()
        async with world.listening(again):
            await again.until(lambda: again.arrivals)
            assert again.arrivals[0].pressed == "ask:1:once"


async def test_a_repeated_send_gives_one_message(tmp_path):
    async with with_ada(tmp_path, patience=1.0) as (world, platform, _, ada, where):
        world.gate.fault("lose", "send", where.chat)
        with pytest.raises(DeliveryError) as lost:
            await platform.send(where, MessagePart(text="Good morning.", id="debt#0"))
        assert lost.value.uncertain and "did not answer in time" in str(lost.value)
        first = await platform.send(where, MessagePart(text="Good morning.", id="debt#0"))
        again = await platform.send(where, MessagePart(text="Good morning!", id="debt#0"))
        other = await platform.send(where, MessagePart(text="Good night.", id="debt#1"))
        posts = ada.chat(where.chat).posts
        await ada.until(lambda: other in posts)
        ours = [post.body for post in posts.values() if post.sender == world.us.id]
        assert first == again and ours == ["Good morning.", "Good night."]


async def test_errors_say_who_acts_next(tmp_path):
    async with with_ada(tmp_path) as (world, platform, _, ada, where):
        world.gate.fault("limit", "send", where.chat, retry_ms=2500)
        with pytest.raises(DeliveryError) as later:
            await platform.send(where, MessagePart(text="one"))
        assert later.value.retry_after == 2.5 and not later.value.uncertain
        world.gate.fault("break", "send", where.chat)
        with pytest.raises(DeliveryError) as broken:
            await platform.send(where, MessagePart(text="two"))
        assert broken.value.uncertain and "502" in str(broken.value)
        assert not isinstance(broken.value, Undeliverable)
        with pytest.raises(Undeliverable, match="not in that room"):
            await platform.send(Address("matrix", "!nowhere"), MessagePart(text="three"))
        with pytest.raises(Undeliverable):
            await platform.send(where, MessagePart(text="x" * 70_000))
        with pytest.raises(Undeliverable, match="cannot be read"):
            await platform.send(where, MessagePart(media=Media(str(tmp_path / "gone"))))
        await ada.call(
            "POST", f"/_matrix/client/v3/rooms/{where.chat}/kick", {"user_id": world.us.id, "reason": "enough"}
        )
        with pytest.raises(Undeliverable, match=r"rejected|not in that room"):
            await platform.send(where, MessagePart(text="four"))


async def test_files_are_sent_with_names_and_captions(tmp_path):
    voice, large = tmp_path / "note.ogg", tmp_path / "large.bin"
    voice.write_bytes(b"sound")
    large.write_bytes(bytes(3_000_000))
    async with with_ada(tmp_path) as (_, platform, _desk, ada, where):
        sent = await platform.send(where, MessagePart(media=Media(str(voice), "voice", "hello.ogg", "listen")))
        posts = ada.chat(where.chat).posts
        await ada.until(lambda: sent in posts)
        content = posts[sent].content
        assert (content["msgtype"], content["filename"], content["body"]) == ("m.audio", "hello.ogg", "listen")
        assert content["info"]["size"] == 5 and await ada.download(content["url"]) == b"sound"
        with pytest.raises(Undeliverable):  # the homeserver accepts two megabytes
            await platform.send(where, MessagePart(media=Media(str(large))))


async def test_a_person_is_reached_in_their_direct_chat(tmp_path):
    async with with_ada(tmp_path) as (_, platform, _desk, ada, where):
        name, _, server = ada.id.partition(":")
        sent = await platform.send(Address("matrix", name, thread=server), MessagePart(text="The backup is done."))
        await ada.until(lambda: sent in ada.chat(where.chat).posts)
        with pytest.raises(Undeliverable, match="no direct chat"):
            await platform.send(Address("matrix", "@nobody:alipes.test"), MessagePart(text="hello"))


async def test_the_typing_indicator_ends_with_a_message(tmp_path):
    async with with_ada(tmp_path) as (world, platform, _, ada, where):
        await platform.typing(where)
        await ada.until(lambda: ada.chat(where.chat).typing == [world.us.id])
        await platform.send(where, MessagePart(text="done"))
        await ada.until(lambda: not ada.chat(where.chat).typing)


async def test_sending_without_listening_is_an_error(tmp_path):
    async with with_ada(tmp_path) as (_, platform, _desk, _ada, where):
        pass
    with pytest.raises(DeliveryError, match="not connected"):
        await platform.send(where, MessagePart(text="hello?"))
