"""Many on one home: the service and its API, terminals, one-shots, people in chats, an outside reader, a murderer.

Records what each client was shown; the tests judge it.
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

from alipes.runtime.process_lock import find_holder
from tests.e2e.program import Home, wait_finished
from tests.e2e.service import open_serve
from tests.torture.homes import door, open_files
from tests.world.telegram_server import TelegramServer
from tests.world.terminal_process import ENTER, TerminalProcess

CHATS = 4
FULL = re.compile(r"is\s+full|No\s+space\s+left|make\s+room")


class ProcessGroupOnHome:
    """The processes on one home, and what each client was shown."""

    def __init__(self, home: Home, telegram: TelegramServer, dice: random.Random, seconds: float) -> None:
        self.home, self.telegram, self.dice = home, telegram, dice
        self.until = time.monotonic() + seconds
        self.living: dict[str, int] = {}
        self.received: list[str] = []
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
                async with open_serve(self.home, within=90.0) as served:  # many start at once
                    self.living["serve"] = served.process.pid
                    if (held := find_holder(self.home.path / "run" / "serve.claim")) is not None:
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
                done = await wait_finished(process)
            self.living.pop(name, None)
            if done.status == 0:
                assert f"answer {text}" in done.out
                self.received.append(text)
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
                            self.received.append(text)
            await asyncio.sleep(0.05)

    async def sit(self, name: str) -> None:
        """At a terminal, and at a new one when it was killed."""
        number = 0
        while not self.over:
            async with TerminalProcess.of(self.home, "--session", name) as terminal:
                self.living[name] = terminal.pid
                while not self.over and terminal.status is None:
                    number += 1
                    text = f"{name}-{number}"
                    terminal.type(text + ENTER)
                    await terminal.until(
                        lambda g=terminal, t=text: f"answer {t}" in g.text or g.status is not None, 90
                    )
                    if f"answer {text}" in terminal.text:
                        self.received.append(text)
                if terminal.status is not None and terminal.status > 0:
                    self._refused(terminal.status, terminal.text)
            self.living.pop(name, None)

    def _refused(self, status: int, said: str) -> None:
        assert FULL.search(said) and "Traceback" not in said, (status, said)
        self.refused.append(said)

    async def write(self, chat: int) -> None:
        while not self.over:
            self.asked[chat] += 1
            self.telegram.chats.say(f"{chat}-{self.asked[chat]}", chat=chat)
            await asyncio.sleep(self.dice.uniform(0.1, 0.5))

    async def kill_randomly(self) -> None:
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
