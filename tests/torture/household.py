"""Many on one home: the service and its API, terminals, one-shots, people in chats, an outside reader, a murderer.

What was told to whom is kept here; whether all of it is true is judged by who asked.
"""

import asyncio
import os
import random
import re
import signal
import sqlite3
import time
from contextlib import closing, suppress

import httpx2

from alipes.runtime.process_lock import holder
from tests.e2e.program import Home, finished
from tests.e2e.service import serving
from tests.torture.furnishing import door, open_files
from tests.world.glass import ENTER, Glass
from tests.world.telegram_server import TelegramServer

CHATS = 4
FULL = re.compile(r"is\s+full|No\s+space\s+left|make\s+room")


class Household:
    """Who lives on the home, and what was told to whom."""

    def __init__(self, home: Home, telegram: TelegramServer, dice: random.Random, seconds: float) -> None:
        self.home, self.telegram, self.dice = home, telegram, dice
        self.until = time.monotonic() + seconds
        self.living: dict[str, int] = {}
        self.told: list[str] = []
        """Questions whose answer a person has read."""
        self.asked = {chat: 0 for chat in range(10, 10 + CHATS)}
        self.kills = self.reads = 0
        self.refused: list[str] = []
        """What was said when a disk was full."""
        self.stale: list[str] = []
        self.address = ""

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    @property
    def rest(self) -> float:
        return max(0.0, self.until - time.monotonic())

    async def serve(self) -> None:
        """Started again whenever it ended, as by a supervisor."""
        while not self.over:
            try:
                async with serving(self.home, within=90.0) as served:  # many start at once
                    self.living["serve"] = served.process.pid
                    if (held := holder(self.home.path / "run" / "serve.claim")) is not None:
                        self.address = held.address
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.rest):
                            await served.process.wait()
                    if served.process.returncode is None:
                        await served.left()
                    elif served.process.returncode > 0:
                        assert served.process.stderr is not None
                        self._refused(
                            served.process.returncode, (await served.process.stderr.read()).decode()
                        )
            except AssertionError as error:  # it ended before it was ready
                if "ended with -9" not in str(error):
                    self._refused(1, str(error))
                await asyncio.sleep(0.1)
            self.living.pop("serve", None)

    async def ask(self, name: str) -> None:
        number = 0
        while not self.over:
            number += 1
            text = f"{name}-{number}"
            # who is spoken to by another process in its last moment leaves it to its exit to hang up
            quiet = {"PYTHONWARNINGS": "ignore::ResourceWarning"}
            async with self.home.started("ask", "--session", name, text, **quiet) as process:
                self.living[name] = process.pid
                done = await finished(process)
            self.living.pop(name, None)
            if done.status == 0:
                assert f"answer {text}" in done.out
                self.told.append(text)
            elif done.status != -signal.SIGKILL:
                self._refused(done.status, done.err)

    async def call(self, name: str) -> None:
        """Over HTTP, as the page does."""
        number = 0
        while not self.over:
            with suppress(httpx2.HTTPError, AssertionError):  # killed, or refused
                async with door(self) as front:
                    while not self.over:
                        number += 1
                        text = f"{name}-{number}"
                        run = await front.begin(text, session=name)
                        if (await front.finish(run))["status"] == "answered":
                            self.told.append(text)
            await asyncio.sleep(0.05)

    async def sit(self, name: str) -> None:
        """At a terminal, and at a new one when it was killed."""
        number = 0
        while not self.over:
            async with Glass.of(self.home, "--session", name) as glass:
                self.living[name] = glass.pid
                while not self.over and glass.status is None:
                    number += 1
                    text = f"{name}-{number}"
                    glass.type(text + ENTER)
                    await glass.until(
                        lambda g=glass, t=text: f"answer {t}" in g.text or g.status is not None, 90
                    )
                    if f"answer {text}" in glass.text:
                        self.told.append(text)
                if glass.status is not None and glass.status > 0:
                    self._refused(glass.status, glass.text)
            self.living.pop(name, None)

    def _refused(self, status: int, said: str) -> None:
        assert FULL.search(said) and "Traceback" not in said, (status, said)
        self.refused.append(said)

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
                with suppress(sqlite3.OperationalError):  # no table yet, or no room for an index of the log
                    assert db.execute("SELECT count(*) FROM turns").fetchone()[0] >= 0
                    self.reads += 1
            await asyncio.sleep(0.1)
