"""The gateway, one-shots and an outside reader on one home, one of them killed again and again: nothing told is lost."""

import asyncio
import os
import random
import signal
import sqlite3
import time
from contextlib import closing, suppress

import pytest

from tests.e2e.program import Home, finished
from tests.e2e.service import serving
from tests.torture.furnishing import furnish, open_files, texts, words
from tests.torture.trials import LONG, seeds
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import TelegramServer

CHATS, ASKERS = 4, 2
SECONDS = 5.0 if not LONG else 40.0
SAID = "SELECT count(*) FROM turns WHERE json_extract(inbound, '$.text') = ? AND ending = 'answered'"


class Scene:
    """Who lives on the home, and what was told to whom."""

    def __init__(self, home: Home, telegram: TelegramServer, dice: random.Random) -> None:
        self.home, self.telegram, self.dice = home, telegram, dice
        self.until = time.monotonic() + SECONDS
        self.living: dict[str, int] = {}
        self.told: list[str] = []
        """Questions whose answer a person has read."""
        self.asked = {chat: 0 for chat in range(10, 10 + CHATS)}
        self.kills = self.reads = 0
        self.stale: list[str] = []

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    @property
    def rest(self) -> float:
        return max(0.0, self.until - time.monotonic())

    async def serve(self) -> None:
        while not self.over:
            with suppress(AssertionError):  # killed before it was ready
                async with serving(self.home) as served:
                    self.living["serve"] = served.process.pid
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.rest):
                            await served.process.wait()
                    if served.process.returncode is None:
                        await served.left()
            self.living.pop("serve", None)

    async def ask(self, name: str) -> None:
        number = 0
        while not self.over:
            number += 1
            text = f"{name}-{number}"
            async with self.home.started("ask", "--session", name, text) as process:
                self.living[name] = process.pid
                done = await finished(process)
            self.living.pop(name, None)
            if done.status == 0:
                assert f"answer {text}" in done.out
                self.told.append(text)
            else:
                assert done.status == -signal.SIGKILL, (done.status, done.err)

    async def write(self, chat: int) -> None:
        while not self.over:
            self.asked[chat] += 1
            self.telegram.town.say(f"{chat}-{self.asked[chat]}", chat=chat)
            await asyncio.sleep(self.dice.uniform(0.1, 0.5))

    async def murder(self) -> None:
        while not self.over:
            await asyncio.sleep(self.dice.uniform(0.3, 1.2))
            for pid in self.living.values():
                with suppress(OSError):
                    gone = [where for where in open_files(pid) if "alipes.db" in where and "deleted" in where]
                    self.stale += gone
            if self.living:
                with suppress(ProcessLookupError):
                    os.kill(self.living[self.dice.choice(sorted(self.living))], signal.SIGKILL)
                    self.kills += 1

    async def read(self) -> None:
        """Somebody from outside, as with the sqlite3 program."""
        while not self.over:
            with closing(sqlite3.connect(self.home.path / "alipes.db", timeout=5)) as db:
                with suppress(sqlite3.OperationalError):  # no table yet
                    assert db.execute("SELECT count(*) FROM turns").fetchone()[0] >= 0
                    self.reads += 1
            await asyncio.sleep(0.1)


@pytest.mark.deadline(60 + 2 * SECONDS)
@pytest.mark.parametrize("seed", seeds(1, 5))
async def test_what_was_told_is_kept_whoever_is_killed(tmp_path, seed, figures):
    home, dice = Home(tmp_path / "home"), random.Random(seed)
    async with ModelServer(lambda body: Say(f"answer {words(body)}")) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        assert (await home.run("ask", "first")).status == 0
        scene = Scene(home, telegram, dice)
        async with asyncio.TaskGroup() as group:
            for work in (scene.serve(), scene.murder(), scene.read()):
                group.create_task(work)
            for number in range(ASKERS):
                group.create_task(scene.ask(f"asker{number}"))
            for chat in scene.asked:
                group.create_task(scene.write(chat))
        async with serving(home) as served:
            for chat, count in scene.asked.items():
                await telegram.shows(chat, f"answer {chat}-{count}")
            assert await served.left() == 0
        assert scene.stale == [] and scene.kills > 0 and scene.reads > 0
        with closing(sqlite3.connect(home.path / "alipes.db")) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            for text in scene.told:
                assert db.execute(SAID, (text,)).fetchone() == (1,), f"{text} was told and is not kept"
            doubtful = {
                row[0]
                for row in db.execute("SELECT json_extract(outbound, '$.text') FROM debts WHERE uncertain")
            }
        for chat, count in scene.asked.items():
            seen = [text for text in texts(telegram, chat) if text.startswith("answer")]
            assert list(dict.fromkeys(seen)) == [f"answer {chat}-{n}" for n in range(1, count + 1)], (
                seed,
                seen,
            )
            assert {text for text in seen if seen.count(text) > 1} <= doubtful, (seed, seen)
        assert scene.told or not LONG
        figures.tried(scene.kills)
