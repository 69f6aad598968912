"""Kills `alipes serve` with -9 repeatedly while people write to it, and checks the result.

Every message asks for a unique answer, so that missing, duplicate and reordered answers are found.
"""

import asyncio
import os
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests.world.echo_model import STEPS
from tests.world.environment import LIMIT_S
from tests.world.serve_process import ServeSetup, open_setup
from tests.world.telegram_load import FIRST, token

VERBS = ("echo", "echo", "act", "act", "slow")
"""Kinds of requests: an immediate answer, a command, a long answer."""
PATIENCE = LIMIT_S
"""Seconds after which an answer counts as lost."""


class KillReport(Struct):
    """The damage found."""

    kills: int = 0
    messages: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    """Duplicate or partial answers that were not marked as uncertain."""
    marked: list[str] = field(default_factory=list)
    """Duplicates marked as uncertain: killed between sending and the acknowledgement."""
    reordered: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Commands that were run twice."""
    orphans: int = 0
    again: list[float] = field(default_factory=list)
    """Seconds from each start to the first answer."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.repeated or self.orphans)


async def kill_repeatedly(folder: Path, seed: int, *, kills: int, chats: int = 20) -> KillReport:
    """The same seed does the same; exact moments depend on the machine."""
    async with open_setup(folder) as world:
        load = _KillLoad(world, random.Random(seed), chats)
        await world.service.start()
        await world.messenger.call("polled")
        for _ in range(kills):
            await load.storm()
        await load.toll(kills)
        return load.counted


class _KillLoad:
    def __init__(self, world: ServeSetup, dice: random.Random, chats: int) -> None:
        self._world, self._dice, self._chats = world, dice, chats
        self._asked: dict[int, int] = defaultdict(int)
        """Messages written, by chat."""
        self.counted = KillReport()

    async def storm(self) -> None:
        """One round: people write, it is killed, some write again, it restarts and answers all."""
        dice, service = self._dice, self._world.service
        people = range(FIRST, FIRST + self._chats)
        waiting = await self._write(people)
        await asyncio.sleep(dice.random() ** 2 * 1.5)  # more kills at busy moments
        children = set(_descendants(service.pid))
        await service.kill()
        waiting |= await self._write(dice.sample(people, self._chats // 4))
        began, before = time.time(), await self._calls()
        await service.start()
        await self._answered(waiting)
        first = next((call["at"] for call in (await self._calls(all=True))[before:] if _answers(call, waiting)), 0.0)
        if first:
            self.counted.again.append(first - began)
        self.counted.orphans += await _alive(children)

    async def _write(self, people: Any) -> set[str]:
        messages, tokens = [], set()
        for chat in people:
            number = self._asked[chat]
            self._asked[chat] += 1
            tokens.add(token(chat, number))
            messages.append({"text": f"{self._dice.choice(VERBS)} {token(chat, number)}", "chat": chat})
        await self._world.messenger.call("say_many", messages=messages)
        return tokens

    async def _calls(self, *, all: bool = False) -> Any:
        calls = await self._world.messenger.call("calls")
        return calls if all else len(calls)

    async def _answered(self, tokens: set[str]) -> None:
        """Wait until all of these answers are visible, or time is up."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not tokens - {_answer(one["text"]) for one in await self._world.messenger.call("sent")}:
                return
            await asyncio.sleep(0.1)

    async def toll(self, kills: int) -> None:
        counted, sent = self.counted, await self._world.messenger.call("sent")
        await self._world.service.leave()
        uncertain = _uncertain(self._world.service.home)
        counted.kills, counted.messages = kills, sum(self._asked.values())
        rooms: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for one in sorted(sent, key=lambda one: one["id"]):
            rooms[one["chat"]].append(one)
        for chat, asked in self._asked.items():
            self._look(rooms[chat], [token(chat, number) for number in range(asked)], uncertain)
        steps = self._world.service.work / STEPS
        lines = steps.read_text().split() if steps.exists() else []
        counted.repeated = sorted({line for line in lines if lines.count(line) > 1})

    def _look(self, room: list[dict[str, Any]], tokens: list[str], uncertain: set[str]) -> None:
        counted, order = self.counted, []
        for each in tokens:
            holding = [one["id"] for one in room if _answer(one["text"]) == each]
            if not holding:
                counted.lost.append(each)
                continue
            order.append((holding[0], each))
            if len(holding) > 1:
                (counted.marked if each in uncertain else counted.doubled).append(each)
        if order != sorted(order):
            counted.reordered.append(f"{[each for _, each in order]}")
        for one in room:  # shown partially and never completed
            if one["text"].startswith("word") and not _answer(one["text"]):
                may_be = uncertain & set(tokens)
                (counted.marked if may_be else counted.doubled).append(f"half of {one['chat']}:{one['id']}")


def _answer(text: str) -> str:
    """The message that this text fully answers; empty for notices, progress and partial answers."""
    *before, last = text.split() or [""]
    return last if last[:1] == "x" and set(before) <= {"word"} else ""


def _answers(call: dict[str, Any], tokens: set[str]) -> bool:
    return call["code"] == 200 and _answer(str(call["given"].get("text", ""))) in tokens


def _uncertain(home: Path) -> set[str]:
    """Answers that the outbox marks as possibly duplicated."""
    database = sqlite3.connect(home / "alipes.db")
    with suppress(sqlite3.OperationalError):
        rows = database.execute("SELECT json_extract(outbound, '$.text') FROM outbox WHERE uncertain_part").fetchall()
    database.close()
    return {text.split()[-1] for (text,) in rows if text and text.split()}


def _descendants(pid: int) -> Iterator[tuple[int, str]]:
    """All descendants with their start times, as pids are reused."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        if began := _began(child):
            yield child, began
        yield from _descendants(child)


def _began(pid: int) -> str:
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


async def _alive(children: set[tuple[int, str]]) -> int:
    """How many of them still exist after a while; the watching process ends last."""
    for _ in range(40):
        left = [pid for pid, began in children if _began(pid) == began]
        if not left:
            return 0
        await asyncio.sleep(0.05)
    for pid in left:
        with suppress(ProcessLookupError):
            print("left:", Path(f"/proc/{pid}/cmdline").read_bytes())
            os.kill(pid, 9)
    return len(left)
