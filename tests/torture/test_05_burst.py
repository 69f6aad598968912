"""Messages sent while a turn runs, some delivered twice, with a restart in between: each is answered once, in order."""

import asyncio
import random
import signal
import time

import pytest

from alipes.store.sqlite.store import open_store
from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import bot_texts, last_user_text, write_home
from tests.torture.trials import seeds
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.model_validation import since_user
from tests.world.telegram_server import TelegramServer


def reply(body):
    """The first message runs three tools at once; queued messages are answered by their number."""
    said, seen = since_user("openai-chat", body)
    if seen.startswith("message 1") and not said:
        calls = [Call("terminal", {"command": f"echo tool {n}; sleep 0.6"}, id=f"c{n}") for n in range(3)]
        return Calls(tuple(calls), "I look.")
    return Say(f"answer to {last_user_text(body)}")


async def burst(telegram: TelegramServer, rng: random.Random, numbers) -> list:
    """Messages within a second, the third delivered twice more, as after a lost confirmation."""
    said = []
    for number in numbers:
        said.append(telegram.chats.say(f"message {number}", chat=OWNER))
        for _ in range(2 * (number == 3)):
            telegram._queue_update("message", said[-1])
        await asyncio.sleep(rng.uniform(0, 0.2))
    return said


async def transcript(home: Home) -> tuple[list[str], list[str]]:
    """The stored messages of people, and the endings of the turns."""
    async with open_store(home.path) as store:
        (session,) = await store.archive.sessions()
        messages = await store.archive.messages(session.id)
        sql = "SELECT ending FROM turns ORDER BY rowid"
        endings = await store.database.read(lambda db: [row[0] for row in db.execute(sql)])
    said = [message.text for message in messages if message.role == "user"]
    return [text for text in said if text.startswith("message")], endings


@pytest.mark.deadline(60)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_queued_messages_are_answered_once_and_in_order(tmp_path, seed, how, figures):
    rng, home = random.Random(seed), Home(tmp_path / "home")
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, lines=("serve.drain = 1",))
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("message 1", chat=OWNER)
            await model.asked()
            said = await burst(telegram, rng, (2, 3, 4))
            await served.left(by=how)
        for wire in said:  # delivered again after the restart
            telegram._queue_update("message", wire)
        await burst(telegram, rng, (5,))
        began = time.monotonic()
        async with open_serve(home) as served:
            await telegram.shows(OWNER, "answer to message 5")
            figures.worst("from the restart to the last answer", time.monotonic() - began, "s")
            await telegram.confirmed()
            assert await served.left() == 0
        answers = [text for text in bot_texts(telegram, OWNER) if text.startswith(("answer", "I look"))]
        assert answers == ["I look.", *(f"answer to message {number}" for number in range(1, 6))]
        said, endings = await transcript(home)
        assert said == [f"message {number}" for number in range(1, 6)]
        assert endings == ["answered"] * 5


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_files_of_parallel_tools_are_sent_in_call_order_before_the_answer(tmp_path, seed):
    rng, home = random.Random(seed), Home(tmp_path / "home")

    def make(number: int) -> tuple[Call, ...]:
        name = f"f{number}.txt"
        return (
            Call("terminal", {"command": f"sleep {rng.uniform(0, 0.4):.2f}"}, id=f"a{number}"),
            Call("write_file", {"path": name, "content": f"{number}\n"}, id=f"b{number}"),
            Call("send_file", {"path": name}, id=f"c{number}"),
        )

    def reply(body):
        said, reported = since_user("openai-chat", body)
        if reported.startswith("message 1") and not said:
            return Calls(tuple(each for n in range(3) for each in make(n)), "I look.")
        return Say(f"answer to {last_user_text(body)}")

    async with ModelServer(reply) as model, TelegramServer() as telegram:
        (tmp_path / "work").mkdir()
        write_home(home, model, telegram, lines=(f'workdir = "{tmp_path / "work"}"',))
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("message 1", chat=OWNER)
            await model.asked()
            await burst(telegram, rng, (2, 3))
            await telegram.shows(OWNER, "answer to message 3")
            assert await served.left() == 0
        seen = [kept.text or kept.wire["document"]["file_name"] for kept in telegram.chats.mine(OWNER)]
        seen = [text for text in seen if text.startswith(("answer", "I look", "f"))]
        assert seen == ["I look.", "f0.txt", "f1.txt", "f2.txt", *(f"answer to message {n}" for n in (1, 2, 3))]


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_interrupting_messages_stop_earlier_turns_and_the_last_is_answered(tmp_path, seed):
    rng, home = random.Random(seed), Home(tmp_path / "home")
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, busy='"interrupt"')
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("message 1", chat=OWNER)
            await model.asked()
            await burst(telegram, rng, (2, 3, 4, 5))
            await telegram.shows(OWNER, "answer to message 5")
            await telegram.confirmed()
            assert await served.left() == 0
        said, endings = await transcript(home)
        assert said == list(dict.fromkeys(said)) and said[0] == "message 1" and said[-1] == "message 5"
        assert endings[0] == "stopped" and endings[-1] == "answered" and len(endings) == 5
        answers = [text for text in bot_texts(telegram, OWNER) if text.startswith("answer")]
        assert answers == sorted(set(answers)) and answers[-1] == "answer to message 5"


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_steering_messages_reach_the_running_turn(tmp_path, seed):
    rng, home = random.Random(seed), Home(tmp_path / "home")
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, busy='"steer"')
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("message 1", chat=OWNER)
            await model.asked()
            await burst(telegram, rng, (2, 3, 4, 5))
            await telegram.shows(OWNER, "answer to")
            await telegram.confirmed()
            assert await served.left() == 0
        asked = str(model.bodies[-1]["messages"])
        places = [asked.index(f"message {number}") for number in range(1, 6)]
        assert places == sorted(places) and asked.count("message 3") == 1
        assert len([text for text in bot_texts(telegram, OWNER) if text.startswith("answer")]) == 1
