"""Killed while a tool call is written, stored, run, or itself the killer: the next start is valid and does it once."""

import asyncio
import random
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import complaints, furnish, texts
from tests.torture.trials import seeds
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until


def asked_for(command: str):
    """A model that runs the command and repeats its result; its arguments arrive letter by letter."""

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
    dice, home, acts = random.Random(seed), Home(tmp_path / "home"), tmp_path / "acts"
    (tmp_path / "act.sh").write_text(f"echo done >> {acts}\nsleep 1\n")
    async with ModelServer(asked_for("bash act.sh")) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            match point:
                case "mid-JSON":
                    await model.asked()
                    await asyncio.sleep(dice.uniform(0.2, 0.4))
                case "stored":
                    await model.asked()
                    await model.idle()
                case _:
                    await until(acts.exists)
                    await asyncio.sleep(dice.uniform(0, 0.5))
            await served.left(by=signal.SIGKILL)
        begun = acts.exists()
        async with open_serve(home) as served:
            await telegram.shows(OWNER, "It is ")
            await telegram.confirmed()
            assert await served.left() == 0
        assert acts.read_text() == "done\n" if acts.exists() else point == "stored"
        ending = [text for text in texts(telegram, OWNER) if text.startswith("It is")]
        assert ending == (["It is unknown."] if begun or point == "running" else ending) and len(ending) == 1
        assert point != "mid-JSON" or ending == ["It is done."], "what was never whole was never begun"


@pytest.mark.deadline(60)
async def test_a_tool_that_kills_the_gateway_does_so_once(tmp_path):
    """A supervisor restarts it again and again; it must stop and notify the user."""
    home, deaths = Home(tmp_path / "home"), 0
    async with ModelServer() as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        answered = asyncio.Event()

        async def wait():
            await telegram.shows(OWNER, "It is ")
            answered.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(wait())
            while deaths < 4 and not answered.is_set():
                async with open_serve(home) as served:
                    if not deaths:
                        (tmp_path / "restart.sh").write_text(f"kill -KILL {served.process.pid}; sleep 600\n")
                        model.script = asked_for("bash restart.sh")
                        await served.ready()
                        telegram.chats.say("restart yourself", chat=OWNER)
                    gone = asyncio.create_task(served.process.wait())
                    heard = asyncio.create_task(answered.wait())
                    await asyncio.wait({gone, heard}, return_when=asyncio.FIRST_COMPLETED)
                    deaths += gone.done()
                    heard.cancel()
                    if not gone.done():
                        served.process.send_signal(signal.SIGTERM)
                    await gone
        assert deaths == 1
        assert [text for text in texts(telegram, OWNER) if text.startswith("It is")] == ["It is unknown."]
        assert complaints(home) == []


@pytest.mark.deadline(60)
async def test_a_turn_that_kills_every_process_that_resumes_it_is_given_up(tmp_path, figures):
    """Its plugin kills the process at each request: after some restarts the user is notified and others are served."""
    home, deaths = Home(tmp_path / "home"), 0
    fatal = """
import os, signal

async def before_request(request, turn):
    if "fatal" in turn.inbound.text:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    async with ModelServer(lambda body: Say("well")) as model, TelegramServer() as telegram:
        furnish(home, model, telegram, plugin=fatal)
        for chat, text in ((OWNER, "fatal"), (8, "hello"), (9, "hello")):
            telegram.chats.say(text, chat=chat)
        while deaths < 8:
            async with open_serve(home) as served:
                gone = asyncio.create_task(served.process.wait())
                over = asyncio.create_task(until(lambda: endings(home) == {"fatal": True, "hello": True}))
                await asyncio.wait({gone, over}, return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                if gone.done():
                    deaths += 1
                    continue
                for chat in (8, 9):
                    await telegram.shows(chat, "well")
                seen = [kept.text for kept in await telegram.heard(OWNER)]
                served.process.send_signal(signal.SIGTERM)
                assert await gone == 0
                break
        assert 1 <= deaths <= 4 and seen
        for chat in (8, 9):  # they stood beside it each time, and are not given up with it
            assert texts(telegram, chat).count("well") == 1, texts(telegram, chat)
        figures.worst("deaths by one turn", deaths)


def endings(home: Home) -> dict[str, bool]:
    """By what was said: is its turn over?"""
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        rows = db.execute("SELECT json_extract(inbound, '$.text'), ending FROM turns").fetchall()
    return {text: all(ending for other, ending in rows if other == text) for text, _ in rows}
