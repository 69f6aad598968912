"""Sending to Telegram: formatting, errors that say who acts next, and no error shows the token."""

import logging
import traceback
from pathlib import Path

import pytest

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button, Media
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.telegram.send import text_params
from tests.world.telegram_bot import CHAT, bot
from tests.world.telegram_server import TOKEN, Fault, TelegramServer

HELLO = MessagePart(text="<b>hello</b>", plain="hello")


async def test_a_formatted_reply_with_buttons_is_sent(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        asked = server.chats.say("hi")
        (piece,) = telegram.format_message("**Sure** about `rm`?")
        buttons = tuple(
            Button(label, label.lower()) for label in ("Once", "Session", "Always", "No", "A much longer label")
        )
        reply = MessagePart(text=piece.text, plain=piece.plain, buttons=buttons, reply_to=str(asked["message_id"]))
        sent = await telegram.send(CHAT, reply)
        kept = server.chats.messages[7][int(sent)]
        assert kept.text == "Sure about rm?" and kept.mode == "HTML"
        assert [entity["type"] for entity in kept.wire["entities"]] == ["bold", "code"]
        assert kept.wire["reply_to_message"]["message_id"] == asked["message_id"]
        rows = kept.wire["reply_markup"]["inline_keyboard"]
        assert [[button["text"] for button in row] for row in rows] == [
            ["Once", "Session", "Always", "No"],
            ["A much longer label"],
        ]


async def test_a_reply_to_a_deleted_message_is_still_sent(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        await telegram.send(CHAT, MessagePart(text="x", plain="x", reply_to="99"))
        assert server.chats.mine(7)[0].text == "x"


async def test_rejected_markup_is_sent_as_plain_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        sent = await telegram.send(CHAT, MessagePart(text="<b>broken", plain="*broken*"))
        assert server.chats.messages[7][int(sent)].text == "*broken*"
        await telegram.edit(CHAT, sent, MessagePart(text="<i>again", plain="again & again"))
        assert server.chats.messages[7][int(sent)].text == "again & again"
        assert "rejected our markup" in caplog.text


async def test_an_unchanged_edit_and_a_second_delete_are_no_errors(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        sent = await telegram.send(CHAT, HELLO)
        await telegram.edit(CHAT, sent, HELLO)
        await telegram.edit(CHAT, sent, MessagePart(text="more", plain="more"))
        assert [text for _, text in server.chats.mine(7)[0].edits] == ["more"]
        await telegram.delete(CHAT, sent)
        await telegram.delete(CHAT, sent)
        with pytest.raises(Undeliverable, match="message to edit not found"):
            await telegram.edit(CHAT, sent, HELLO)


@pytest.mark.parametrize(
    ("kind", "name", "wire"),
    [
        ("image", "a.png", "photo"), ("image", "a.svg", "document"), ("audio", "a.mp3", "audio"),
        ("voice", "a.ogg", "voice"), ("video", "a.mp4", "video"), ("file", "ä \"q\".txt", "document"),
    ],
)  # fmt: skip
async def test_files_of_every_kind_are_sent_with_their_caption(tmp_path: Path, kind: str, name: str, wire: str) -> None:
    path = tmp_path / "file.bin"
    path = tmp_path / name
    path.write_bytes(b"\x00\r\n--data")
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        media = Media(str(path), kind, caption="see **this**")  # type: ignore[arg-type]
        sent = await telegram.send(CHAT, MessagePart(media=media))
        kept = server.chats.messages[7][int(sent)]
        file = kept.wire[wire][-1] if wire == "photo" else kept.wire[wire]
        assert server.chats.files[file["file_id"]][1] == b"\x00\r\n--data"
        assert kept.text == "see this" and kept.wire["caption_entities"][0]["type"] == "bold"
        if wire == "document":
            assert file["file_name"] == name.replace('"', "'")
        await telegram.edit(CHAT, sent, MessagePart(text="new", plain="new"))
        assert kept.text == "new"


async def test_a_caption_that_is_too_long_follows_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        piece = MessagePart(media=Media(str(tmp_path / "a.txt"), caption="word " * 300))
        await telegram.send(CHAT, piece)
        file, words = server.chats.mine(7)
        assert "document" in file.wire and not file.text and words.text.count("word") == 300
        server.fault(Fault("fail", ("sendMessage",)))
        with pytest.raises(DeliveryError) as failed:
            await telegram.send(CHAT, piece)
        assert failed.value.uncertain, "the file is there already"


async def test_an_unsupported_picture_is_sent_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        server.fault(Fault("refuse", ("sendPhoto",), why="PHOTO_INVALID_DIMENSIONS"))
        await telegram.send(CHAT, MessagePart(media=Media(str(tmp_path / "a.png"), "image")))
        assert server.chats.mine(7)[0].wire["document"]["file_name"] == "a.png"


@pytest.mark.parametrize("content", [None, b""])
async def test_a_file_that_can_never_be_sent_is_undeliverable(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        with pytest.raises(Undeliverable, match=r"(empty files|cannot be read)"):
            await telegram.send(CHAT, MessagePart(media=Media(str(tmp_path / "a"))))


@pytest.mark.parametrize(
    ("harm", "uncertain", "there"),
    [
        (Fault("hang", accepted=True), True, 1), (Fault("drop", accepted=True), True, 1),
        (Fault("drop"), True, 0), (Fault("half_close"), True, 0), (Fault("fail", status=502), True, 0),
        (Fault("garbage"), True, 0), (Fault("flood", retry_after=34), False, 0),
    ],
)  # fmt: skip
async def test_only_an_unanswered_request_is_uncertain(
    tmp_path: Path, harm: Fault, uncertain: bool, there: int
) -> None:
    async with TelegramServer() as server, bot(server, tmp_path, patience=0.5) as telegram:
        server.chats.say("hi")
        server.fault(harm)
        with pytest.raises(DeliveryError) as failed:
            await telegram.send(CHAT, HELLO)
        assert failed.value.uncertain is uncertain
        assert failed.value.retry_after == (34.0 if harm.does == "flood" else None)
        assert not isinstance(failed.value, Undeliverable)
        assert len(server.chats.mine(7)) == there


async def test_an_unreachable_server_certainly_got_nothing(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        await server.down()
        with pytest.raises(DeliveryError, match="cannot be reached") as failed:
            await telegram.send(CHAT, HELLO)
        assert not failed.value.uncertain
        await server.up()


async def test_a_blocked_bot_is_undeliverable(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        with pytest.raises(Undeliverable, match="chat not found"):
            await telegram.send(CHAT, HELLO)
        server.chats.say("hi")
        server.chats.block(7)
        for call in (telegram.send(CHAT, HELLO), telegram.typing(CHAT)):
            with pytest.raises(Undeliverable, match="blocked by the user"):
                await call
        group = server.chats.group(-100555666777888, forum=True)
        with pytest.raises(Undeliverable, match="thread not found"):
            await telegram.send(Address("telegram", str(group), "group", "55"), HELLO)


async def test_a_migrated_group_is_followed(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        old, new = server.chats.group(-5), -1005
        server.chats.move(old, new)
        address = Address("telegram", "-5", "group")
        await telegram.send(address, HELLO)
        await telegram.send(address, HELLO)
        assert len(server.chats.mine(new)) == 2
        assert [call.code for call in server.of("sendMessage")] == [400, 200, 200]


async def test_no_error_and_no_log_shows_the_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="alipes")
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        seen = []
        for does in ("drop", "fail", "garbage", "flood", "conflict", "half_close"):
            server.fault(Fault(does))
            with pytest.raises(DeliveryError) as failed:
                await telegram.send(CHAT, HELLO)
            seen += traceback.format_exception(failed.value)
        await server.down()
        with pytest.raises(DeliveryError) as failed:
            await telegram.set_commands((("stop", "End"),))
        seen += traceback.format_exception(failed.value)
        secret = TOKEN.partition(":")[2]
        assert secret not in "".join(seen)
        assert secret not in "".join(
            record.getMessage() for record in caplog.records if record.name.startswith("alipes")
        )
        assert secret not in repr(telegram.__dict__) and secret not in repr(vars(telegram)["settings"])
        await server.up()


async def test_lone_surrogates_and_control_characters_can_be_sent(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("hi")
        for piece in telegram.format_message("half \ud83d and \x00 control\x1b[0m"):
            await telegram.send(CHAT, piece)
        await telegram.send(CHAT, MessagePart(text="raw \ud83d", plain="raw \ud83d"))
        assert [kept.text for kept in server.chats.mine(7)] == ["half  and \ufffd control[0m", "raw ?"]


@pytest.mark.parametrize("marked", [True, False])
def test_telegram_is_asked_to_load_no_link_previews(marked: bool) -> None:
    params = text_params(MessagePart(text="https://spy.example/?q=secret"), caption=False, marked=marked)
    assert params["link_preview_options"] == {"is_disabled": True}
