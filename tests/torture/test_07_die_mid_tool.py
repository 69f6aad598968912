"""Killed while a tool call is streamed, stored or run, or by the tool itself: after a restart nothing runs twice."""

import asyncio
import random
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import bot_texts, logged_errors, write_home
from tests.torture.trials import seeds
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until


def model_that_runs(command: str):
    """A model that runs the command and repeats its result; the arguments arrive in small pieces."""

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        last = body["messages"][-1]
        if last["role"] == "tool":
            return Say(f"It is {'unknown' if 'unknown' in str(last['content']) else 'done'}.")
        if any(message["role"] == "tool" for message in body["messages"]):
            return Say("It is unknown.")
        return Calls((Call("terminal", {"command": command}),), "I do it.", pieces=12, delay=0.05)

    return reply


@pytest.mark.deadline(60)
@pytest.mark.parametrize("point", ["mid-JSON", "stored", "running"])
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_a_write_is_not_run_again_and_the_person_is_answered(tmp_path, seed, point):
    rng, home, log_file = random.Random(seed), Home(tmp_path / "home"), tmp_path / "acts"
    (tmp_path / "act.sh").write_text(f"echo done >> {log_file}\nsleep 1\n")
    async with ModelServer(model_that_runs("bash act.sh")) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            match point:
                case "mid-JSON":
                    await model.asked()
                    await asyncio.sleep(rng.uniform(0.2, 0.4))
                case "stored":
                    await model.asked()
                    await model.idle()
                case _:
                    await until(log_file.exists)
                    await asyncio.sleep(rng.uniform(0, 0.5))
            await served.left(by=signal.SIGKILL)
        begun = log_file.exists()
        async with open_serve(home) as served:
            await telegram.shows(OWNER, "It is ")
            await telegram.confirmed()
            assert await served.left() == 0
        assert log_file.read_text() == "done\n" if log_file.exists() else point == "stored"
        ending = [text for text in bot_texts(telegram, OWNER) if text.startswith("It is")]
        assert ending == (["It is unknown."] if begun or point == "running" else ending) and len(ending) == 1
        assert point != "mid-JSON" or ending == ["It is done."], "an incomplete call was never started"


@pytest.mark.deadline(60)
async def test_a_tool_that_kills_the_gateway_does_so_once(tmp_path):
    """A supervisor restarts the service each time; the turn must end and the user be notified."""
    home, kills = Home(tmp_path / "home"), 0
    async with ModelServer() as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        answered = asyncio.Event()

        async def wait():
            await telegram.shows(OWNER, "It is ")
            answered.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(wait())
            while kills < 4 and not answered.is_set():
                async with open_serve(home) as served:
                    if not kills:
                        (tmp_path / "restart.sh").write_text(f"kill -KILL {served.process.pid}; sleep 600\n")
                        model.script = model_that_runs("bash restart.sh")
                        await served.ready()
                        telegram.chats.say("restart yourself", chat=OWNER)
                        await telegram.shows(OWNER, "bash restart.sh")  # a question: it kills our own process
                        telegram.chats.say("yes", chat=OWNER)
                    gone = asyncio.create_task(served.process.wait())
                    heard = asyncio.create_task(answered.wait())
                    await asyncio.wait({gone, heard}, return_when=asyncio.FIRST_COMPLETED)
                    kills += gone.done()
                    heard.cancel()
                    if not gone.done():
                        served.process.send_signal(signal.SIGTERM)
                    await gone
        assert kills == 1
        assert [text for text in bot_texts(telegram, OWNER) if text.startswith("It is")] == ["It is unknown."]
        assert logged_errors(home) == []


@pytest.mark.deadline(60)
async def test_a_turn_that_kills_every_process_that_resumes_it_is_given_up(tmp_path, figures):
    """A plugin kills the process at each request: after some restarts the user is notified and others are answered."""
    home, kills = Home(tmp_path / "home"), 0
    plugin = """
import os, signal

async def before_request(request, turn):
    if "fatal" in turn.inbound.text:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    async with ModelServer(lambda body: Say("well")) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, plugin=plugin)
        for chat, text in ((OWNER, "fatal"), (8, "hello"), (9, "hello")):
            telegram.chats.say(text, chat=chat)
        while kills < 8:
            async with open_serve(home) as served:
                gone = asyncio.create_task(served.process.wait())
                over = asyncio.create_task(until(lambda: endings(home) == {"fatal": True, "hello": True}))
                await asyncio.wait({gone, over}, return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                if gone.done():
                    kills += 1
                    continue
                for chat in (8, 9):
                    await telegram.shows(chat, "well")
                seen = [kept.text for kept in await telegram.heard(OWNER)]
                served.process.send_signal(signal.SIGTERM)
                assert await gone == 0
                break
        assert 1 <= kills <= 4 and seen
        for chat in (8, 9):  # they ran at the same time and are not given up
            assert bot_texts(telegram, chat).count("well") == 1, bot_texts(telegram, chat)
        figures.worst("processes killed by one turn", kills)


def endings(home: Home) -> dict[str, bool]:
    """By message: whether its turn has ended."""
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        rows = db.execute("SELECT json_extract(inbound, '$.text'), ending FROM turns").fetchall()
    return {text: all(ending for other, ending in rows if other == text) for text, _ in rows}
