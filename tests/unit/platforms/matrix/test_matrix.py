"""The Matrix platform on a real Synapse: incoming messages."""

from pathlib import Path

import pytest

from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from tests.world.matrix_harness import homeserver, open_matrix_harness  # noqa: F401
from tests.world.recording_gateway import RecordingGateway

pytestmark = [pytest.mark.deadline(60), pytest.mark.usefixtures("homeserver")]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def only_ada(arrival):
    return arrival.sender.startswith("@ada-")


async def test_text_goes_both_ways_in_a_direct_chat(tmp_path, leaks):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world, world.listening(ears) as platform:
        ada = await world.town.person("ada")
        room = await ada.room(world.us, direct=True)
        id = await ada.say(room, "hello")
        await ears.until(lambda: ears.texts == ["hello"])
        came = ears.arrivals[0]
        assert (came.id, came.message, came.sender, came.name) == (id, id, ada.id, "Ada")
        assert came.address == Address("matrix", room) and not came.group and came.addressed
        (piece,) = platform.format_message("Good **morning**.")
        sent = await platform.send(came.address, piece)
        await ada.until(lambda: sent in ada.chat(room).posts)
        post = ada.chat(room).posts[sent]
        assert post.body == "Good morning." and post.content["formatted_body"] == "Good <strong>morning</strong>."
        assert post.content["m.mentions"] == {}
        await platform.edit(came.address, sent, MessagePart(text="Good night.", plain="Good night."))
        await ada.until(lambda: post.body == "Good night." and world.us.id in ada.chat(room).read)
        assert "formatted_body" not in post.content
        await platform.delete(came.address, sent)
        await platform.delete(came.address, sent)
        await ada.until(lambda: sent not in ada.chat(room).posts)


