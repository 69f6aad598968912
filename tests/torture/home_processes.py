"""Many processes on one home: the service, API clients, terminals, one-shots, chats, a reader and random kills.

Records what each client was shown, for the tests to check.
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
from tests.torture.homes import open_client, open_files
from tests.world.telegram_server import TelegramServer
from tests.world.terminal_process import ENTER, TerminalProcess

CHATS = 4
DISK_FULL = re.compile(r"is\s+full|No\s+space\s+left|make\s+room")


class HomeProcesses:
    """The processes on one home, and what each client was shown."""

    def __init__(self, home: Home, telegram: TelegramServer, rng: random.Random, seconds: float) -> None:
        self.home, self.telegram, self.rng = home, telegram, rng
        self.until = time.monotonic() + seconds
        self.running: dict[str, int] = {}
        self.received: list[str] = []
        """Messages whose answer was shown."""
        self.asked = {chat: 0 for chat in range(10, 10 + CHATS)}
        self.kills = self.reads = 0
        self.refused: list[str] = []
        """Errors shown while the disk was full."""
        self.stale: list[str] = []
        self.address = ""

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    async def serve(self) -> None:
        """Restart it whenever it ends, as a supervisor would."""
        while not self.over:
            try:
                async with open_serve(self.home, within=90.0) as served:  # many start at once
                    self.running["serve"] = served.process.pid
                    if (held := find_holder(self.home.path / "run" / "serve.claim")) is not None:
                        self.address = held.address
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.seconds_left):
                            await served.process.wait()
                    if served.process.returncode is None:
                        await served.left()
                    elif served.process.returncode > 0:
                        assert served.process.stderr is not None
                        self._record_refusal(served.process.returncode, (await served.process.stderr.read()).decode())
            except AssertionError as error:  # it ended before it was ready
                if "ended with -9" not in str(error):
                    self._record_refusal(1, str(error))
                await asyncio.sleep(0.1)
            self.running.pop("serve", None)

    async def run_asks(self, name: str) -> None:
        number = 0
        while not self.over:
            number += 1
            text = f"{name}-{number}"
            # a connection from another process may still be open at exit
            quiet = {"PYTHONWARNINGS": "ignore::ResourceWarning"}
            async with self.home.started("ask", "--session", name, text, **quiet) as process:
                self.running[name] = process.pid
                done = await wait_finished(process)
            self.running.pop(name, None)
            if done.status == 0:
                assert f"answer {text}" in done.out
                self.received.append(text)
            elif done.status != -signal.SIGKILL:
                self._record_refusal(done.status, done.err)

    async def use_api(self, name: str) -> None:
        """Over HTTP, as the page does."""
        number = 0
        while not self.over:
            with suppress(httpx2.HTTPError, AssertionError):  # killed or refused
                async with open_client(self) as api:
                    while not self.over:
                        number += 1
                        text = f"{name}-{number}"
                        run = await api.begin(text, session=name)
                        if (await api.finish(run))["status"] == "answered":
                            self.received.append(text)
            await asyncio.sleep(0.05)

    async def use_terminal(self, name: str) -> None:
        """Use a terminal, and a new one after each kill."""
        number = 0
        while not self.over:
            async with TerminalProcess.of(self.home, "--session", name) as terminal:
                self.running[name] = terminal.pid
                while not self.over and terminal.status is None:
                    number += 1
                    text = f"{name}-{number}"
                    terminal.type(text + ENTER)
                    await terminal.until(lambda g=terminal, t=text: f"answer {t}" in g.text or g.status is not None, 90)
                    if f"answer {text}" in terminal.text:
                        self.received.append(text)
                if terminal.status is not None and terminal.status > 0:
                    self._record_refusal(terminal.status, terminal.text)
            self.running.pop(name, None)

    def _record_refusal(self, status: int, said: str) -> None:
        assert DISK_FULL.search(said) and "Traceback" not in said, (status, said)
        self.refused.append(said)

    async def send_messages(self, chat: int) -> None:
        while not self.over:
            self.asked[chat] += 1
            self.telegram.chats.say(f"{chat}-{self.asked[chat]}", chat=chat)
            await asyncio.sleep(self.rng.uniform(0.1, 0.5))

    async def kill_randomly(self) -> None:
        while not self.over:
            await asyncio.sleep(self.rng.uniform(0.3, 1.2))
            for pid in self.running.values():
                with suppress(OSError):
                    gone = [where for where in open_files(pid) if "alipes.db" in where and "deleted" in where]
                    self.stale += gone
            if self.running:
                with suppress(ProcessLookupError):
                    os.kill(self.running[self.rng.choice(sorted(self.running))], signal.SIGKILL)
                    self.kills += 1

    async def read_database(self) -> None:
        """Read from outside, as the sqlite3 program would."""
        while not self.over:
            with closing(sqlite3.connect(self.home.path / "alipes.db", timeout=5)) as db:
                with suppress(sqlite3.OperationalError):  # no table yet, or no space for the WAL index
                    assert db.execute("SELECT count(*) FROM turns").fetchone()[0] >= 0
                    self.reads += 1
            await asyncio.sleep(0.1)
