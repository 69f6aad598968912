"""Turns that wait for the limit of a provider (`on_limit = "wait"`), in whole programs."""

import asyncio
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve, write_settings
from tests.world.model_server import Fail, ModelServer, Say
from tests.world.telegram_server import TelegramServer
from tests.world.terminal_process import ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(120)
LIMIT = Fail(429, "slow down", retry_after=3600)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def settle(home: Home, model: ModelServer, telegram: TelegramServer | None = None) -> None:
    write_settings(home, model, telegram)
    config = home.path / "config.toml"
    config.write_text(config.read_text().replace("[providers.test]\n", '[providers.test]\non_limit = "wait"\n'))


def end_limit(home: Home) -> None:
    """As if the time had come."""
    with closing(sqlite3.connect(home.path / "alipes.db", timeout=30)) as db, db:
        assert db.execute("UPDATE turns SET resume_at = 1 WHERE resume_at > 1").rowcount == 1


def turns(home: Home) -> list[tuple[str | None, int]]:
    with closing(sqlite3.connect(home.path / "alipes.db", timeout=30)) as db:
        return db.execute("SELECT ending, attempts FROM turns ORDER BY number").fetchall()


async def test_a_chat_sees_when_its_turn_resumes_which_survives_a_kill(home):
    async with ModelServer([LIMIT, Say("Here it is.")]) as model, TelegramServer() as telegram:
        settle(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await telegram.shows(OWNER, "/stop ends the wait")
            served.process.kill()
            await served.process.wait()
        end_limit(home)
        async with open_serve(home):
            await telegram.shows(OWNER, "Here it is.")
            await telegram.confirmed()
        said = [kept.text for kept in telegram.chats.mine(OWNER)]
        assert sum("Here it is." in text for text in said) == 1 and len(model.requests) == 2


async def test_a_chat_ends_the_wait_by_stop(home):
    async with ModelServer([LIMIT, Say("Something else.")]) as model, TelegramServer() as telegram:
        settle(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("do it", chat=OWNER)
            await telegram.shows(OWNER, "/stop ends the wait")
            telegram.chats.say("/stop", chat=OWNER)
            await telegram.shows(OWNER, "Stopped")
            telegram.chats.say("another", chat=OWNER)
            await telegram.shows(OWNER, "Something else.")
        assert turns(home)[0][0] == "stopped"


async def test_escape_ends_the_wait_in_a_terminal(home):
    async with ModelServer([LIMIT, Say("Fine.")]) as model:
        settle(home, model)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("do it" + ENTER)
            await terminal.until("Resumes at")
            await terminal.until("paused until")
            terminal.type(ESCAPE)
            await terminal.until("stopped")
            terminal.type("another" + ENTER)
            await terminal.until("Fine.")
        assert turns(home)[0][0] == "stopped"


async def read_until(stream: asyncio.StreamReader, words: bytes) -> None:
    said = b""
    while words not in said:
        piece = await stream.read(1000)
        assert piece, said
        said += piece


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_question_waits_until_a_signal(home, number):
    async with ModelServer([LIMIT]) as model:
        settle(home, model)
        async with home.started("ask", "do it") as process:
            await read_until(process.stderr, b"Resumes at")
            process.send_signal(number)
            assert await process.wait() == 130
        assert [ending for ending, _ in turns(home)] == ["stopped"]


async def test_a_question_is_answered_when_the_limit_has_ended(home):
    async with ModelServer([LIMIT, Say("Here it is.")]) as model:
        settle(home, model)
        async with home.started("ask", "do it") as process:
            await read_until(process.stderr, b"Resumes at")
            end_limit(home)
            out, _ = await process.communicate()
            assert (process.returncode, out.decode().strip()) == (0, "Here it is.")
