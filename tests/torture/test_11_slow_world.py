"""Slow name lookups and stalled disks delay only those who need them; others are served and the loop stays free."""

import asyncio

import pytest

from tests.e2e.program import ROOT, Home
from tests.e2e.service import open_serve
from tests.torture.homes import bot_texts, last_user_text, write_home
from tests.torture.probes import watch_lag
from tests.torture.trials import LONG
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import Fault, TelegramServer
from tests.world.wait import until

AFFECTED, OTHER = 10, 20
STALL = 30 if LONG else 3
"""Seconds."""
SLOW_NAMES = f'''
"""A resolver that takes long for one name."""

import socket, time

real = socket.getaddrinfo


def slow(host, *more, **named):
    if "slow" in str(host):
        time.sleep({STALL})
    return real("127.0.0.1" if "slow" in str(host) else host, *more, **named)


socket.getaddrinfo = slow
'''
SLOW_DISK = '''
"""A disk that stalls while a file exists: writers to the store wait."""

import os, sqlite3, time

real = sqlite3.connect


class Slow(sqlite3.Connection):
    def execute(self, *words):
        while os.path.exists(os.environ["STALL_FILE"]):
            time.sleep(0.05)
        return super().execute(*words)


sqlite3.connect = lambda *where, **how: real(*where, **{"factory": Slow, **how})
'''
SLOW_LOG = '''
"""The same for the disk of the log."""

import os, time

real = os.stat


def slow(path, *words, **named):
    while str(path).endswith("alipes.log") and os.path.lexists(os.environ["STALL_FILE"]):
        time.sleep(0.05)
    return real(path, *words, **named)


os.stat = slow
'''


def reply(body):
    return Say(f"answer {last_user_text(body)}")


def environment_with(folder, source: str) -> dict[str, str]:
    """The environment of a process that runs `source` at its start."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(source)
    return {"PYTHONPATH": f"{folder}:{ROOT / 'src'}", "STALL_FILE": str(folder / "stall")}


@pytest.mark.deadline(150)
async def test_a_slow_name_lookup_delays_only_its_own_turn(tmp_path, figures):
    home, path = Home(tmp_path / "home"), tmp_path / "path"
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        with (home.path / "config.toml").open("a") as file:
            slow = model.url("openai-chat").replace("127.0.0.1", "slow.test")
            file.write(f'[providers.slow]\napi = "openai-chat"\nbase_url = "{slow}"\n')
        async with open_serve(home, **environment_with(path, SLOW_NAMES)) as served:
            await served.ready()
            telegram.chats.say("/model slow/scripted", chat=AFFECTED)
            await telegram.heard(AFFECTED)
            async with watch_lag(served) as lag:
                telegram.chats.say("far", chat=AFFECTED)
                for number in range(5):
                    telegram.chats.say(f"near {number}", chat=OTHER)
                    await telegram.shows(OTHER, f"answer near {number}")
                assert not [text for text in bot_texts(telegram, AFFECTED) if "answer far" in text]
                if LONG:  # too long to wait for: stop it and use another model
                    telegram.chats.say("/stop", chat=AFFECTED)
                    telegram.chats.say("/model test/scripted", chat=AFFECTED)
                    telegram.chats.say("near", chat=AFFECTED)
                    await telegram.shows(AFFECTED, "answer near")
                    await asyncio.sleep(STALL)
                else:
                    await telegram.shows(AFFECTED, "answer far")
            assert await served.left() == 0
        figures.worst("loop lag with slow names, 99.9 of 100", lag.worst, "s")
        lag.check()


@pytest.mark.deadline(150)
async def test_a_stalled_disk_does_not_block_the_loop(tmp_path, figures):
    """Nothing is sent before it is stored; everything is sent once the disk works again."""
    home, path = Home(tmp_path / "home"), tmp_path / "path"
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home, **environment_with(path, SLOW_DISK)) as served:
            await served.ready()
            async with watch_lag(served) as lag:
                telegram.chats.say("before", chat=OTHER)
                await telegram.shows(OTHER, "answer before")
                (path / "stall").touch()
                for chat in (AFFECTED, OTHER):
                    telegram.chats.say("meanwhile", chat=chat)
                await asyncio.sleep(STALL)
                assert not [text for text in bot_texts(telegram, AFFECTED) if "answer" in text]
                (path / "stall").unlink()
                for chat in (AFFECTED, OTHER):
                    await telegram.shows(chat, "answer meanwhile")
            assert await served.left() == 0
        assert bot_texts(telegram, AFFECTED) == ["answer meanwhile"]
        figures.worst("loop lag with a slow disk, 99.9 of 100", lag.worst, "s")
        lag.check()


@pytest.mark.deadline(150)
async def test_a_stalled_log_disk_delays_no_answer(tmp_path, figures):
    """The log is complete afterwards."""
    home, path = Home(tmp_path / "home"), tmp_path / "path"
    log = home.path / "logs" / "alipes.log"

    def seen() -> int:
        return log.read_text().count("was not sent; retrying")

    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home, **environment_with(path, SLOW_LOG)) as served:
            await served.ready()
            async with watch_lag(served) as lag:
                (path / "stall").touch()
                for number in range(3):
                    telegram.fault(Fault("fail", ("sendMessage",), status=502))
                    telegram.chats.say(f"meanwhile {number}", chat=OTHER)
                    await telegram.shows(OTHER, f"answer meanwhile {number}")
                if LONG:
                    await asyncio.sleep(STALL)
                assert seen() == 0
                (path / "stall").unlink()
                await until(lambda: seen() == 3)
            assert await served.left() == 0
        figures.worst("loop lag with a log that waits, 99.9 of 100", lag.worst, "s")
        lag.check()
