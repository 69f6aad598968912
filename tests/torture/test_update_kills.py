"""`kill -9` at random moments of an update and of `--back`: a version starts every time and reads the home, and no turn
is lost or done twice."""

import asyncio
import os
import random
import signal
import sqlite3
import time
from contextlib import closing, suppress

import pytest

from alipes import __version__
from tests.e2e.service import open_serve
from tests.e2e.test_update import make_home, start_with
from tests.torture.homes import bot_texts, last_user_text, write_home
from tests.torture.trials import LONG
from tests.world.alipes_versions import FIRST_RELEASE, require_commit
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until

KILLS = max(2, LONG // 2)
"""Of each test."""
LONGER = 1.15
NEXT = "99.0"
CHATS = (10, 11)
MESSAGES = "SELECT json_extract(inbound, '$.text'), ending FROM turns ORDER BY rowid"
UNCERTAIN = "SELECT json_extract(outbound, '$.text') FROM outbox WHERE uncertain_part"
pytestmark = pytest.mark.deadline(600 + 60 * KILLS)


def answer(body):
    return Say(f"answer {last_user_text(body)}")


def make_chance():
    return random.Random(os.environ.get("ALIPES_SEED", "1"))


class Change:
    """`alipes update WORDS`, killed at a moment of the time that it needs; what it needs changes with the load."""

    def __init__(self, home, chance, *words):
        self.home, self.chance, self.words, self.seconds = home, chance, words, 0.0
        self.said = ""

    async def run(self, command):
        """Run it to its end."""
        began = time.monotonic()
        status = await self._run(command, LIMIT_S)
        self.seconds = time.monotonic() - began
        assert status == 0, self.said

    async def kill(self, command):
        """True if it was killed before its end."""
        began = time.monotonic()
        status = await self._run(command, self.chance.uniform(0, self.seconds))
        assert status in (0, None), self.said
        self.seconds = self.seconds * LONGER if status is None else time.monotonic() - began
        return status is None

    async def _run(self, command, seconds):
        process = await asyncio.create_subprocess_exec(
            *(*command, "update", "--yes", *self.words),
            env=self.home.environ(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds):
                self.said = (await process.communicate())[1].decode()
            return process.returncode
        except TimeoutError:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return None


def check_folder(home):
    """Nothing of the killed updates is left."""
    assert [each.name for each in home.versions.folder.iterdir() if each.name.startswith(".")] == [".lock"]
    assert {each.suffix for each in home.versions.backups.iterdir()} <= {".tgz", ".db"}


def read_turns(database):
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return db.execute(MESSAGES).fetchall()


async def test_the_first_release_and_this_one_start_after_every_kill(tmp_path, figures):
    """They cannot read each other's conversations: back is `--back --restore`, which keeps later ones in a file."""
    home, chance = make_home(tmp_path), make_chance()
    start_with(home, "0.1.0", source=require_commit(FIRST_RELEASE))
    home.offer(__version__)
    new = (str(home.versions.python(__version__)), "-m", "alipes")  # the first release has no `alipes update`
    forward = Change(home, chance, "--source", str(home.wheels), "--to", __version__)
    back = Change(home, chance, "--back", "--restore")
    kept, since, kills = list[str](), list[str](), 0

    async def ask(text):
        done = await home.run("ask", "--session", "trip", text, PYTHONWARNINGS="ignore")
        assert (done.status, done.out) == (0, f"answer {text}\n"), done.err

    async def check():
        """The version that starts reads every conversation that it should."""
        assert await home.version() == f"alipes {home.versions.current()}"
        assert await home.titles() == [kept[0]]
        turns, later = read_turns(home.path / "alipes.db"), [*home.versions.backups.glob("after-*.db")]
        here = [text for text, ending in turns if ending == "answered"]
        assert len(here) == len(turns) and here[: len(kept)] == kept
        assert here[len(kept) :] in ([], since)
        if since and not here[len(kept) :]:  # they are in a file
            assert any([text for text, _ in read_turns(each)] == kept + since for each in later)
            since.clear()

    async with ModelServer(answer) as model:
        home.use(model)
        await ask("0")
        kept.append("0")
        await forward.run(new)
        await back.run(new)
        await check()
        number = 0
        while kills < KILLS:
            number += 1
            old = home.versions.current() == "0.1.0"
            await ask(str(number))
            (kept if old else since).append(str(number))
            kills += await (forward if old else back).kill(new)
            await check()
        await (forward if home.versions.current() == "0.1.0" else back).run(new)
        await check()
    figures.tried(kills)
    check_folder(home)


class Gateway:
    """`alipes serve` of the current version, started again when it ends, and people who write to it."""

    def __init__(self, home, telegram, chance):
        self.home, self.telegram, self.chance = home, telegram, chance
        self.pid, self.ready, self.said, self.over = 0, asyncio.Event(), dict.fromkeys(CHATS, 0), False

    async def serve(self):
        while not self.over:
            async with open_serve(self.home, within=120.0) as served:
                self.pid = served.process.pid
                self.ready.set()
                status = await served.process.wait()
                self.ready.clear()
                assert status == -signal.SIGKILL or self.over, status

    async def talk(self, chat):
        """One or two messages, and again when they are answered."""
        while not self.over:
            for _ in range(self.chance.choice((1, 2))):
                self.said[chat] += 1
                self.telegram.chats.say(f"{chat}-{self.said[chat]}", chat=chat)
            await self.telegram.shows(chat, f"answer {chat}-{self.said[chat]}")

    async def answer_all(self):
        """Wait for the answers to all messages so far: a turn that is interrupted three times is given up."""
        for chat, count in [*self.said.items()]:
            await self.telegram.shows(chat, f"answer {chat}-{count}")

    async def kill(self):
        """At some moment of the next update."""
        await asyncio.sleep(self.chance.uniform(0, 4))
        if self.ready.is_set():
            self.ready.clear()
            os.kill(self.pid, signal.SIGKILL)

    async def stop(self):
        await self.answer_all()
        await until(lambda: all(ending for _, ending in read_turns(self.home.path / "alipes.db")))
        self.over = True
        os.kill(self.pid, signal.SIGTERM)


async def test_a_running_server_does_every_turn_once_under_kills_of_updates_and_of_itself(tmp_path, figures):
    home, chance = make_home(tmp_path), make_chance()
    start_with(home, __version__)
    home.offer(NEXT)
    forward, back = Change(home, chance, "--source", str(home.wheels)), Change(home, chance, "--back")
    kills = 0

    def answer_late(body):
        return Say(f"answer {last_user_text(body)}", delay=chance.uniform(0, 1))

    async with ModelServer(answer_late) as model, TelegramServer() as telegram, asyncio.TaskGroup() as group:
        write_home(home, model, telegram)
        gateway = Gateway(home, telegram, chance)
        group.create_task(gateway.serve())
        await gateway.ready.wait()
        await forward.run(home.command)
        await back.run(home.command)
        talks = [group.create_task(gateway.talk(chat)) for chat in CHATS]
        while kills < KILLS:
            change = back if home.versions.current() == NEXT else forward
            also = group.create_task(gateway.kill()) if chance.random() < 0.3 else None
            kills += await change.kill(home.command)
            assert await home.version() == f"alipes {home.versions.current()}"
            await home.titles()
            if also is not None:
                await also
            await gateway.answer_all()
        for each in talks:
            each.cancel()
        await gateway.stop()
    await (back if home.versions.current() == NEXT else forward).run(home.command)
    figures.tried(kills)
    turns, uncertain = read_turns(home.path / "alipes.db"), set[str]()
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        uncertain = {text for (text,) in db.execute(UNCERTAIN)}
    for chat, count in gateway.said.items():
        wanted = [f"{chat}-{number}" for number in range(1, count + 1)]
        assert [each for each in turns if each[0].startswith(f"{chat}-")] == [(text, "answered") for text in wanted]
        seen = [text for text in bot_texts(telegram, chat) if text.startswith("answer ")]
        assert list(dict.fromkeys(seen)) == [f"answer {text}" for text in wanted]
        assert {text for text in seen if seen.count(text) > 1} <= uncertain
    check_folder(home)
