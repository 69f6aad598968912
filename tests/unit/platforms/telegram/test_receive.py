"""Receiving from Telegram under stress: nothing lost or out of order, dead connections are detected."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from alipes.kernel.errors import ConfigError, StoreError
from alipes.kernel.models import Secret
from alipes.kernel.platform import IncomingMessage
from alipes.platforms.telegram.receive import ChatOrder
from tests.world.environment import LIMIT_S
from tests.world.recording_gateway import RecordingGateway, receive
from tests.world.telegram_bot import bot
from tests.world.telegram_server import TOKEN, Fault, TelegramServer


async def test_many_chats_keep_their_own_order(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        for number in range(150):
            server.chats.say(f"{number}", chat=7 + number % 15)
        async with receive(telegram) as ears:
            await ears.heard(150)
            for chat in range(7, 22):
                texts = [int(came.text) for came in ears.arrivals if came.sender == str(chat)]
                assert texts == list(range(chat - 7, 150, 15))
            await server.confirmed()


async def test_readiness_is_reported_before_the_first_long_poll_ends(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram, receive(telegram) as ears:
        assert await ears.wait_status("ready") == ""
        await server.polled()
        assert [call.given["timeout"] for call in server.of("getUpdates")] == [0]


async def test_a_slow_chat_delays_no_other_and_is_confirmed_last(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram, receive(telegram) as ears:
        gate = asyncio.Event()

        async def slowly(came: IncomingMessage) -> None:
            if came.text == "slow":
                await gate.wait()

        ears.before = slowly
        server.chats.say("slow", chat=7)
        server.chats.say("waits for it", chat=7)
        for text in ("one", "two", "three"):
            server.chats.say(text, chat=8)
            await ears.until(lambda text=text: any(came.text == text for came in ears.arrivals))  # type: ignore[misc]
        assert [came.text for came in ears.arrivals] == ["one", "two", "three"]
        assert len(server.unconfirmed) == 5, "what is confirmed is confirmed up to a number"
        gate.set()
        await server.confirmed()
        assert [came.text for came in ears.arrivals] == ["one", "two", "three", "slow", "waits for it"]


async def test_undelivered_updates_come_again_after_a_restart(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.chats.say("one", chat=7)
        server.chats.say("two", chat=8)
        ears = RecordingGateway()

        async def break_down(came: IncomingMessage) -> None:
            if came.text == "two":
                raise StoreError("the disk is full")

        ears.before = break_down
        with pytest.raises(StoreError, match="the disk is full"):
            await telegram.listen(ears.take, ears.tell)
        ears.before = None
        async with receive(telegram, ears):
            await server.confirmed()
        assert [came.text for came in ears.arrivals].count("two") == 1


@pytest.mark.deadline(20)
async def test_a_dead_poll_is_detected_and_replaced(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path, poll=1.0) as telegram, receive(telegram) as ears:
        await server.polled()
        server.strike("hang")
        server.chats.say("are you there?")
        start = asyncio.get_running_loop().time()
        await ears.heard()
        assert asyncio.get_running_loop().time() - start < LIMIT_S
        assert any("did not answer in time" in why for state, why in ears.states if state == "broken")
        assert ears.states[-1] == ("ready", "")
        await server.confirmed()
        assert len(ears.arrivals) == 1


@pytest.mark.parametrize("harm", ["half_close", "drop"])
async def test_an_interrupted_poll_is_repeated(tmp_path: Path, harm: str) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram, receive(telegram) as ears:
        await server.polled()
        server.strike(harm)
        server.chats.say("hello")
        await ears.heard()
        assert "broke" in next(why for state, why in ears.states if state == "broken")


@pytest.mark.deadline(20)
async def test_failures_are_waited_for_and_reported_with_their_cause(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        for harm in ("conflict", "fail", "garbage", "flood"):
            server.fault(Fault(harm, ("getUpdates",), times=1))
        server.fault(Fault("drop", ("getMe",), times=1))
        server.chats.say("hello")
        async with receive(telegram) as ears:
            await ears.heard()
            causes = [why for state, why in ears.states if state == "broken"]
            words = ("broke", "Another process uses", "502", "200", "asks to wait 1 s")
            assert len(causes) == 5 and all(word in why for word, why in zip(words, causes, strict=True))
            assert TOKEN not in repr(ears.states)


async def test_an_outage_of_the_whole_network_is_survived(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram, receive(telegram) as ears:
        await server.polled()
        await server.down()
        assert "cannot be reached" in await ears.wait_status("broken", 2) or len(ears.states) > 1
        server.chats.say("while you were away")
        await server.up()
        await ears.heard()


async def test_a_webhook_left_behind_is_removed_also_when_it_appears_later(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        server.webhook["url"] = "https://example.org/old"
        async with receive(telegram) as ears:
            await server.polled()
            assert server.webhook["url"] == ""
            server.webhook["url"] = "https://example.org/new"
            server.chats.say("one")
            await ears.heard()
            server.chats.say("two")
            await ears.heard(2)
            assert server.webhook["url"] == ""


async def test_a_wrong_token_is_a_config_error(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path, token=Secret("1:wrong")) as telegram:
        ears = RecordingGateway()
        with pytest.raises(ConfigError, match="@BotFather"):
            await telegram.listen(ears.take, ears.tell)


async def test_a_revoked_token_is_a_config_error(tmp_path: Path) -> None:
    async with TelegramServer() as server, bot(server, tmp_path) as telegram:
        ears = RecordingGateway()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(_fails(telegram.listen(ears.take, ears.tell)))
            await server.polled()
            server.token = "2:another"
            server.strike("drop")
        assert "@BotFather" in task.result()


async def _fails(listening: Awaitable[None]) -> str:
    with pytest.raises(ConfigError) as failed:
        await listening
    return str(failed.value)


async def test_a_webhook_call_needs_the_secret_and_a_listener(tmp_path: Path) -> None:
    hook = {"mode": "webhook", "webhook_url": "https://example.org/hook", "poll": 0.05}
    async with TelegramServer() as server, bot(server, tmp_path, **hook) as telegram:
        body = b'{"update_id":1,"message":{"message_id":1,"chat":{"id":7,"type":"private"},"from":{"id":7,"first_name":"A"},"text":"hi"}}'
        assert await telegram.on_webhook({}, body) == 403
        async with receive(telegram) as ears:
            (call,) = await server.called("setWebhook")
            secret = call.given["secret_token"]
            assert TOKEN.partition(":")[2] not in secret and len(secret) <= 256
            headers = {"X-Telegram-Bot-Api-Secret-Token": secret}
            await ears.wait_status("ready")
            assert await telegram.on_webhook(headers, body) == 200
            assert await telegram.on_webhook({**headers, "X-Telegram-Bot-Api-Secret-Token": "no"}, body) == 403
            assert await telegram.on_webhook(headers, b"nonsense") == 200
            assert [came.text for came in ears.arrivals] == ["hi"]
        assert await telegram.on_webhook(headers, body) == 503


async def test_a_webhook_call_is_retried_until_accepted_and_failures_are_reported(tmp_path: Path) -> None:
    answers: list[int] = []

    async with TelegramServer() as server:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name: value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            status = await telegram.on_webhook(headers, await reader.readexactly(int(headers["content-length"])))
            answers.append(status)
            writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % status)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as web:
            url = f"http://127.0.0.1:{web.sockets[0].getsockname()[1]}/hook"
            async with bot(server, tmp_path, mode="webhook", webhook_url=url, poll=0.1) as telegram:
                async with receive(telegram) as ears:
                    server.chats.say("one")
                    server.chats.say("two")
                    assert [came.text for came in await ears.heard(2)] == ["one", "two"]
                    await server.confirmed()
                    web.close()
                    server.chats.say("unheard")
                    assert "cannot reach our webhook: Connection refused" in await ears.wait_status("broken")


async def test_failures_before_our_start_do_not_count_against_the_webhook(tmp_path: Path) -> None:
    hook = {"mode": "webhook", "webhook_url": "https://example.org/hook", "poll": 3600}
    async with TelegramServer() as server, bot(server, tmp_path, **hook) as telegram:
        server.behind = "http://127.0.0.1:1/"
        server.chats.say("while we were away")
        server.fault(Fault("fail", ("getWebhookInfo",)))  # so that there is time to fail before the first check
        async with receive(telegram) as ears:
            await ears.wait_status("ready")
        assert server.webhook["last_error_message"] == "Connection refused" and server.unconfirmed


async def test_a_webhook_call_reports_readiness_at_once(tmp_path: Path) -> None:
    hook = {"mode": "webhook", "webhook_url": "https://example.org/hook", "poll": 3600}
    body = b'{"update_id":1,"message":{"message_id":1,"chat":{"id":7,"type":"private"},"from":{"id":7,"first_name":"A"},"text":"hi"}}'
    async with TelegramServer() as server, bot(server, tmp_path, **hook) as telegram:
        async with receive(telegram) as ears:
            (call,) = await server.called("setWebhook")
            await ears.wait_status("ready")
            headers = {"X-Telegram-Bot-Api-Secret-Token": call.given["secret_token"]}
            assert await telegram.on_webhook(headers, body) == 200
            await ears.wait_status("ready", 2)


async def test_chat_order_is_kept_and_skips_cancelled_waiters() -> None:
    order, log, gate = ChatOrder(), [], asyncio.Event()

    async def visit(name: str, album: str = "") -> None:
        async with order.turn(7, album):
            log.append(name)
            await gate.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(visit("a1", "a"))
        tasks.create_task(visit("a2", "a"))
        leaver = tasks.create_task(visit("leaver"))
        tasks.create_task(visit("b1", "b"))
        tasks.create_task(visit("b2", "b"))
        tasks.create_task(visit("last"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert log == ["a1", "a2"]
        leaver.cancel()
        gate.set()
    assert log == ["a1", "a2", "b1", "b2", "last"]
    assert not order._lanes
