"""A slow world: names and disks that take long hold up who needs them, the others are served and the loop runs."""

import asyncio

import pytest

from tests.e2e.program import ROOT, Home
from tests.e2e.service import open_serve
from tests.torture.homes import furnish, texts, words
from tests.torture.probes import watching
from tests.torture.trials import LONG
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import Fault, TelegramServer
from tests.world.wait import until

SUFFERING, OTHER = 10, 20
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
"""The same for the disk that the log is on."""

import os, time

real = os.stat


def slow(path, *words, **named):
    while str(path).endswith("alipes.log") and os.path.lexists(os.environ["STALL_FILE"]):
        time.sleep(0.05)
    return real(path, *words, **named)


os.stat = slow
'''


def reply(body):
    return Say(f"answer {words(body)}")


def customised(folder, source: str) -> dict[str, str]:
    """The environment of a process in which `source` is run first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(source)
    return {"PYTHONPATH": f"{folder}:{ROOT / 'src'}", "STALL_FILE": str(folder / "stall")}


@pytest.mark.deadline(150)
async def test_a_name_that_is_slow_to_be_found_holds_up_only_who_asked_for_it(tmp_path, figures):
    home, path = Home(tmp_path / "home"), tmp_path / "path"
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        with (home.path / "config.toml").open("a") as file:
            slow = model.url("openai-chat").replace("127.0.0.1", "slow.test")
            file.write(f'[providers.slow]\napi = "openai-chat"\nbase_url = "{slow}"\n')
        async with open_serve(home, **customised(path, SLOW_NAMES)) as served:
            await served.ready()
            telegram.chats.say("/model slow/scripted", chat=SUFFERING)
            await telegram.heard(SUFFERING)
            async with watching(served) as lag:
                telegram.chats.say("far", chat=SUFFERING)
                for number in range(5):
                    telegram.chats.say(f"near {number}", chat=OTHER)
                    await telegram.shows(OTHER, f"answer near {number}")
                assert not [text for text in texts(telegram, SUFFERING) if "answer far" in text]
                if LONG:  # who would wait so long? It is stopped, and asked elsewhere
                    telegram.chats.say("/stop", chat=SUFFERING)
                    telegram.chats.say("/model test/scripted", chat=SUFFERING)
                    telegram.chats.say("near", chat=SUFFERING)
                    await telegram.shows(SUFFERING, "answer near")
                    await asyncio.sleep(STALL)
                else:
                    await telegram.shows(SUFFERING, "answer far")
            assert await served.left() == 0
        figures.worst("loop lag with slow names, 99.9 of 100", lag.worst, "s")
        lag.check()


@pytest.mark.deadline(150)
async def test_a_disk_that_stalls_holds_the_loop_up_for_nobody(tmp_path, figures):
    """Nothing that must be kept first is said meanwhile, and all of it when the disk answers again."""
    home, path = Home(tmp_path / "home"), tmp_path / "path"
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with open_serve(home, **customised(path, SLOW_DISK)) as served:
            await served.ready()
            async with watching(served) as lag:
                telegram.chats.say("before", chat=OTHER)
                await telegram.shows(OTHER, "answer before")
                (path / "stall").touch()
                for chat in (SUFFERING, OTHER):
                    telegram.chats.say("meanwhile", chat=chat)
                await asyncio.sleep(STALL)
                assert not [text for text in texts(telegram, SUFFERING) if "answer" in text]
                (path / "stall").unlink()
                for chat in (SUFFERING, OTHER):
                    await telegram.shows(chat, "answer meanwhile")
            assert await served.left() == 0
        assert texts(telegram, SUFFERING) == ["answer meanwhile"]
        figures.worst("loop lag with a slow disk, 99.9 of 100", lag.worst, "s")
        lag.check()


@pytest.mark.deadline(150)
async def test_the_disk_of_the_log_may_stall_and_everybody_is_answered(tmp_path, figures):
    """What happens meanwhile is in the log afterwards."""
    home, path = Home(tmp_path / "home"), tmp_path / "path"
    log = home.path / "logs" / "alipes.log"

    def seen() -> int:
        return log.read_text().count("was not sent; retrying")

    async with ModelServer(reply) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with open_serve(home, **customised(path, SLOW_LOG)) as served:
            await served.ready()
            async with watching(served) as lag:
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