async def test_in_a_room_mentions_our_name_and_replies_are_addressed(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world, world.listening(ears) as platform:
        ada, bob = await world.town.person("ada"), await world.town.person("bob")
        room = await ada.room(bob, world.us)
        await bob.join(room)
        await ada.say(room, "just talk")
        await ears.until(lambda: ears.arrivals)
        ours = await platform.send(Address("matrix", room, "group"), MessagePart(text="I said this"))
        answer = {"m.in_reply_to": {"event_id": ours}}
        thread = {"rel_type": "m.thread", "event_id": ours, "is_falling_back": True}
        us = {"m.mentions": {"user_ids": [world.us.id]}}
        await ada.say(room, "Alipes: by mention", **us)
        await ada.say(room, "Alipes, by name")
        await ada.say(room, f"by id, {world.us.id}!")
        await ada.say(room, "by pill", formatted_body=f'<a href="https://matrix.to/#/{world.us.id}">x</a> by pill')
        await ada.say(room, "by answer", **{"m.relates_to": answer, "m.mentions": {}})
        await ada.say(room, "by thread", **{"m.relates_to": thread, "m.mentions": {}})
        await ada.say(room, "/stop")
        await ada.say(room, "alipesque talk")
        await ada.say(room, "about Alipes, not to it", **{"m.mentions": {}})
        await ears.until(lambda: len(ears.arrivals) == 10)
        meant = [arrival.text for arrival in ears.arrivals if arrival.addressed]
        assert meant == [
            "by mention", "by name", f"by id, {world.us.id}!", "by pill", "by answer", "by thread",
        ]  # fmt: skip
        assert all(arrival.group and arrival.address.chat_type == "group" for arrival in ears.arrivals)
        quoted = {arrival.text: arrival.quoted for arrival in ears.arrivals}
        assert quoted["by answer"] == "Alipes: I said this" and not quoted["by thread"]
        threads = {arrival.text: arrival.address.thread for arrival in ears.arrivals}
        assert threads["by thread"] == ours and not threads["by answer"]
        await platform.set_commands((("stop", "end it"), ("new", "start over")))
        await ada.say(room, "/stop")
        await ada.say(room, f"{world.us.id} !new")
        await ada.say(room, "!other")
        await ears.until(lambda: len(ears.arrivals) == 13)
        assert [(each.text, each.addressed) for each in ears.arrivals[-3:]] == [
            ("/stop", True), ("/new", True), ("!other", False),
        ]  # fmt: skip


async def test_people_may_have_their_own_conversation_in_a_room(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world, world.listening(ears, per_user=True, group="all"):
        ada, bob = await world.town.person("ada"), await world.town.person("bob")
        room = await ada.room(bob, world.us)
        await bob.join(room)
        await ada.say(room, "one")
        await bob.say(room, "two")
        await ears.until(lambda: len(ears.arrivals) == 2)
        assert [arrival.address.user for arrival in ears.arrivals] == [ada.id, bob.id]
        assert all(arrival.addressed for arrival in ears.arrivals)


async def test_replies_edits_and_other_message_types(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world, world.listening(ears):
        ada, bob = await world.town.person("ada"), await world.town.person("bob")
        room = await ada.room(bob, world.us)
        await bob.join(room)
        first = await ada.say(room, "the weather in Pris?")
        old = f"> <{ada.id}> the weather in Pris?\n> second line\n\nwhere is that?"
        await bob.say(room, old, **{"m.relates_to": {"m.in_reply_to": {"event_id": first}}})
        await bob.say(room, "> <not> an answer")
        await bob.change(room, first, "the words of bob")
        await ada.change(room, first, "the weather in Paris?")
        await ada.send(room, {"msgtype": "m.notice", "body": "a program speaks"})
        await ada.send(room, {"msgtype": "m.emote", "body": "waves"})
        await ada.send(room, {"msgtype": "m.location", "body": "here", "geo_uri": "geo:1,2"})
        await ada.send(room, {"body": "a cat", "url": "mxc://x/y", "info": {}}, "m.sticker")
        gone = await ada.say(room, "last")
        await ears.until(lambda: ears.texts and ears.texts[-1] == "last")
        assert [text for text in ears.texts if text] == [
            "the weather in Pris?", "where is that?", "> <not> an answer", "the weather in Paris?", "* waves",
            "[location geo:1,2] here", "[sticker: a cat]", "last",
        ]  # fmt: skip
        answer = next(each for each in ears.arrivals if each.text == "where is that?")
        assert answer.quoted == "Ada: the weather in Pris?"
        edit = next(each for each in ears.arrivals if each.text == "the weather in Paris?")
        assert edit.edits == edit.message == first and edit.id not in (first, gone)


async def test_files_are_downloaded_only_for_people_with_access(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada, bob = await world.town.person("ada"), await world.town.person("bob")
        async with world.listening(ears, only_ada, group="all", largest=1000):
            room = await ada.room(bob, world.us)
            await bob.join(room)
            text = await ada.upload(b"one line\n", "text/plain")
            image = await ada.upload(PNG, "image/png")
            large = await ada.upload(bytes(1001), "application/zip")
            note = {"msgtype": "m.audio", "body": "voice.ogg", "url": text, "info": {"mimetype": "audio/ogg"}}
            await ada.send(room, {"msgtype": "m.file", "body": "../no tes.txt", "url": text})
            await ada.send(room, {"msgtype": "m.image", "body": "what is it?", "filename": "dot.png", "url": image})
            await ada.send(room, {**note, "org.matrix.msc3245.voice": {}})
            await ada.send(room, {"msgtype": "m.file", "body": "large.zip", "url": large})
            await ada.send(room, {"msgtype": "m.file", "body": "gone", "url": "mxc://alipes.test/nothing"})
            await ada.send(room, {"msgtype": "m.file", "body": "odd", "url": 7})
            await bob.send(room, {"msgtype": "m.file", "body": "bob.txt", "url": text})
            await ears.until(lambda: len(ears.arrivals) == 7)
        file, picture, voice, big, gone, odd, bobs = ears.arrivals
        (saved,) = file.files
        assert Path(saved.path).read_text() == "one line\n" and saved.name == "../no tes.txt" and not file.text
        assert saved.path.startswith(str(world.folder / "files")) and saved.size == 9
        assert picture.text == "what is it?" and picture.images[0].data == PNG and not picture.files
        assert voice.files[0].kind == "voice" and voice.files[0].mime == "audio/ogg"
        assert big.text == "[large.zip was not downloaded: it is larger than 0 MB.]" and not big.files
        assert "could not be downloaded" in gone.text and "could not be downloaded" in odd.text
        assert not bobs.files and not bobs.images


async def test_invitations_of_people_with_access_are_accepted(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada, bob = await world.town.person("ada"), await world.town.person("bob")
        pending = await ada.room(world.us)
        async with world.listening(ears, only_ada) as platform:
            theirs, direct = await bob.room(world.us), await bob.room(world.us, direct=True)
            for room in (pending, await ada.room(world.us)):
                await ada.until(lambda room=room: _joined(ada, room, world.us.id))
            await ears.until(lambda: ears.arrivals)
            (called,) = ears.arrivals
            assert (called.sender, called.text, called.address) == (bob.id, "", Address("matrix", direct))
            await bob.look()
            assert not _joined(bob, theirs, world.us.id) and not _joined(bob, direct, world.us.id)
            sent = None
            while sent is None:  # the first attempt joins the room; the gateway retries
                sent = await _sent(platform, called.address, MessagePart(text="Your code is X", id="code"))
            await bob.until(lambda: sent in bob.chat(direct).posts)
            assert not _joined(bob, theirs, world.us.id)


async def test_messages_before_the_invitation_are_ignored(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        known = await ada.room(world.us)
        async with world.listening(ears):
            await ada.until(lambda: _joined(ada, known, world.us.id))
            room = await ada.room()
            await ada.say(room, "long ago")
            await ada.invite(room, world.us.id)
            await ada.say(room, "welcome")
            await ears.until(lambda: ears.arrivals)
            await ada.say(room, "how are you?")
            await ears.until(lambda: len(ears.arrivals) == 2)
        assert ears.texts == ["welcome", "how are you?"]


def _joined(person, room, who):
    state = person.chat(room).events.values()
    return any(each.get("state_key") == who and each["content"]["membership"] == "join" for each in state)


async def _sent(platform, address, piece):
    from alipes.kernel.errors import DeliveryError, Undeliverable

    try:
        return await platform.send(address, piece)
    except Undeliverable:
        raise
    except DeliveryError as error:
        assert error.retry_after
        return None
