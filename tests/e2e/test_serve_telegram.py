"""`alipes serve` with the loopback Bot API: pairing, drain, restart, kill, dead connections."""

import asyncio
import hashlib
import re
import signal

import httpx2
import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve, write_settings
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.model_validation import since_user
from tests.world.telegram_server import Fault, TelegramServer

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def texts(telegram: TelegramServer, chat: int = OWNER) -> list[str]:
    """The bot's messages in the chat."""
    return [kept.text for kept in telegram.chats.mine(chat)]


def run(command: str) -> Calls:
    return Calls((Call("terminal", {"command": command}),))


async def test_a_message_is_answered_and_counted(home):
    async with ModelServer([Say("Good morning.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "Good morning.")
            await telegram.confirmed()
            assert await served.metric('alipes_messages_total{platform="telegram",fate="in"}') == 1
            while not await served.metric('alipes_messages_total{platform="telegram",fate="out"}'):
                await asyncio.sleep(0.02)
            assert await served.metric('alipes_turns_total{platform="telegram",ending="answered"}') == 1
            assert await served.metric('alipes_platform_ready{platform="telegram"}') == 1
            assert "Good morning" not in (await served.get("/metrics")).text
            assert await served.left() == 0
        assert texts(telegram) == ["Good morning."]
        assert telegram.token.encode() not in (home.path / "logs" / "alipes.log").read_bytes()


async def test_a_stranger_is_paired_by_code_and_revoked(home):
    async with ModelServer([Say("Welcome indeed.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home):
            telegram.chats.say("hello?", chat=42)
            shown = (await telegram.shows(42, "code")).text
            code = re.search(r"[A-Z2-9]{4}-[A-Z2-9]{4}", shown)[0]
            assert "pending" in (await home.run("pair")).out
            wrong = await home.run("pair", "AAAA-AAAA")
            assert wrong.status == 1 and "Nobody was approved" in wrong.out
            done = await home.run("pair", code)
            assert done.status == 0 and "now has access (role: owner)" in done.out
            assert (await home.run("pair", code)).status == 1, "a code counts once"
            await telegram.shows(42, "You now have access")
            telegram.chats.say("and now?", chat=42)
            await telegram.shows(42, "Welcome indeed.")
            listed = await home.run("pair", "list")
            assert "telegram:42" in listed.out and "owner" in listed.out
            assert (await home.run("pair", "revoke", "telegram:42")).status == 0
            telegram.chats.say("still?", chat=42)
            await telegram.confirmed()
            assert len(model.requests) == 1


async def test_send_delivers_without_a_model_and_reports_the_result(home):
    async with ModelServer() as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        telegram.chats.chat(OWNER)
        async with open_serve(home):
            done = await home.run("send", "--wait", "20", "telegram:7", "The", "backup", "is", "done.")
            assert (done.status, done.err) == (0, "")
            assert texts(telegram) == ["The backup is done."]
            telegram.chats.say("/sethome", chat=OWNER)
            await telegram.heard(OWNER, 2)
            assert (await home.run("send", "telegram", "--wait", "20", stdin=b"from a pipe")).status == 0
            await telegram.shows(OWNER, "from a pipe")
            telegram.chats.block(8)
            gone = await home.run("send", "--wait", "20", "telegram:8", "are you there?")
            assert gone.status == 1 and "failed: Telegram does not allow" in gone.err
            assert "are you there?" in (await home.run("serve", "outbox")).out
        assert not model.requests


async def test_messages_sent_while_not_serving_are_delivered_at_the_next_start(home):
    async with ModelServer() as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        telegram.chats.chat(OWNER)
        assert "will be sent when" in (await home.run("send", "telegram:7", "kept")).out
        async with open_serve(home):
            await telegram.shows(OWNER, "kept")


async def test_sigterm_finishes_an_answer_and_leaves_new_messages_to_the_next_start(home):
    slow = Say("A long answer that takes its time.", pieces=8, delay=0.25)
    async with ModelServer([slow, Say("And the second.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("first", chat=OWNER)
            await model.asked()
            served.process.send_signal(signal.SIGTERM)
            await served.heard(b"STOPPING=1")
            assert (await served.get("/ready")).json()["because"]["serve"] == "alipes is shutting down"
            telegram.chats.say("second", chat=OWNER)
            assert await served.left(by=None) == 0
        assert texts(telegram) == ["A long answer that takes its time."]
        assert telegram.unconfirmed, "Telegram still has it"
        async with open_serve(home):
            await telegram.shows(OWNER, "And the second.")
            await telegram.confirmed()
        assert texts(telegram) == ["A long answer that takes its time.", "And the second."]


async def test_a_turn_pauses_between_two_steps_and_resumes_at_the_next_start(home, tmp_path):
    """The tool finishes, the next process makes the next model call, and nothing runs twice."""
    mark = tmp_path / "done"
    script = [run(f"sleep 1; echo once >> {mark}"), Say("It is done.")]
    async with ModelServer(script) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await model.asked()
            while await served.metric('alipes_queue_depth{queue="turns"}') != 1:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            assert await served.left() == 0
        assert mark.read_text() == "once\n" and len(model.requests) == 1
        async with open_serve(home):
            await telegram.shows(OWNER, "Continuing with")
            await telegram.shows(OWNER, "It is done.")
        assert mark.read_text() == "once\n" and len(model.requests) == 2
        assert sum("It is done." in text for text in texts(telegram)) == 1


async def test_a_turn_that_exceeds_the_drain_is_cut_off_with_its_children(home):
    async with ModelServer([run("sleep 3219"), Say("I was interrupted.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram, **{"serve.drain": 0.5})
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("wait long", chat=OWNER)
            await model.asked()
            while not await sleeping(3219):
                await asyncio.sleep(0.05)
            assert await served.left() == 0
        assert not await sleeping(3219)
        async with open_serve(home):
            await telegram.shows(OWNER, "I was interrupted.")
        assert "unknown" in str(model.bodies[-1]["messages"]), "the model gets an unknown result"


async def test_a_stop_from_the_chat_kills_the_tool_with_its_children_and_is_measured(home):
    async with ModelServer([run("sleep 3217"), Say("What next?")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("wait long", chat=OWNER)
            while not await sleeping():
                await asyncio.sleep(0.05)
            telegram.chats.say("/stop", chat=OWNER)
            telegram.chats.say("hello?", chat=OWNER)
            await telegram.shows(OWNER, "What next?")
            assert not await sleeping()
            assert await served.metric("alipes_stop_seconds_count") == 1
            assert await served.metric('alipes_turns_total{platform="telegram",ending="stopped"}') == 1
            assert await served.left() == 0


async def sleeping(seconds: int = 3217) -> bool:
    words = ("pgrep", "-f", f"^sleep {seconds}")
    listing = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    out, _ = await listing.communicate()
    return bool(out)


async def test_after_a_kill_the_next_start_answers_exactly_once(home):
    stuck = Say("never to its end", pieces=100, delay=0.5)
    async with ModelServer([stuck, Say("Here I am again."), Say("And to you.")]) as model:
        async with TelegramServer() as telegram:
            write_settings(home, model, telegram)
            async with open_serve(home) as served:
                await served.ready()
                telegram.chats.say("hello", chat=OWNER)
                await model.asked()
                assert await served.left(by=signal.SIGKILL) == -signal.SIGKILL
            telegram.chats.say("sent while it was down", chat=8)
            telegram.chats.say("good evening", chat=OWNER)
            async with open_serve(home) as served:
                await telegram.shows(OWNER, "And to you.")
                await telegram.confirmed()
                assert len(model.requests) == 3, "a stranger costs nothing"
            said = texts(telegram)
            assert said.index("Here I am again.") < said.index("And to you.")
            assert [said.count("Here I am again."), said.count("And to you.")] == [1, 1]


async def test_an_owner_restarts_it_from_the_chat_once(home):
    async with ModelServer([Say("Still here.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("/restart", chat=OWNER)
            await served.heard(b"RELOADING=1")
            await served.heard(b"READY=1")
            await served.ready()
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "Still here.")
            await telegram.confirmed()
            again = asyncio.create_task(served.heard(b"RELOADING=1"))
            assert (await asyncio.wait({again}, timeout=1))[1], "it does not restart for the same word again"
            again.cancel()
            assert await served.left() == 0


async def test_a_turn_that_restarts_alipes_is_not_waited_for_and_does_not_loop(home):
    """Its command waits for the process to exit, as `systemctl restart` does."""
    async with ModelServer() as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home, ALIPES_SERVE_DRAIN="1800") as served:
            await served.ready()
            pid = served.process.pid
            wait = f'python3 -c "import os, signal, time; os.kill({pid}, signal.SIGHUP); time.sleep(600)"'
            model.script = [run(wait), Say("You asked me to restart; I am back.")]
            telegram.chats.say("restart yourself", chat=OWNER)
            asked = asyncio.create_task(telegram.until(lambda: any(k.text for k in telegram.chats.mine(OWNER))))
            reloading = asyncio.create_task(served.heard(b"RELOADING=1"))
            await asyncio.wait({asked, reloading}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                telegram.chats.say("yes", chat=OWNER)  # to the request for approval
            asked.cancel()
            async with asyncio.timeout(LIMIT_S):
                await reloading
                await served.heard(b"READY=1")
            await telegram.shows(OWNER, "I am back.")
            assert len(model.requests) == 2
            assert await served.left() == 0


async def test_a_dead_connection_is_noticed_reported_and_reopened(home):
    async with ModelServer([Say("I hear you.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.fault(Fault("hang", ("getUpdates",), times=None))
            await telegram.polled()
            telegram.strike("hang")
            async with asyncio.timeout(LIMIT_S):  # twice the poll interval, plus the request itself
                while (await served.get("/ready")).status_code == 200:
                    await asyncio.sleep(0.05)
            assert "telegram" in (await served.get("/ready")).json()["because"]
            telegram.chats.say("can you hear me?", chat=OWNER)
            telegram.clear_faults()
            await telegram.shows(OWNER, "I hear you.")
            await served.ready()


async def test_webhook_updates_are_answered_only_with_telegrams_secret(home):
    async with ModelServer([Say("By another way.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        telegram.chats.chat(OWNER)
        with (home.path / "config.toml").open("a") as file:
            file.write('mode = "webhook"\nwebhook_url = "https://bot.example/telegram"\n')
        async with open_serve(home) as served, httpx2.AsyncClient(trust_env=False) as client:
            await telegram.called("setWebhook")
            secret = hashlib.sha256(f"alipes webhook {telegram.token}".encode()).hexdigest()
            person = {"id": OWNER, "is_bot": False, "first_name": "Seven"}
            message = {"message_id": 1, "date": 1_700_000_000, "chat": {"id": OWNER, "type": "private"}}
            update = {"update_id": 1, "message": {**message, "from": person, "text": "hello"}}
            where = f"{served.address}/telegram"
            header = "x-telegram-bot-api-secret-token"
            assert (await client.post(where, json=update)).status_code in (401, 403)
            assert (await client.post(where, json=update, headers={header: "wrong"})).status_code in (401, 403)
            for _ in range(2):  # Telegram sends an update again if it was not acknowledged
                brought = await client.post(where, json=update, headers={header: secret, "host": "bot.example"})
                assert brought.status_code == 200
            await telegram.shows(OWNER, "By another way.")
            assert len(model.requests) == 1


async def test_a_turn_finished_by_a_one_shot_process_is_answered_in_its_chat(home):
    def answer(body):
        if since_user("openai-chat", body)[1] != "hello":
            return Say("Mine.")
        return Say("The whole.") if killed else Stall("Half")

    killed = []
    async with ModelServer(answer) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "Half")
            await served.left(by=signal.SIGKILL)
            killed.append(True)
        done = await home.run("ask", "something else")
        assert done.status == 0, done.err
        async with open_serve(home) as served:
            await telegram.shows(OWNER, "The whole.")
    assert texts(telegram).count("The whole.") == 1
