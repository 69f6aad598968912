"""A slow world and plugins that hang, block and break: one chat suffers, the others are served and the loop runs."""

import asyncio
import sqlite3
import time
from contextlib import asynccontextmanager, closing

import httpx2
import pytest

from tests.e2e.program import ROOT, Home
from tests.e2e.service import Served, serving
from tests.torture.furnishing import furnish, texts, until, words
from tests.world.model_rules import since_user
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.telegram_server import TelegramServer

SUFFERING, OTHER = 10, 20
LAG = 0.25
"""Seconds for which the loop may stand still, for all but a few of the looks at it."""
HARM = '''
"""Hangs, blocks or breaks, for those who ask for it."""

import asyncio, time


def asked(turn, what):
    return what in turn.inbound.text


async def on_event(event, turn):
    if asked(turn, "hang"):
        await asyncio.sleep(10**6)


async def request_answered(turn):
    if asked(turn, "break"):
        raise RuntimeError("I break")


async def before_tool(call, turn):
    if asked(turn, "gate"):
        await asyncio.sleep(10**6)


async def turn_context(context, turn):
    if asked(turn, "block"):
        time.sleep(0.6)
'''
STALLED = '''
"""A resolver that takes long for one name."""

import socket, time

real = socket.getaddrinfo


def slow(host, *more, **named):
    if "slow" in str(host):
        time.sleep(4)
    return real("127.0.0.1" if "slow" in str(host) else host, *more, **named)


socket.getaddrinfo = slow
'''


class Lag:
    """How long it takes to be told that the process lives, asked again and again."""

    def __init__(self) -> None:
        self.took: list[float] = []

    def worst_of(self, share: float) -> float:
        return sorted(self.took)[int(len(self.took) * share)]


@asynccontextmanager
async def watching(served: Served):
    lag = Lag()

    async def watch() -> None:
        async with httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=30) as client:
            while True:
                began = time.monotonic()
                await client.get("/health")
                lag.took.append(time.monotonic() - began)
                await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(watch())
        yield lag
        looking.cancel()


def reply(body):
    said, told = since_user("openai-chat", body)
    if "gate" in told and not said:
        return Calls((Call("terminal", {"command": "echo done > gate.txt"}),))
    return Say(f"answer {words(body)}")


def log(home: Home) -> str:
    return (home.path / "logs" / "alipes.log").read_text()


@pytest.mark.deadline(60)
@pytest.mark.parametrize("kind", ["hang", "break", "gate", "block"])
async def test_a_plugin_that_misbehaves_is_named_and_switched_off_and_others_are_served(
    tmp_path, kind, figures
):
    home = Home(tmp_path / "home")
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        furnish(home, model, telegram, plugin=HARM)
        with (home.path / "config.toml").open("a") as file:
            file.write("deadline = 0.5\n")  # of [plugins], which stands last
        async with serving(home) as served:
            async with watching(served) as lag:
                await served.ready()
                for number in range(4):
                    telegram.town.say(f"{kind} {number}", chat=SUFFERING)
                    telegram.town.say(f"well {number}", chat=OTHER)
                    await telegram.shows(OTHER, f"answer well {number}")
                await telegram.shows(SUFFERING, f"answer {kind} 3")
                await until(lambda: "switched off" in log(home) or "is off" in log(home), 10)
                telegram.town.say("and now?", chat=SUFFERING)
                await telegram.shows(SUFFERING, "answer and now?")
            assert await served.left() == 0
        assert [text for text in texts(telegram, SUFFERING) if kind in text] == [
            f"answer {kind} {n}" for n in range(4)
        ]
        assert "trial" in log(home), "the offender is named"
        hook = {
            "hang": "on_event",
            "break": "request_answered",
            "gate": "before_tool",
            "block": "turn_context",
        }[kind]
        assert hook in log(home)
        if kind == "gate":
            told = str(
                next(body["messages"] for body in model.bodies if body["messages"][-1]["role"] == "tool")
            )
            assert "denied" in told or "trial" in told, "a gate that hangs is closed"
        figures.worst("loop lag, 95 of 100", lag.worst_of(0.95), "s")
        assert lag.worst_of(0.95) < LAG or kind == "block"


@pytest.mark.deadline(60)
async def test_a_name_that_is_slow_to_be_found_holds_up_only_who_asked_for_it(tmp_path, figures):
    home = Home(tmp_path / "home")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(STALLED)
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        with (home.path / "config.toml").open("a") as file:
            slow = model.url("openai-chat").replace("127.0.0.1", "slow.test")
            file.write(f'[providers.slow]\napi = "openai-chat"\nbase_url = "{slow}"\n')
        async with serving(home, PYTHONPATH=f"{tmp_path / 'path'}:{ROOT / 'src'}") as served:
            await served.ready()
            telegram.town.say("/model slow/scripted", chat=SUFFERING)
            await telegram.heard(SUFFERING)
            async with watching(served) as lag:
                telegram.town.say("far", chat=SUFFERING)
                for number in range(5):
                    telegram.town.say(f"near {number}", chat=OTHER)
                    await telegram.shows(OTHER, f"answer near {number}")
                assert not [text for text in texts(telegram, SUFFERING) if "answer far" in text]
                await telegram.shows(SUFFERING, "answer far")
            assert lag.worst_of(0.95) < LAG
            figures.worst("loop lag, 95 of 100", lag.worst_of(0.95), "s")
            assert await served.left() == 0


@pytest.mark.deadline(60)
async def test_a_disk_that_stalls_holds_the_loop_up_for_nobody(tmp_path, figures):
    """The store is locked for a while, as by a disk that does not answer: all is written when it does."""
    home = Home(tmp_path / "home")
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with serving(home) as served:
            async with watching(served) as lag:
                await served.ready()
                telegram.town.say("before", chat=OTHER)
                await telegram.shows(OTHER, "answer before")
                with closing(sqlite3.connect(home.path / "alipes.db", isolation_level=None)) as db:
                    db.execute("BEGIN IMMEDIATE")
                    for chat in (SUFFERING, OTHER):
                        telegram.town.say("meanwhile", chat=chat)
                    await asyncio.sleep(2.5)
                    assert not [text for text in texts(telegram, SUFFERING) if "answer" in text]
                    db.execute("ROLLBACK")
                for chat in (SUFFERING, OTHER):
                    await telegram.shows(chat, "answer meanwhile")
            assert await served.left() == 0
        assert texts(telegram, SUFFERING) == ["answer meanwhile"]
        figures.worst("loop lag, 95 of 100", lag.worst_of(0.95), "s")
        assert lag.worst_of(0.95) < LAG
