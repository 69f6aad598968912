"""Behaviour that Discord and Slack share."""

import asyncio

import pytest

from alipes.kernel.platform import MessagePart
from alipes.platforms.discord import receive as discord_seen
from alipes.platforms.slack import receive as slack_seen
from tests.unit.platforms.discord import harness as discord_harness
from tests.unit.platforms.slack import harness as slack_harness
from tests.world.recording_gateway import RecordingGateway, receive


@pytest.fixture(params=[discord_harness, slack_harness], ids=["discord", "slack"])
def desk(request):
    return request.param


async def test_people_may_have_their_own_conversation_in_a_channel(tmp_path, desk):
    async with desk.at_work(tmp_path, per_user=True) as (server, _, ears):
        server.say("@alipes hi", who="bob", where="general")
        server.say("hi", who="bob")
        await server.until(lambda: len(ears.arrivals) == 2)
        users = {arrival.group: arrival.address.user for arrival in ears.arrivals}
        assert users == {True: server.world.person("bob").id, False: ""}


async def test_pictures_reach_the_model_and_other_files_are_saved(tmp_path, leaks, desk):
    async with desk.at_work(tmp_path, picture=20, largest=100) as (server, _, ears):
        server.say(
            "look",
            files=[
                ("cat.png", "image/png", b"tiny"),
                ("big.png", "image/png", b"x" * 50),
                ("../../etc/pass wd", "text/plain", b"text"),
                ("film.mp4", "video/mp4", b"x" * 200),
            ],
        )
        server.say("", files=[("voice-message.ogg", "audio/ogg", b"Ogg")], voice=True)
        await server.until(lambda: len(ears.arrivals) == 2)
        seen, voice = ears.arrivals
        assert [(image.media_type, image.data) for image in seen.images] == [("image/png", b"tiny")]
        big, text = seen.files
        assert (big.kind, big.size, text.kind, text.mime) == ("image", 50, "file", "text/plain")
        folder = tmp_path / "files"
        assert {str(path) for path in folder.iterdir()} == {big.path, text.path, voice.files[0].path}
        assert (folder / text.path).read_bytes() == b"text"
        assert seen.text == "look\n[film.mp4 was not downloaded: it is larger than 0 MB.]"
        assert voice.files[0].kind == "voice"


async def test_files_of_strangers_are_not_downloaded(tmp_path, desk):
    async with desk.Server() as server:
        ears, platform = RecordingGateway(), desk.opened(server, tmp_path)
        known = server.world.person("ada").id

        async def welcome(arrival):
            return arrival.sender == known

        platform.set_fetch_policy(welcome)
        async with receive(platform, ears):
            await server.until(lambda: ears.ready)
            for who in ("ada", "mallory"):
                server.say("look", who=who, files=[(f"{who}.txt", "text/plain", b"text")])
            await server.until(lambda: len(ears.arrivals) == 2)
        assert server.downloads == ["ada.txt"]


async def test_two_instances_use_their_own_addresses(tmp_path, desk):
    async with desk.at_work(tmp_path / "one") as (one, first, _), desk.at_work(tmp_path / "two") as (two, second, _):
        await first.send(desk.where(one), MessagePart("first"))
        await second.send(desk.where(two), MessagePart("second"))
        assert (one.said(), two.said()) == (["first"], ["second"])


async def test_cancelling_at_any_moment_leaves_nothing_behind(tmp_path, leaks, desk):
    async with desk.Server() as server:
        platform = desk.opened(server, tmp_path)
        for number in range(12):
            ears = RecordingGateway()
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(platform.listen(ears.take, ears.tell))
                await asyncio.sleep(number * 0.005)
                task.cancel()
                await asyncio.sleep(0)
                task.cancel()  # cancelled at any moment
        await server.until(lambda: not server.lines)


@pytest.mark.parametrize(
    "kind", [discord_seen.DiscordReadPosition, slack_seen.SlackReadPosition], ids=["discord", "slack"]
)
async def test_the_read_position_is_saved_periodically(tmp_path, kind):
    path = tmp_path / "seen.json"
    seen = kind(path)
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(seen.save_periodically(0.01))
        for each in (1, 2, 3):
            seen.finish(seen.start(each))
            while kind(path).position != each:
                await asyncio.sleep(0.01)
        keeping.cancel()
