"""Alive but deaf: a poll that is dead and does not say so, half closed, in conflict; sending alone; a clock that jumps."""

import asyncio
import sqlite3
import time
from contextlib import closing

import pytest

from tests.e2e.program import ROOT, Home
from tests.e2e.service import OWNER, ServeProcess, open_serve
from tests.torture.homes import complaints, furnish, texts, words
from tests.torture.trials import LONG
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import Fault, TelegramServer
from tests.world.wait import until

POLL = 1
CONFLICT = 40.0 if LONG else 0.5
"""Seconds that somebody else listens in our place."""
MARGIN = 3.0
"""Seconds that a busy machine may take on top."""
JUMP = '''
"""The wall clock of this process is what a file says it is off by."""

import os, time

real, where = time.time, os.environ["CLOCK_OFFSET"]


def jumping():
    with open(where) as file:
        return real() + float(file.read() or 0)


time.time = jumping
'''


async def not_ready(served: ServeProcess) -> dict[str, str]:
    """Wait until it says that it is not; why."""
    while (answer := await served.get("/ready")).status_code == 200:
        await asyncio.sleep(0.03)
    return answer.json()["because"]


def log(home: Home) -> str:
    return (home.path / "logs" / "alipes.log").read_text()


@pytest.mark.deadline(120)
@pytest.mark.parametrize("harm", ["hang", "half_close", "conflict"])
async def test_deafness_is_noticed_in_time_named_and_mended(tmp_path, harm, figures):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda body: Say(f"answer {words(body)}")) as model, TelegramServer() as telegram:
        furnish(home, model, telegram, poll=POLL)
        async with open_serve(home) as served:
            await served.ready()
            await telegram.polled()
            telegram.fault(Fault(harm, ("getUpdates",), times=None))
            if harm != "conflict":
                telegram.strike(harm)
            began = time.monotonic()
            because = await not_ready(served)
            figures.worst("deafness noticed after", noticed := time.monotonic() - began, "s")
            assert noticed < 2 * POLL + MARGIN and "telegram" in because
            for number in range(3):
                telegram.chats.say(f"{number}", chat=OWNER)
            await asyncio.sleep(CONFLICT if harm == "conflict" else 0.5)
            assert (await served.get("/ready")).status_code == 503
            telegram.clear_faults()
            await telegram.shows(OWNER, "answer 2")
            await served.ready()
            await telegram.confirmed()
            assert await served.left() == 0
        assert texts(telegram, OWNER) == [f"answer {number}" for number in range(3)]
        named = "409" if harm == "conflict" else "Telegram"
        assert [
            line for line in log(home).splitlines() if "receiving from Telegram" in line and named in line
        ]
        assert complaints(home) == []


@pytest.mark.deadline(60)
async def test_when_only_sending_fails_it_is_reported_and_messages_arrive_once(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda body: Say(f"answer {words(body)}")) as model, TelegramServer() as telegram:
        furnish(home, model, telegram, poll=POLL)
        async with open_serve(home) as served:
            await served.ready()
            telegram.fault(Fault("fail", ("send", "edit"), times=None, status=502))
            for number in range(4):
                telegram.chats.say(f"{number}", chat=10 + number % 2)
            async with asyncio.timeout(LIMIT_S):
                because = await not_ready(served)
            assert "telegram" in because
            await model.asked(4)
            telegram.clear_faults()
            for chat in (10, 11):
                await telegram.heard(chat, 2)
            await served.ready()
            assert await served.left() == 0
        assert texts(telegram, 10) == ["answer 0", "answer 2"]
        assert texts(telegram, 11) == ["answer 1", "answer 3"]
        assert "502" in log(home)


def postponed(home: Home) -> bool:
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        return bool(db.execute("SELECT 1 FROM outbox WHERE state = 'queued' AND due > 0").fetchall())


@pytest.mark.deadline(60)
@pytest.mark.parametrize("hours", [8, -8])
async def test_a_clock_that_jumps_neither_deafens_nor_silences(tmp_path, hours):
    home, offset = Home(tmp_path / "home"), tmp_path / "offset"
    offset.write_text("0")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(JUMP)
    more = {"PYTHONPATH": f"{tmp_path / 'path'}:{ROOT / 'src'}", "CLOCK_OFFSET": str(offset)}
    async with ModelServer(lambda body: Say(f"answer {words(body)}")) as model, TelegramServer() as telegram:
        furnish(home, model, telegram, poll=POLL)
        async with open_serve(home, **more) as served:
            await served.ready()
            telegram.fault(
                Fault("flood", ("sendMessage",), retry_after=2)
            )  # something waits when the clock jumps
            telegram.chats.say("before", chat=OWNER)
            await until(lambda: postponed(home), 10)
            temporary = offset.with_suffix(".new")
            temporary.write_text(str(hours * 3600))
            temporary.rename(offset)
            telegram.chats.say("after", chat=OWNER)
            telegram.chats.say("elsewhere", chat=8)
            await telegram.shows(8, "answer elsewhere")
            await telegram.shows(OWNER, "answer after")
            await served.ready()
            await asyncio.sleep(POLL * 2)
            assert (await served.get("/ready")).status_code == 200
            assert await served.left() == 0
        assert texts(telegram, OWNER) == ["answer before", "answer after"]
        hour = time.strftime("T%H:", time.gmtime(time.time() + hours * 3600))
        assert hour in log(home), "the clock of the process did jump"
        assert complaints(home) == []
