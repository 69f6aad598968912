"""Our loopback Bot API, judged by two strict clients that others wrote: python-telegram-bot and aiogram."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import msgspec
import pytest

from tests.world.telegram_control import serve
from tests.world.telegram_server import TOKEN, Fault, Limits, Media, TelegramServer

telegram = pytest.importorskip("telegram")

from telegram import ReplyParameters, Update  # noqa: E402
from telegram.error import BadRequest, Conflict, Forbidden, InvalidToken, NetworkError, RetryAfter  # noqa: E402
from telegram.ext import ApplicationBuilder, CallbackQueryHandler, MessageHandler, filters  # noqa: E402
from telegram.request import HTTPXRequest  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*PTB_TIMEDELTA.*")
KEYBOARD = telegram.InlineKeyboardMarkup([[telegram.InlineKeyboardButton("Yes", callback_data="yes")]])


@cache
def load_aiogram() -> Any:
    """Imported only by the process that uses it: it takes longer than all the other modules of the tests together."""
    return pytest.importorskip("aiogram")


@asynccontextmanager
async def ptb(server: TelegramServer, token: str = TOKEN) -> AsyncIterator[telegram.Bot]:
    async with telegram.Bot(token, base_url=f"{server.url}/bot", base_file_url=f"{server.url}/file/bot") as bot:
        yield bot


@asynccontextmanager
async def aio(server: TelegramServer) -> AsyncIterator[Any]:
    client = load_aiogram().client
    session = client.session.aiohttp.AiohttpSession(api=client.telegram.TelegramAPIServer.from_base(server.url))
    async with load_aiogram().Bot(TOKEN, session=session) as bot:
        yield bot


async def test_an_application_of_python_telegram_bot_talks_and_is_pressed() -> None:
    async def answer(update: Update, context: Any) -> None:
        await update.message.reply_text(f"<b>{update.message.text}</b>!", parse_mode="HTML", reply_markup=KEYBOARD)

    async def pressed(update: Update, context: Any) -> None:
        await update.callback_query.answer()
        await update.callback_query.edit_message_text("pressed")

    async with TelegramServer() as server:
        app = (
            ApplicationBuilder()
            .token(TOKEN)
            .base_url(f"{server.url}/bot")
            .base_file_url(f"{server.url}/file/bot")
            .build()
        )
        app.add_handler(MessageHandler(filters.TEXT, answer))
        app.add_handler(CallbackQueryHandler(pressed))
        async with app:
            await app.updater.start_polling(timeout=10)
            await app.start()
            server.chats.say("hello", chat=7)
            (kept,) = await server.heard(7)
            assert kept.text == "hello!"
            assert kept.wire["entities"] == [{"type": "bold", "offset": 0, "length": 5}]
            server.chats.press(7, kept.wire["message_id"], "Yes")
            await server.shows(7, "pressed")
            await server.confirmed()
            await app.updater.stop()
            await app.stop()


async def test_a_dispatcher_of_aiogram_talks_in_a_topic() -> None:
    async with TelegramServer() as server, aio(server) as bot:
        group = server.chats.group(-1001234567890, forum=True)
        thread = server.chats.topic(group)
        dispatcher = load_aiogram().Dispatcher()

        @dispatcher.message()
        async def answer(message: Any) -> None:
            await message.reply(f"_{message.text}_", parse_mode="MarkdownV2")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                dispatcher.start_polling(bot, polling_timeout=10, handle_signals=False, close_bot_session=False)
            )
            said = server.chats.say("hello", group, user=7, thread=thread)
            (kept,) = await server.heard(group)
            assert kept.text == "hello" and kept.wire["message_thread_id"] == thread
            assert kept.wire["reply_to_message"]["message_id"] == said["message_id"]
            await server.confirmed()
            await dispatcher.stop_polling()


async def test_both_read_every_kind_of_message() -> None:
    async with TelegramServer() as server, ptb(server) as one, aio(server) as other:
        town = server.chats
        group = town.group(-100987654321012)
        first = town.say("see https://a.b @alipes_bot /help@alipes_bot", group, user=7)
        town.say("yes", group, user=8, reply_to=first["message_id"], quote="see")
        town.say("news", chat=7, forwarded="Ann")
        for kind in ("photo", "document", "voice", "video", "audio", "sticker"):
            town.say("" if kind == "sticker" else "look", chat=7, media=Media(kind, b"bytes", f"{kind}.x"))
        town.album(("a", "b"), chat=7)
        town.revise(group, first["message_id"], "changed")
        seen = await one.get_updates(timeout=1)
        assert [u.update_id for u in seen] == server.unconfirmed
        again = await other.get_updates(timeout=1)
        assert [u.update_id for u in again] == [u.update_id for u in seen], "unconfirmed ones come again"
        message = seen[0].message
        assert message.parse_entities(["mention"]).popitem()[1] == "@alipes_bot"
        assert seen[1].message.reply_to_message.text == "see https://a.b @alipes_bot /help@alipes_bot"
        assert seen[2].message.forward_origin.sender_user_name == "Ann"
        assert again[2].message.forward_origin.sender_user_name == "Ann"
        assert seen[-1].edited_message.text == again[-1].edited_message.text == "changed"
        assert seen[-2].message.media_group_id == seen[-3].message.media_group_id
        file = await seen[3].message.photo[-1].get_file()
        assert bytes(await file.download_as_bytearray()) == b"bytes"
        voice = await other.get_file(again[5].message.voice.file_id)
        assert (await other.download_file(voice.file_path)).read() == b"bytes"
        await one.get_updates(offset=seen[-1].update_id + 1, timeout=0)
        assert server.unconfirmed == []


async def test_both_send_every_kind_of_file() -> None:
    types = load_aiogram().types
    async with TelegramServer() as server, ptb(server) as one, aio(server) as other:
        server.chats.say("hello", chat=7)
        for kind in ("photo", "document", "voice", "video", "audio"):
            data = b"one" if kind != "photo" else b"\xff\xd8picture"
            await getattr(one, f"send_{kind}")(7, data, caption="<i>c</i>", parse_mode="HTML")
            await getattr(other, f"send_{kind}")(7, types.BufferedInputFile(data, f"{kind}.bin"), caption="c")
        await other.send_media_group(7, [types.InputMediaPhoto(media=types.BufferedInputFile(b"x", "x.jpg"))] * 2)
        await one.send_media_group(7, [telegram.InputMediaPhoto(b"y"), telegram.InputMediaDocument(b"z")])
        sent = server.chats.mine(7)
        assert len(sent) == 14 and {kept.text for kept in sent[:10]} == {"c"}
        assert sent[10].wire["media_group_id"] == sent[11].wire["media_group_id"]


async def test_what_telegram_refuses_is_refused() -> None:
    async with TelegramServer() as server, ptb(server) as one, aio(server) as other:
        server.chats.say("hello", chat=7)
        for text, mode, why in (
            ("<b>x", "HTML", "can't parse entities"),
            ("a.b", "MarkdownV2", "can't parse entities"),
            (" \n", "", "text is empty"),
            ("x" * 4097, "", "message is too long"),
        ):
            with pytest.raises(BadRequest, match=f"(?i){why}"):
                await one.send_message(7, text, parse_mode=mode or None)
            with pytest.raises(load_aiogram().exceptions.TelegramBadRequest, match=f"(?i){why}"):
                await other.send_message(7, text or "x", parse_mode=mode or None)
        with pytest.raises(BadRequest, match=r"(?i)chat not found"):
            await one.send_message(8, "x")
        with pytest.raises(BadRequest, match=r"(?i)replied not found"):
            await one.send_message(7, "x", reply_parameters=ReplyParameters(99))
        await one.send_message(7, "x", reply_parameters=ReplyParameters(99, allow_sending_without_reply=True))
        message = await one.send_message(7, "x", reply_markup=KEYBOARD)
        with pytest.raises(BadRequest, match="not modified"):
            await one.edit_message_text("x", 7, message.message_id, reply_markup=KEYBOARD)
        await one.delete_message(7, message.message_id)
        with pytest.raises(load_aiogram().exceptions.TelegramBadRequest, match="message to edit not found"):
            await other.edit_message_text("y", chat_id=7, message_id=message.message_id)
        with pytest.raises(BadRequest, match=r"(?i)button_data_invalid"):
            long = telegram.InlineKeyboardButton("x", callback_data="x" * 65)
            await one.send_message(7, "x", reply_markup=telegram.InlineKeyboardMarkup([[long]]))
        with pytest.raises(BadRequest, match=r"(?i)thread not found"):
            await one.send_message(7, "x", message_thread_id=5)
        server.chats.block(7)
        with pytest.raises(Forbidden):
            await one.send_message(7, "x")
        with pytest.raises(load_aiogram().exceptions.TelegramForbiddenError):
            await other.send_chat_action(7, "typing")
        with pytest.raises(InvalidToken):
            async with ptb(server, "1:wrong"):
                pass


async def test_both_learn_of_the_bot_its_chats_and_its_menu() -> None:
    async with TelegramServer() as server, ptb(server) as one, aio(server) as other:
        group = server.chats.group(-1005, "The group", forum=True)
        assert (await one.get_me()).username == (await other.get_me()).username == "alipes_bot"
        assert (await one.get_chat(group)).title == (await other.get_chat(group)).title == "The group"
        await other.set_my_commands([load_aiogram().types.BotCommand(command="new", description="Start again")])
        assert (await one.get_my_commands())[0].command == "new"
        with pytest.raises(load_aiogram().exceptions.TelegramBadRequest, match="BOT_COMMAND_INVALID"):
            await other.set_my_commands([load_aiogram().types.BotCommand(command="No", description="x")])
        assert await one.send_chat_action(group, "typing")


async def test_flood_errors_carry_the_seconds_to_wait_per_chat_method_and_rate() -> None:
    async with TelegramServer() as server, ptb(server) as one, aio(server) as other:
        server.chats.say("a", chat=7)
        server.chats.say("b", chat=8)
        server.fault(Fault("flood", ("edit",), chat=7, retry_after=34))
        first, _ = await one.send_message(7, "x"), await one.send_message(8, "x")
        with pytest.raises(RetryAfter) as flood:
            await one.edit_message_text("y", 7, first.message_id)
        assert flood.value._retry_after.total_seconds() == 34
        await one.edit_message_text("y", 7, first.message_id)
        server.limits = Limits(per_chat=2)
        with pytest.raises(load_aiogram().exceptions.TelegramRetryAfter) as refused:
            for number in range(3):
                await other.send_message(8, f"{number}")
        assert refused.value.retry_after == 1
        assert [kept.text for kept in server.chats.mine(8)] == ["x", "0", "1"]


async def test_a_second_poller_ends_the_first_and_a_webhook_both() -> None:
    async with TelegramServer() as server, ptb(server) as one, ptb(server) as two:
        async with asyncio.TaskGroup() as tasks:

            async def lose() -> None:
                with pytest.raises(Conflict, match="terminated by other"):
                    await one.get_updates(timeout=9)

            first = tasks.create_task(lose())
            await server.polled()
            second = tasks.create_task(two.get_updates(timeout=9))
            await first
            server.chats.say("hello")
        assert len(await second) == 1
        await one.set_webhook("https://example.org/hook", secret_token="secret")
        assert (await one.get_webhook_info()).pending_update_count == 1
        with pytest.raises(Conflict, match="webhook is active"):
            await two.get_updates()
        await one.delete_webhook()
        assert len(await two.get_updates()) == 1


async def test_faults_break_answers_before_or_after_the_call_took_effect() -> None:
    async with TelegramServer() as server:
        server.chats.say("hello", chat=7)
        request = HTTPXRequest(read_timeout=0.3)
        bot = telegram.Bot(TOKEN, base_url=f"{server.url}/bot", request=request)
        async with bot:
            for does, accepted, count in (
                ("hang", True, 1), ("hang", False, 1), ("drop", True, 2), ("drop", False, 2),
                ("half_close", False, 2), ("fail", True, 3), ("garbage", False, 3),
            ):  # fmt: skip
                server.fault(Fault(does, ("sendMessage",), accepted=accepted))
                with pytest.raises(NetworkError if does != "garbage" else telegram.error.TelegramError):
                    await bot.send_message(7, "x")
                assert len(server.chats.mine(7)) == count, does
            await server.down()
            with pytest.raises(NetworkError):
                await bot.send_message(7, "x")
            await server.up()
            await bot.send_message(7, "x")


async def test_a_webhook_is_pushed_until_it_is_accepted() -> None:
    asked: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        asked.append(head + await reader.readexactly(size))
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % (500 if len(asked) == 1 else 200))
        writer.close()

    async with TelegramServer() as server, ptb(server) as bot:
        async with await asyncio.start_server(take, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            await bot.set_webhook(f"http://127.0.0.1:{port}/hook", secret_token="s3cret")
            server.chats.say("hello")
            await server.confirmed()
        assert len(asked) == 2 and asked[0].split(b"\r\n\r\n")[1] == asked[1].split(b"\r\n\r\n")[1]
        assert b"X-Telegram-Bot-Api-Secret-Token: s3cret" in asked[1]
        update = Update.de_json(msgspec.json.decode(asked[1].split(b"\r\n\r\n")[1]), bot)
        assert update.message.text == "hello"


@pytest.mark.deadline(30)
async def test_it_runs_as_a_process_of_its_own() -> None:
    async with serve() as served, ptb(served) as bot:  # type: ignore[arg-type]
        await served.call("say", text="hello", chat=7)
        (update,) = await bot.get_updates(timeout=5)
        await served.call("fault", does="flood", methods=["sendMessage"], retry_after=3)
        with pytest.raises(RetryAfter):
            await bot.send_message(7, "x")
        await bot.send_message(7, "<b>x</b>", parse_mode="HTML", reply_markup=KEYBOARD)
        (sent,) = await served.call("heard", chat=7)
        assert (sent["text"], sent["raw"], sent["buttons"]) == ("x", "<b>x</b>", ["Yes"])
        state = await served.call("state")
        assert state["unconfirmed"] == [update.update_id]
        await bot.set_my_commands([("stop", "End the turn")])
        assert (await served.call("state"))["commands"] == [{"command": "stop", "description": "End the turn"}]
        with pytest.raises(RuntimeError, match="no verb"):
            await served.call("nonsense")
