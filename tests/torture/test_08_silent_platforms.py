"""The service runs but receives nothing: hanging, half-closed or conflicting polls; failing sends; clock jumps."""

import asyncio
import sqlite3
import time
from contextlib import closing

import pytest

from tests.e2e.program import ROOT, Home
from tests.e2e.service import OWNER, ServeProcess, open_serve
from tests.torture.homes import bot_texts, last_user_text, logged_errors, write_home
from tests.torture.trials import LONG
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import Fault, TelegramServer
from tests.world.wait import until

POLL = 1
CONFLICT = 40.0 if LONG else 0.5
"""Seconds during which another client polls."""
MARGIN = 3.0
"""Seconds of slack for a busy machine."""
JUMP = '''
"""Shifts the wall clock of this process by the offset in a file."""

import os, time

real, where = time.time, os.environ["CLOCK_OFFSET"]


def jumping():
    with open(where) as file:
        return real() + float(file.read() or 0)


time.time = jumping
'''


async def wait_not_ready(served: ServeProcess) -> dict[str, str]:
    """Wait until it reports not ready; returns the reasons."""
    while (answer := await served.get("/ready")).status_code == 200:
        await asyncio.sleep(0.03)
    return answer.json()["because"]


def read_log(home: Home) -> str:
    return (home.path / "logs" / "alipes.log").read_text()


@pytest.mark.deadline(120)
@pytest.mark.parametrize("fault", ["hang", "half_close", "conflict"])
async def test_a_broken_poll_is_noticed_reported_and_repaired(tmp_path, fault, figures):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda body: Say(f"answer {last_user_text(body)}")) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, poll=POLL)
        async with open_serve(home) as served:
            await served.ready()
            await telegram.polled()
            telegram.fault(Fault(fault, ("getUpdates",), times=None))
            if fault != "conflict":
                telegram.strike(fault)
            began = time.monotonic()
            because = await wait_not_ready(served)
            figures.worst("broken poll noticed after", noticed := time.monotonic() - began, "s")
            assert noticed < 2 * POLL + MARGIN and "telegram" in because
            for number in range(3):
                telegram.chats.say(f"{number}", chat=OWNER)
            await asyncio.sleep(CONFLICT if fault == "conflict" else 0.5)
            assert (await served.get("/ready")).status_code == 503
            telegram.clear_faults()
            await telegram.shows(OWNER, "answer 2")
            await served.ready()
            await telegram.confirmed()
            assert await served.left() == 0
        assert bot_texts(telegram, OWNER) == [f"answer {number}" for number in range(3)]
        named = "409" if fault == "conflict" else "Telegram"
        assert [line for line in read_log(home).splitlines() if "receiving from Telegram" in line and named in line]
        assert logged_errors(home) == []


@pytest.mark.deadline(60)
async def test_when_only_sending_fails_it_is_reported_and_messages_arrive_once(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda body: Say(f"answer {last_user_text(body)}")) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, poll=POLL)
        async with open_serve(home) as served:
            await served.ready()
            telegram.fault(Fault("fail", ("send", "edit"), times=None, status=502))
            for number in range(4):
                telegram.chats.say(f"{number}", chat=10 + number % 2)
            async with asyncio.timeout(LIMIT_S):
                because = await wait_not_ready(served)
            assert "telegram" in because
            await model.asked(4)
            telegram.clear_faults()
            for chat in (10, 11):
                await telegram.heard(chat, 2)
            await served.ready()
            assert await served.left() == 0
        assert bot_texts(telegram, 10) == ["answer 0", "answer 2"]
        assert bot_texts(telegram, 11) == ["answer 1", "answer 3"]
        assert "502" in read_log(home)


def postponed(home: Home) -> bool:
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        return bool(db.execute("SELECT 1 FROM outbox WHERE state = 'queued' AND due > 0").fetchall())


@pytest.mark.deadline(60)
@pytest.mark.parametrize("hours", [8, -8])
async def test_a_clock_jump_stops_neither_receiving_nor_sending(tmp_path, hours):
    home, offset = Home(tmp_path / "home"), tmp_path / "offset"
    offset.write_text("0")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(JUMP)
    more = {"PYTHONPATH": f"{tmp_path / 'path'}:{ROOT / 'src'}", "CLOCK_OFFSET": str(offset)}
    async with ModelServer(lambda body: Say(f"answer {last_user_text(body)}")) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, poll=POLL)
        async with open_serve(home, **more) as served:
            await served.ready()
            telegram.fault(Fault("flood", ("sendMessage",), retry_after=2))  # something waits when the clock jumps
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
        assert bot_texts(telegram, OWNER) == ["answer before", "answer after"]
        hour = time.strftime("T%H:", time.gmtime(time.time() + hours * 3600))
        assert hour in read_log(home), "the clock of the process did jump"
        assert logged_errors(home) == []
