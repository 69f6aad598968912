"""Encrypted rooms on a real Synapse: reading, writing, restarts and missing keys."""

from contextlib import asynccontextmanager

import pytest

from alipes.kernel.errors import Undeliverable
from alipes.kernel.outbox import Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from tests.world.matrix_encryption import open_encrypted_client
from tests.world.matrix_harness import homeserver, open_matrix_harness  # noqa: F401
from tests.world.recording_gateway import RecordingGateway
from tests.world.synapse_server import synapse

pytestmark = [pytest.mark.deadline(60), pytest.mark.usefixtures("homeserver")]

KEYS = "/_matrix/client/v3/keys/query"


@asynccontextmanager
async def in_private(tmp_path):
    """A world, a person with an encrypting client, and a recording gateway."""
    async with open_matrix_harness(tmp_path / "matrix") as world:
        person = await world.town.person("ada")
        async with open_encrypted_client(person, synapse()) as ada:
            yield world, ada, RecordingGateway()


async def test_messages_edits_and_files_are_encrypted_both_ways(tmp_path):
    report = tmp_path / "report.csv"
    report.write_bytes(b"a;b\n")
    async with in_private(tmp_path) as (world, ada, ears), world.listening(ears) as platform:
        room = await ada.room(world.us, direct=True)
        await ada.joined(room, world.us.id)
        first = await ada.say(room, "hello")
        await ears.until(lambda: ears.texts == ["hello"])
        where = ears.arrivals[0].address
        await ada.change(room, first, "hello you")
        await ada.attach(room, "notes.txt", "text/plain", b"one line\n")
        await ears.until(lambda: len(ears.arrivals) == 3)
        edit, file = ears.arrivals[1:]
        assert (edit.text, edit.edits) == ("hello you", first)
        with open(file.files[0].path, "rb") as saved:
            assert saved.read() == b"one line\n"
        (piece,) = platform.format_message("Good **morning**.")
        sent = await platform.send(where, piece)
        await ada.until(lambda: sent in ada.chat(room).posts)
        await platform.edit(where, sent, MessagePart(text="Good night.", plain="Good night."))
        await ada.until(lambda: ada.chat(room).posts[sent].body == "Good night.")
        mailed = await platform.send(where, MessagePart(media=Media(str(report))))
        await ada.until(lambda: mailed in ada.chat(room).posts)
        content = ada.chat(room).posts[mailed].content
        assert content["filename"] == "report.csv" and await ada.fetch(content["file"]) == b"a;b\n"
        assert {sent, mailed} <= ada.sealed and not ada.unread


async def test_keys_survive_a_restart_and_missed_messages_are_read(tmp_path):
    async with in_private(tmp_path) as (world, ada, ears):
        async with world.listening(ears):
            room = await ada.room(world.us, direct=True)
            await ada.joined(room, world.us.id)
            await ada.say(room, "one")
            await ears.until(lambda: ears.texts == ["one"])
        await ada.say(room, "two")
        again = RecordingGateway()
        async with world.listening(again) as platform:
            await again.until(lambda: "two" in again.texts)
            sent = await platform.send(again.arrivals[-1].address, MessagePart(text="Good.", plain="Good."))
            await ada.until(lambda: sent in ada.chat(room).posts)
        assert sent in ada.sealed and again.texts == ["two"]
        kept = {path.name: path.stat().st_mode & 0o777 for path in world.folder.iterdir() if path.is_file()}
        assert kept["login.key"] == 0o600 and all(mode == 0o600 for mode in kept.values())


async def test_an_undecrypted_message_is_reported_once_and_answered_when_its_key_arrives(tmp_path):
    async with in_private(tmp_path) as (world, ada, ears), world.listening(ears):
        room = await ada.room(world.us, direct=True)
        await ada.joined(room, world.us.id)
        key = ada.keep_to_herself(room)
        await ada.say(room, "secret")
        await ada.say(room, "more secret")
        seen = ada.chat(room).posts
        await ada.until(lambda: any("could not decrypt" in post.body for post in seen.values()))
        assert not ears.arrivals
        await ada.share(key, world.us.id)
        await ears.until(lambda: len(ears.arrivals) == 2)
        assert ears.texts == ["secret", "more secret"]
        await ada.say(room, "now open")
        await ears.until(lambda: len(ears.arrivals) == 3)
        assert sum("could not decrypt" in post.body for post in seen.values()) == 1
        assert (world.folder / "heard.json").read_bytes().count(b"ciphertext") == 0


async def test_our_device_and_the_next_one_are_cross_signed(tmp_path):
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")

        async def vouched():
            known = await ada.call("POST", KEYS, {"device_keys": {world.us.id: []}})
            (master,) = known["master_keys"][world.us.id]["keys"].values()
            (own,) = known["self_signing_keys"][world.us.id]["keys"]
            signed = {
                device
                for device, keys in known["device_keys"][world.us.id].items()
                if own in keys["signatures"][world.us.id]
            }
            return master, signed

        async with world.listening(RecordingGateway()):
            master, devices = await vouched()
            assert len(devices) == 1
        async with world.listening(RecordingGateway()):
            assert sum(path.endswith("/signatures/upload") for _, path in world.gate.calls) == 1
        (world.folder / "login.key").unlink()
        async with world.listening(RecordingGateway()):
            again, both = await vouched()
            assert again == master and len(both) == 2 and devices < both


async def test_cross_signing_set_up_elsewhere_is_left_alone(tmp_path):
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(RecordingGateway()):
            known = await ada.call("POST", KEYS, {"device_keys": {world.us.id: []}})
        for name in ("signing.key", "login.key"):
            (world.folder / name).unlink()
        async with world.listening(RecordingGateway()) as platform:
            after = await ada.call("POST", KEYS, {"device_keys": {world.us.id: []}})
            assert after["master_keys"] == known["master_keys"] and platform.capabilities.can_edit


async def test_a_message_with_another_persons_key_is_dropped(tmp_path):
    """A homeserver that claims bob's message is ada's is not believed."""
    async with in_private(tmp_path) as (world, ada, ears), world.listening(ears):
        bob = await world.town.person("bob")
        room = await ada.room(bob, world.us)
        await bob.join(room)
        await ada.joined(room, world.us.id)
        await ada.say(room, "one")
        await ears.until(lambda: ears.texts == ["one"])
        world.gate.forger = bob.id
        await ada.say(room, "two")
        await bob.say(room, "three")
        await ears.until(lambda: "three" in ears.texts)
        world.gate.forger = ""
        await ada.say(room, "four")
        await ears.until(lambda: "four" in ears.texts)
        assert ears.texts == ["one", "three", "four"]


async def test_with_encryption_off_nothing_is_sent_to_encrypted_rooms(tmp_path):
    async with in_private(tmp_path) as (world, ada, ears):
        async with world.listening(ears, encryption=False) as platform:
            plain = await ada.person.room(world.us, direct=True)
            await ada.person.say(plain, "hello")
            await ears.until(lambda: ears.texts == ["hello"])
            await platform.send(ears.arrivals[0].address, MessagePart(text="Good morning."))
            hidden = await ada.room(world.us, direct=True)
            await ada.until(lambda: world.us.id in ada.client.rooms[hidden].users)
            await ada.say(hidden, "secret")
            await ada.person.say(plain, "still there?")
            await ears.until(lambda: len(ears.arrivals) == 2)
            with pytest.raises(Undeliverable, match="encryption is off"):
                await platform.send(Address("matrix", hidden), MessagePart(text="openly"))
        assert not (world.folder / "keys.db").exists()
