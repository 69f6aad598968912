"""A month of use in little time: few file descriptors, closed connections, loud tools, model and session changes.

Leaks are found by comparing the last rounds with the first ones.
"""

import asyncio
import os
import random
import resource
import time
from pathlib import Path

import pytest
from msgspec import Struct

from tests.e2e.program import Home, children
from tests.e2e.service import open_serve
from tests.torture.homes import bot_texts, last_user_text, logged_errors, open_files, write_home
from tests.torture.trials import LONG, trials
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.model_validation import since_user
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until

FILES = 256
LOUD_BYTES = 2_000_000
RESIDENT = 200.0
"""Maximum memory in megabytes: 130, and 70 for search by meaning, whose package the tests install."""
CHATS, ROUNDS, AT_ONCE = trials(12, 200), trials(8, 25), 12
THREADS = AT_ONCE + 6
"""A worker for each conversation that is busy at once, and the threads that always run."""


class Resources(Struct, frozen=True):
    fds: int
    threads: int
    children: int
    resident: float

    @classmethod
    def of(cls, pid: int) -> "Resources":
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(
            len(open_files(pid)),
            len(os.listdir(f"/proc/{pid}/task")),
            len(children(pid)),
            pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        )


def reply(body):
    said, seen = since_user("openai-chat", body)
    if "loud" in seen and not said:
        return Calls((Call("terminal", {"command": f"yes {seen.split()[-1]} | head -c {LOUD_BYTES}"}),))
    return Say(f"answer {last_user_text(body).split()[-1]}", pieces=6, delay=0.005)


async def close_connections(model: ModelServer, rng: random.Random) -> None:
    """A proxy to the model that closes idle connections and sometimes one in use."""
    used: set[int] = set()
    while True:
        await asyncio.sleep(rng.uniform(0.05, 0.3))
        used |= {asked.connection for asked in model.requests}
        for connection in [each for each in tuple(model._living) if each.number in used]:
            if not connection._answering or rng.random() < 0.02:
                connection.transport.close()


class Conversations:
    def __init__(self, telegram: TelegramServer, rng: random.Random) -> None:
        self._telegram, self._rng, self._slots = telegram, rng, asyncio.Semaphore(AT_ONCE)
        self.turns = 0
        self._seen: dict[int, int] = {}

    async def round(self, number: int) -> None:
        async with asyncio.TaskGroup() as people:
            for chat in range(100, 100 + CHATS):
                people.create_task(self._talk(chat, number))

    async def _talk(self, chat: int, number: int) -> None:
        async with self._slots:
            match self._rng.randrange(8):
                case 0:
                    await self._run_command(chat, "/new")
                case 1:
                    await self._run_command(chat, f"/model test/{self._rng.choice(('scripted', 'scripted-large'))}")
            self._seen[chat] = len(self._telegram.chats.mine(chat))
            loud = "loud" if self._rng.random() < 0.2 else "quiet"
            self._telegram.chats.say(f"{loud} {chat}x{number}x", chat=chat)
            whole = f"answer {chat}x{number}x"
            await self._telegram.until(lambda: self._received(chat) == whole or "It failed" in self._received(chat))
            assert self._received(chat) == whole
            self.turns += 1

    def _received(self, chat: int) -> str:
        """The last answer or failure in the chat since `_seen`; empty if there is none."""
        mine = self._telegram.chats.mine(chat)[self._seen.get(chat, 0) :]
        return next((kept.text for kept in reversed(mine) if kept.text.startswith(("answer", "It failed"))), "")

    async def _run_command(self, chat: int, command: str) -> None:
        before = len(self._telegram.chats.mine(chat))
        self._telegram.chats.say(command, chat=chat)
        await self._telegram.heard(chat, before + 1)


IDLE = 2 if LONG else 8
"""Allowed growth of open files: idle connections come and go."""


def growth(samples: list[Resources], of: str) -> float:
    """The minimum of the last rounds minus the minimum of the first ones after warm-up."""
    seen = [getattr(each, of) for each in samples]
    third = max(2, len(seen) // 3)
    return min(seen[-third:]) - min(seen[1 : 1 + third])


@pytest.mark.deadline(60 if not LONG else 1800)
async def test_nothing_grows_with_the_turns(tmp_path, figures, seed=9):
    rng, home, samples = random.Random(seed), Home(tmp_path / "home"), []
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home) as served, asyncio.TaskGroup() as world:
            pid = served.process.pid
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
            await served.ready()
            closing, conversations = (world.create_task(close_connections(model, rng)), Conversations(telegram, rng))
            for number in range(ROUNDS):
                await conversations.round(number)
                model.requests.clear()
                await until(lambda: not children(pid) or len(children(pid)) <= 1)
                samples.append(Resources.of(pid))
            closing.cancel()
            began = time.monotonic()
            assert await served.left() == 0
            figures.worst("shutdown", time.monotonic() - began, "s")
            assert time.monotonic() - began < LIMIT_S
            assert await served.process.stderr.read() == b""
    for chat in range(100, 100 + CHATS):
        answers = [text for text in bot_texts(telegram, chat) if text.startswith("answer")]
        assert answers == [f"answer {chat}x{number}x" for number in range(ROUNDS)], chat
    assert growth(samples, "fds") <= IDLE and growth(samples, "children") <= 0, samples
    assert max(each.threads for each in samples) <= THREADS, samples
    assert max(each.fds for each in samples) < FILES / 2
    assert samples[-1].resident < RESIDENT, samples
    logs = sum(path.stat().st_size for path in (home.path / "logs").iterdir())
    spilled = sum(path.stat().st_size for path in home.path.rglob("terminal-*.txt"))
    assert logs < 1_000 * conversations.turns + 100_000 and spilled <= 500 << 20
    assert logged_errors(home) == []
    figures.tried(conversations.turns)
    for name in ("fds", "threads", "children", "resident"):
        figures.worst(f"growth of {name}", growth(samples, name))
    figures.worst("resident", max(each.resident for each in samples), "MB")
