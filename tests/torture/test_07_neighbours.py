"""Killed or stopped during a question to the person, during subagents, or with a queued message."""

import asyncio
import random
import signal

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import bot_texts, last_user_text, logged_errors, open_service, write_home
from tests.torture.test_03_delivery_crashes import rows
from tests.torture.test_05_burst import transcript
from tests.torture.trials import seeds
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.model_validation import since_user
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until


def model_that_asks(log_file) -> object:
    """A model that runs a dangerous command and reports the result."""

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        said, seen = since_user("openai-chat", body)
        if seen.startswith("do it") and not said:
            return Calls((Call("terminal", {"command": f"git push --force 2>/dev/null; echo done >> {log_file}"}),))
        last = body["messages"][-1]
        return Say(f"It ended: {last['content']}" if last["role"] == "tool" else f"answer to {seen}")

    return reply


def questions(telegram: TelegramServer) -> list:
    return [kept for kept in telegram.chats.mine(OWNER) if kept.wire.get("reply_markup")]


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_a_question_is_asked_again_after_a_kill_and_the_command_runs_once(tmp_path, seed):
    rng, home, log_file = random.Random(seed), Home(tmp_path / "home"), tmp_path / "acts"
    async with ModelServer(model_that_asks(log_file)) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await telegram.until(lambda: questions(telegram))
            await asyncio.sleep(rng.uniform(0, 0.3))
            await served.left(by=signal.SIGKILL)
        old = questions(telegram)[-1]
        if rng.random() < 0.5:  # pressed while the service is down
            telegram.chats.press(OWNER, old.wire["message_id"], "Yes")
        async with open_serve(home) as served:
            await served.ready()
            while not any(text.startswith("It ended") for text in bot_texts(telegram, OWNER)):
                for kept in questions(telegram):
                    telegram.chats.press(OWNER, kept.wire["message_id"], "Yes")
                await asyncio.sleep(0.3)
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "answer to hello")
            assert await served.left() == 0
        assert log_file.read_text() == "done\n"
        assert sum(text.startswith("It ended") for text in bot_texts(telegram, OWNER)) == 1
        assert logged_errors(home) == []


@pytest.mark.deadline(60)
async def test_after_a_stop_a_late_approval_has_no_effect(tmp_path):
    home, log_file = Home(tmp_path / "home"), tmp_path / "acts"
    async with ModelServer(model_that_asks(log_file)) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_service(home) as (served, api):
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await telegram.until(lambda: questions(telegram))
            (old,) = questions(telegram)
            wire = {**old.wire}
            telegram.chats.say("/stop", chat=OWNER)
            await telegram.shows(OWNER, "top")
            old.wire["reply_markup"] = wire["reply_markup"]
            telegram.chats.press(OWNER, old.wire["message_id"], "Yes")
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "answer to hello")
            run = await api.begin("do it", session="s")
            async with api.listening(run) as listener:
                asked = await listener.until("approval_asked")
                assert (await api.ask("POST", f"/runs/{run}/stop")).status_code == 202
            assert (await api.finish(run))["status"] == "stopped"
            late = await api.ask("POST", f"/runs/{run}/approval", {"ask": asked.data["ask"], "choice": "once"})
            assert late.status_code in (404, 409), late.text
            assert (await api.finish(await api.begin("hello", session="s")))["status"] == "answered"
            assert await served.left() == 0
        assert not log_file.exists() and logged_errors(home) == []


def reply_with_subagents(body):
    """Two subagents, each of which writes once; then an answer."""
    if not body.get("tools"):
        return Say("A title")
    said, seen = since_user("openai-chat", body)
    last = body["messages"][-1]
    if seen.startswith("do it") and not said:
        return Calls((Call("delegate_task", {"tasks": [{"goal": f"part {n}"} for n in range(2)]}),))
    if seen.startswith("part") and not said:
        number = seen.split()[1]
        return Calls((Call("terminal", {"command": f"echo {number} >> acts; sleep 0.5"}),), pieces=6, delay=0.03)
    return Say("It ended." if seen.startswith("do it") else f"answer to {seen}") if last else Say("")


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_a_kill_during_subagents_repeats_no_write_and_one_answer_arrives(tmp_path, seed):
    rng, home, log_file = random.Random(seed), Home(tmp_path / "home"), tmp_path / "acts"
    async with ModelServer(reply_with_subagents) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await model.asked(rng.randint(1, 3))
            await asyncio.sleep(rng.uniform(0, 1.0))
            await served.left(by=signal.SIGKILL)
        async with open_serve(home) as served:
            await telegram.shows(OWNER, "It ended.")
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "answer to hello")
            assert await served.left() == 0
        done = sorted(log_file.read_text().split()) if log_file.exists() else []
        assert done == sorted(set(done)), (seed, done)
        said = [text for text in bot_texts(telegram, OWNER) if text.startswith(("It ended", "answer"))]
        assert said == ["It ended.", "answer to hello"], (seed, said)
        assert logged_errors(home) == []


def reply_with_tool(body):
    said, seen = since_user("openai-chat", body)
    if "message 1" in seen and not said:
        return Calls((Call("terminal", {"command": "sleep 0.8"}),))
    return Say(f"answer to {last_user_text(body)}")


@pytest.mark.deadline(60)
@pytest.mark.parametrize("mode", ["steer", "interrupt", "queue"])
@pytest.mark.parametrize("seed", seeds(1, 8))
async def test_a_message_sent_during_a_turn_survives_a_kill_in_every_mode(tmp_path, seed, mode):
    rng, home = random.Random(seed), Home(tmp_path / "home")
    async with ModelServer(reply_with_tool) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, busy=f'"{mode}"')
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("message 1", chat=OWNER)
            await model.asked()
            await asyncio.sleep(rng.uniform(0, 0.4))
            telegram.chats.say("message 2", chat=OWNER)
            await asyncio.sleep(rng.choice((0.0, rng.uniform(0, 0.1), rng.uniform(0, 1.0))))
            await served.left(by=signal.SIGKILL)
        async with open_serve(home) as served:
            await telegram.confirmed()
            await until(lambda: str(model.bodies).count("message 2") > 0)
            telegram.chats.say("message 3", chat=OWNER)
            await telegram.until(lambda: any("message 3" in text for text in bot_texts(telegram, OWNER)))
            await until(lambda: not model.open_requests)
            assert await served.left() == 0
        said, endings = await transcript(home)
        assert said == ["message 1", "message 2", "message 3"], (seed, said)
        assert None not in endings, endings
        answers = [text for text in bot_texts(telegram, OWNER) if text.startswith("answer")]
        once = list(dict.fromkeys(answers))
        doubtful = {row[0] for row in rows(home) if row[2]}
        assert {text for text in once if answers.count(text) > 1} <= doubtful, (seed, answers, rows(home))
        assert once[-1] == "answer to message 3", (seed, answers)
        if mode == "queue":
            assert once == [f"answer to message {n}" for n in (1, 2, 3)]
        assert logged_errors(home) == []
