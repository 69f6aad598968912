"""Killed or stopped where something else is under way: a question to the person, a subagent, a word said meanwhile."""

import asyncio
import random
import signal

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import calling, complaints, furnish, texts, words
from tests.torture.test_03_delivery_crashes import rows
from tests.torture.test_05_burst import transcript
from tests.torture.trials import seeds
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.model_validation import since_user
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until


def asks(acts) -> object:
    """A model that wants something dangerous done, and tells what became of it."""

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        said, seen = since_user("openai-chat", body)
        if seen.startswith("do it") and not said:
            return Calls(
                (Call("terminal", {"command": f"git push --force 2>/dev/null; echo done >> {acts}"}),)
            )
        last = body["messages"][-1]
        return Say(f"It ended: {last['content']}" if last["role"] == "tool" else f"answer to {seen}")

    return reply


def questions(telegram: TelegramServer) -> list:
    return [kept for kept in telegram.chats.mine(OWNER) if kept.wire.get("reply_markup")]


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_killed_while_it_asks_it_asks_again_and_does_it_once(tmp_path, seed):
    dice, home, acts = random.Random(seed), Home(tmp_path / "home"), tmp_path / "acts"
    async with ModelServer(asks(acts)) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await telegram.until(lambda: questions(telegram))
            await asyncio.sleep(dice.uniform(0, 0.3))
            await served.left(by=signal.SIGKILL)
        old = questions(telegram)[-1]
        if dice.random() < 0.5:  # pressed while nobody is there
            telegram.chats.press(OWNER, old.wire["message_id"], "Yes")
        async with open_serve(home) as served:
            await served.ready()
            while not any(text.startswith("It ended") for text in texts(telegram, OWNER)):
                for kept in questions(telegram):
                    telegram.chats.press(OWNER, kept.wire["message_id"], "Yes")
                await asyncio.sleep(0.3)
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "answer to hello")
            assert await served.left() == 0
        assert acts.read_text() == "done\n"
        assert sum(text.startswith("It ended") for text in texts(telegram, OWNER)) == 1
        assert complaints(home) == []


@pytest.mark.deadline(60)
async def test_after_a_stop_a_late_approval_has_no_effect(tmp_path):
    home, acts = Home(tmp_path / "home"), tmp_path / "acts"
    async with ModelServer(asks(acts)) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with calling(home) as (served, front):
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
            run = await front.begin("do it", session="s")
            async with front.listening(run) as listener:
                asked = await listener.until("approval_asked")
                assert (await front.ask("POST", f"/runs/{run}/stop")).status_code == 202
            assert (await front.finish(run))["status"] == "stopped"
            late = await front.ask(
                "POST", f"/runs/{run}/approval", {"ask": asked.data["ask"], "choice": "once"}
            )
            assert late.status_code in (404, 409), late.text
            assert (await front.finish(await front.begin("hello", session="s")))["status"] == "answered"
            assert await served.left() == 0
        assert not acts.exists() and complaints(home) == []


def sends(body):
    """Two subagents, each of which does something once; what they say is passed on."""
    if not body.get("tools"):
        return Say("A title")
    said, seen = since_user("openai-chat", body)
    last = body["messages"][-1]
    if seen.startswith("do it") and not said:
        return Calls((Call("delegate_task", {"tasks": [{"goal": f"part {n}"} for n in range(2)]}),))
    if seen.startswith("part") and not said:
        number = seen.split()[1]
        return Calls(
            (Call("terminal", {"command": f"echo {number} >> acts; sleep 0.5"}),), pieces=6, delay=0.03
        )
    return Say("It ended." if seen.startswith("do it") else f"answer to {seen}") if last else Say("")


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_killed_while_subagents_work_the_person_is_answered_once_and_nothing_is_done_twice(
    tmp_path, seed
):
    dice, home, acts = random.Random(seed), Home(tmp_path / "home"), tmp_path / "acts"
    async with ModelServer(sends) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await model.asked(dice.randint(1, 3))
            await asyncio.sleep(dice.uniform(0, 1.0))
            await served.left(by=signal.SIGKILL)
        async with open_serve(home) as served:
            await telegram.shows(OWNER, "It ended.")
            telegram.chats.say("hello", chat=OWNER)
            await telegram.shows(OWNER, "answer to hello")
            assert await served.left() == 0
        done = sorted(acts.read_text().split()) if acts.exists() else []
        assert done == sorted(set(done)), (seed, done)
        said = [text for text in texts(telegram, OWNER) if text.startswith(("It ended", "answer"))]
        assert said == ["It ended.", "answer to hello"], (seed, said)
        assert complaints(home) == []


def works(body):
    said, seen = since_user("openai-chat", body)
    if "message 1" in seen and not said:
        return Calls((Call("terminal", {"command": "sleep 0.8"}),))
    return Say(f"answer to {words(body)}")


@pytest.mark.deadline(60)
@pytest.mark.parametrize("mode", ["steer", "interrupt", "queue"])
@pytest.mark.parametrize("seed", seeds(1, 8))
async def test_what_was_said_meanwhile_survives_a_kill_in_every_mode(tmp_path, seed, mode):
    dice, home = random.Random(seed), Home(tmp_path / "home")
    async with ModelServer(works) as model, TelegramServer() as telegram:
        furnish(home, model, telegram, busy=f'"{mode}"')
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("message 1", chat=OWNER)
            await model.asked()
            await asyncio.sleep(dice.uniform(0, 0.4))
            telegram.chats.say("message 2", chat=OWNER)
            await asyncio.sleep(dice.choice((0.0, dice.uniform(0, 0.1), dice.uniform(0, 1.0))))
            await served.left(by=signal.SIGKILL)
        async with open_serve(home) as served:
            await telegram.confirmed()
            await until(lambda: str(model.bodies).count("message 2") > 0)
            telegram.chats.say("message 3", chat=OWNER)
            await telegram.until(lambda: any("message 3" in text for text in texts(telegram, OWNER)))
            await until(lambda: not model.open_requests)
            assert await served.left() == 0
        said, endings = await transcript(home)
        assert said == ["message 1", "message 2", "message 3"], (seed, said)
        assert None not in endings, endings
        answers = [text for text in texts(telegram, OWNER) if text.startswith("answer")]
        once = list(dict.fromkeys(answers))
        doubtful = {row[0] for row in rows(home) if row[2]}
        assert {text for text in once if answers.count(text) > 1} <= doubtful, (seed, answers, rows(home))
        assert once[-1] == "answer to message 3", (seed, answers)
        if mode == "queue":
            assert once == [f"answer to message {n}" for n in (1, 2, 3)]
        assert complaints(home) == []
