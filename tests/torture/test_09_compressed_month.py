"""A month in little time: few descriptors, a model whose connections are closed, loud tools, other models, new talks.

What grows with the turns is found by comparing the first rounds with the last ones.
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
from tests.torture.homes import complaints, furnish, open_files, texts, words
from tests.torture.trials import LONG, trials
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.model_validation import since_user
from tests.world.telegram_server import TelegramServer
from tests.world.wait import until

FILES = 256
LOUD = 2_000_000
RESIDENT = 130.0
"""Megabytes that it may take, however long it runs."""
POOL = min(32, (os.cpu_count() or 1) + 4)
"""Threads that asyncio keeps for what blocks, and fills one by one."""
CHATS, ROUNDS, AT_ONCE = trials(12, 200), trials(8, 25), 12


class Census(Struct, frozen=True):
    fds: int
    threads: int
    children: int
    resident: float

    @classmethod
    def of(cls, pid: int) -> "Census":
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
        return Calls((Call("terminal", {"command": f"yes {seen.split()[-1]} | head -c {LOUD}"}),))
    return Say(f"answer {words(body).split()[-1]}", pieces=6, delay=0.005)


async def cut(model: ModelServer, dice: random.Random) -> None:
    """A proxy to the model that closes idle connections and sometimes one in use."""
    used: set[int] = set()
    while True:
        await asyncio.sleep(dice.uniform(0.05, 0.3))
        used |= {asked.connection for asked in model.requests}
        for connection in [each for each in tuple(model._living) if each.number in used]:
            if not connection._answering or dice.random() < 0.02:
                connection.transport.close()


class Month:
    def __init__(self, telegram: TelegramServer, dice: random.Random) -> None:
        self._telegram, self._dice, self._room = telegram, dice, asyncio.Semaphore(AT_ONCE)
        self.turns = 0
        self._seen: dict[int, int] = {}

    async def round(self, number: int) -> None:
        async with asyncio.TaskGroup() as people:
            for chat in range(100, 100 + CHATS):
                people.create_task(self._talk(chat, number))

    async def _talk(self, chat: int, number: int) -> None:
        async with self._room:
            match self._dice.randrange(8):
                case 0:
                    await self._order(chat, "/new")
                case 1:
                    await self._order(
                        chat, f"/model test/{self._dice.choice(('scripted', 'scripted-large'))}"
                    )
            self._seen[chat] = len(self._telegram.chats.mine(chat))
            loud = "loud" if self._dice.random() < 0.2 else "quiet"
            self._telegram.chats.say(f"{loud} {chat}x{number}x", chat=chat)
            whole = f"answer {chat}x{number}x"
            await self._telegram.until(
                lambda: self._received(chat) == whole or "It failed" in self._received(chat)
            )
            assert self._received(chat) == whole
            self.turns += 1

    def _received(self, chat: int) -> str:
        """The last word there that is an answer, or why there is none; empty while that is the one before."""
        mine = self._telegram.chats.mine(chat)[self._seen.get(chat, 0) :]
        return next(
            (kept.text for kept in reversed(mine) if kept.text.startswith(("answer", "It failed"))), ""
        )

    async def _order(self, chat: int, command: str) -> None:
        before = len(self._telegram.chats.mine(chat))
        self._telegram.chats.say(command, chat=chat)
        await self._telegram.heard(chat, before + 1)


IDLE = 2 if LONG else 8
"""Open files more at the end: connections that wait for the next request come and go."""


def slope(found: list[Census], of: str) -> float:
    """By how much the calmest of the last rounds is above the calmest of the first, when all was loaded once."""
    seen = [getattr(each, of) for each in found]
    third = max(2, len(seen) // 3)
    return min(seen[-third:]) - min(seen[1 : 1 + third])


@pytest.mark.deadline(60 if not LONG else 1800)
async def test_nothing_grows_with_the_turns(tmp_path, figures, seed=9):
    dice, home, found = random.Random(seed), Home(tmp_path / "home"), []
    async with ModelServer(reply) as model, TelegramServer() as telegram:
        furnish(home, model, telegram)
        async with open_serve(home) as served, asyncio.TaskGroup() as world:
            pid = served.process.pid
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
            await served.ready()
            cutting, month = world.create_task(cut(model, dice)), Month(telegram, dice)
            for number in range(ROUNDS):
                await month.round(number)
                model.requests.clear()
                await until(lambda: not children(pid) or len(children(pid)) <= 1)
                found.append(Census.of(pid))
            cutting.cancel()
            began = time.monotonic()
            assert await served.left() == 0
            figures.worst("shutdown", time.monotonic() - began, "s")
            assert time.monotonic() - began < LIMIT_S
            assert await served.process.stderr.read() == b""
    for chat in range(100, 100 + CHATS):
        answers = [text for text in texts(telegram, chat) if text.startswith("answer")]
        assert answers == [f"answer {chat}x{number}x" for number in range(ROUNDS)], chat
    assert slope(found, "fds") <= IDLE and slope(found, "children") <= 0, found
    assert max(each.threads for each in found) <= POOL + 4, found
    assert max(each.fds for each in found) < FILES / 2
    assert found[-1].resident < RESIDENT, found
    logs = sum(path.stat().st_size for path in (home.path / "logs").iterdir())
    spilt = sum(path.stat().st_size for path in home.path.rglob("terminal-*.txt"))
    assert logs < 1_000 * month.turns + 100_000 and spilt <= 500 << 20
    assert complaints(home) == []
    figures.tried(month.turns)
    for name in ("fds", "threads", "children", "resident"):
        figures.worst(f"slope of {name}", slope(found, name))
    figures.worst("resident", max(each.resident for each in found), "MB")
