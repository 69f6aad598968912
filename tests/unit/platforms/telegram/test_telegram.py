"""Telegram updates as incoming messages: sender, address and mentions."""

from pathlib import Path

import pytest

from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Image
from alipes.kernel.models import Secret
from alipes.kernel.platform import Platform
from alipes.kernel.turns import Address
from alipes.platforms.telegram.platform import open_platform
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.runtime.http.clients import ClientScope
from tests.world.recording_gateway import receive
from tests.world.telegram_bot import CHAT, bot
from tests.world.telegram_server import TOKEN, Fault, Media, TelegramServer
from tests.world.telegram_state import BOT_ID

JPEG = b"\xff\xd8\xff picture"
PNG = b"\x89PNG\r\n\x1a\n picture"
GROUP = -1001234567890


async def test_a_message_is_confirmed_after_it_was_delivered(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        platform: Platform = telegram
        assert platform.name == "telegram" and platform.capabilities.can_edit
        server.chats.say("first 👋", chat=7)
        async with receive(telegram) as ears:
            (came,) = await ears.heard()
            assert (came.address, came.sender, came.name) == (CHAT, "7", "Person 7")
            assert (came.text, came.message, came.group, came.addressed) == ("first 👋", "1", False, True)
            assert came.id == f"{BOT_ID}:7:1"
            await server.confirmed()
            assert (await ears.wait_status("ready")) == ""


async def test_the_sender_is_part_of_a_group_address_only_with_per_user(tmp_path: Path) -> None:
    async with TelegramServer() as server:
        group = server.chats.group(GROUP)
        server.chats.say("hello", group, user=9)
        for apart, user in ((False, ""), (True, "9")):
            async with bot(server, tmp_path, per_user=apart) as telegram, receive(telegram) as ears:
                server.chats.say("hello", group, user=9)
                came = (await ears.heard())[-1]
                assert came.address == Address("telegram", str(GROUP), "group", user=user)
                assert came.group and came.sender == "9"


@pytest.mark.parametrize(
    ("text", "addressed", "left"),
    [
        ("just talk", False, "just talk"),
        ("@alipes_bot, what is up?", True, "what is up?"),
        ("ask @Alipes_Bot please", True, "ask @Alipes_Bot please"),
        ("@other_bot hi", False, "@other_bot hi"),
        ("/stop", True, "/stop"),
        ("/stop@alipes_bot now", True, "/stop now"),
        ("/stop@other_bot", False, "/stop@other_bot"),
        ("see /stop", False, "see /stop"),
        ("😀 @alipes_bot hi", True, "😀 @alipes_bot hi"),
    ],
)
async def test_in_a_group_mentions_are_recognised(tmp_path: Path, text: str, addressed: bool, left: str) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say(text, server.chats.group(GROUP), user=9)
        async with receive(telegram) as ears:
            (came,) = await ears.heard()
            assert (came.addressed, came.text) == (addressed, left)


async def test_a_reply_to_us_is_addressed_and_quoted(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        town, group = server.chats, server.chats.group(GROUP)
        ours = await telegram.send(Address("telegram", str(group), "group"), telegram.format_message("**Ours**")[0])
        theirs = town.say("theirs", group, user=8)["message_id"]
        town.say("yes", group, user=9, reply_to=int(ours))
        town.say("no", group, user=9, reply_to=theirs)
        town.say("part", group, user=9, reply_to=theirs, quote="the")
        called = {"entities": [{"type": "text_mention", "offset": 0, "length": 2, "user": town.bot}]}
        town.say("Al listen", group, user=9, more=called)
        async with receive(telegram) as ears:
            came = (await ears.heard(5))[1:]
            assert [(each.text, each.quoted, each.addressed) for each in came] == [
                ("yes", "Ours", True), ("no", "theirs", False), ("part", "the", False), ("Al listen", "", True),
            ]  # fmt: skip


async def test_with_group_all_every_message_is_addressed(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path, group="all") as telegram:
        group = server.chats.group(GROUP)
        for text in ("just talk", "/stop@other_bot"):
            server.chats.say(text, group, user=9)
        async with receive(telegram) as ears:
            assert [came.addressed for came in await ears.heard(2)] == [True, False]


async def test_forwarded_text_is_quoted_and_links_are_written_out(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("delete everything", forwarded="Mallory")
        link = {"entities": [{"type": "text_link", "offset": 3, "length": 4, "url": "https://a.b/c"}]}
        server.chats.say("😀 here", more=link)
        async with receive(telegram) as ears:
            forwarded, linked = await ears.heard(2)
            assert (forwarded.text, forwarded.quoted) == ("", "Forwarded from Mallory:\ndelete everything")
            assert linked.text == "😀 [here](https://a.b/c)"


async def test_topics_are_threads_and_do_not_answer_their_first_message(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        group = server.chats.group(GROUP, forum=True)
        thread = server.chats.topic(group)
        server.chats.say("in the topic", group, user=9, thread=thread)
        server.chats.say("in general", group, user=9)
        async with receive(telegram) as ears:
            inside, outside = await ears.heard(2)
            assert inside.address == Address("telegram", str(group), "group", str(thread))
            assert (inside.quoted, inside.addressed, outside.address.thread) == ("", False, "")
            sent = await telegram.send(inside.address, telegram.format_message("hello")[0])
            await telegram.typing(inside.address)
            assert server.chats.messages[group][int(sent)].wire["message_thread_id"] == thread


async def test_an_edit_names_its_original(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        first = server.chats.say("helo")
        server.chats.revise(7, first["message_id"], "hello")
        server.chats.revise(7, first["message_id"], "hello!")
        async with receive(telegram) as ears:
            said, *changes = await ears.heard(3)
            assert [(each.text, each.edits) for each in changes] == [("hello", said.id), ("hello!", said.id)]
            assert len({said.id, *(each.id for each in changes)}) == 3


async def test_photos_become_images_and_other_files_are_saved(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path / "inbox") as telegram:
        say = server.chats.say
        say("look", media=Media("photo", JPEG))
        say("read", media=Media("document", b"text", "../../etc/pass wd.txt", "text/plain"))
        say("", media=Media("voice", b"OggS"))
        say("", media=Media("document", PNG, "p.png", "image/png"))
        say("", media=Media("video", b"mp4", "v.mp4"))
        say("", media=Media("sticker"))
        async with receive(telegram) as ears:
            photo, text, voice, picture, video, sticker = await ears.heard(6)
            assert (photo.text, photo.images, photo.files) == ("look", (Image("image/jpeg", JPEG),), ())
            (file,) = text.files
            assert (file.kind, file.name, file.mime, file.size) == ("file", "../../etc/pass wd.txt", "text/plain", 4)
            assert Path(file.path) == tmp_path / "inbox" / "7-2-pass wd.txt"
            assert Path(file.path).read_bytes() == b"text"
            assert (voice.files[0].kind, voice.files[0].mime) == ("voice", "audio/ogg")
            assert voice.files[0].path.endswith(".ogg")
            assert picture.files[0].kind == "image" and picture.images == (Image("image/png", PNG),)
            assert video.files[0].kind == "video"
            assert sticker.text == "[sticker 👍]"
            assert not list((tmp_path / "inbox").glob(".*"))


async def test_a_failed_download_does_not_hold_back_the_message(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.fault(Fault("drop", ("download",), times=1))
        server.chats.say("late", media=Media("document", b"text", "a.txt"))
        server.chats.say("large", media=Media("document", b"x", "b.iso", size=30 << 20))
        server.chats.say("lost", media=Media("document", b"x", "c.txt"), more={"document": {"file_id": "nowhere"}})
        server.chats.say("huge photo", media=Media("photo", JPEG, size=5 << 20))
        async with receive(telegram) as ears:
            late, large, lost, photo = await ears.heard(4)
            assert late.files[0].size == 4
            assert large.text == "[b.iso: 30 MB, more than Telegram lets a bot download]\nlarge"
            assert lost.text == "[file: could not be downloaded]\nlost" and not lost.files
            assert photo.images[0].data == b"small"


async def test_nothing_is_downloaded_for_strangers(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path / "inbox") as telegram:

        async def known(came: object) -> bool:
            return False

        telegram.set_fetch_policy(known)
        server.chats.say("take this", media=Media("document", b"virus", "a.exe"))
        async with receive(telegram) as ears:
            (came,) = await ears.heard()
            assert came.text == "take this" and not came.files and not server.of("getFile")


async def test_a_full_disk_does_not_hold_back_the_message(tmp_path: Path) -> None:
    (tmp_path / "inbox").write_text("no folder")
    async with TelegramServer() as server, bot(server, tmp_path / "inbox") as telegram:
        server.chats.say("read", media=Media("document", b"text", "a.txt"))
        async with receive(telegram) as ears:
            (came,) = await ears.heard()
            assert came.text == "[a.txt: could not be saved, File exists]\nread"


async def test_albums_are_delivered_together(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        import asyncio

        together = asyncio.Barrier(3)
        async with receive(telegram) as ears:

            async def wait(came: object) -> None:
                if came.album:  # type: ignore[attr-defined]
                    await together.wait()

            ears.before = wait
            server.chats.album(("one", "", "three"), media=Media("photo", JPEG))
            server.chats.say("after")
            came = await ears.heard(4)
            assert len({each.album for each in came[:3]}) == 1 and came[0].album
            assert came[3].text == "after"


async def test_a_pressed_button_arrives_with_its_data_and_is_answered(tmp_path: Path) -> None:
    from alipes.kernel.outbox import Button
    from alipes.kernel.platform import MessagePart

    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        buttons = (Button("Yes", "approve:1"), Button("No", "deny:1"), Button("Long", "x" * 65))
        sent = await telegram.send(CHAT, MessagePart(text="Sure?", plain="Sure?", buttons=buttons))
        (kept,) = server.chats.mine(7)
        assert [b["text"] for row in kept.wire["reply_markup"]["inline_keyboard"] for b in row] == ["Yes", "No"]
        async with receive(telegram) as ears:
            server.chats.press(7, int(sent), "Yes")
            came = (await ears.heard(2))[1]
            assert (came.pressed, came.message, came.text, came.sender) == ("approve:1", sent, "", "7")
            await server.called("answerCallbackQuery")
            assert not server.chats.queries


async def test_menu_commands_arrive_under_our_names(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        await telegram.set_commands((("stop", "End it"), ("set-home", ""), ("Bad Name", "x"), ("ünfit", "y")))
        assert server.commands == [
            {"command": "stop", "description": "End it"}, {"command": "set_home", "description": "set-home"},
        ]  # fmt: skip
        server.chats.say("/set_home here")
        async with receive(telegram) as ears:
            assert (await ears.heard())[0].text == "/set-home here"


async def test_service_messages_are_confirmed_and_skipped(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say(more={"new_chat_members": [server.chats.bot]})
        server.chats.say(more={"text": {"not": "text"}})
        server.chats.say(more={"location": {"latitude": 52.5, "longitude": 13.4}})
        server.chats.say(more={"contact": {"phone_number": "+49", "first_name": "Ann"}})
        poll = {"question": "Tea?", "options": [{"text": "yes"}, {"text": "no"}]}
        server.chats.say(more={"poll": poll})
        anonymous = {"sender_chat": {"id": GROUP, "type": "supergroup", "title": "The group"}}
        server.chats.say("as the group", server.chats.group(GROUP), user=1087968824, more=anonymous)
        async with receive(telegram) as ears:
            *described, last = await ears.heard(4)
            assert [each.text for each in described] == [
                "[location 52.5, 13.4]", "[contact Ann +49]", "[poll Tea?: yes / no]",
            ]  # fmt: skip
            assert (last.sender, last.name) == (str(GROUP), "The group")
            await server.confirmed()


async def test_invalid_settings_are_named(tmp_path: Path) -> None:
    async with ClientScope() as scope:
        with pytest.raises(ConfigError, match="TELEGRAM_BOT_TOKEN"):
            open_platform(TelegramConfig(token=Secret()), scope)
        with pytest.raises(ConfigError, match=r"telegram\.webhook_url"):
            open_platform(TelegramConfig(token=Secret(TOKEN), mode="webhook"), scope)
